"""One screen of ``srtm top``: the promises that are broken first, then the brokers, as many rows as fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from srtm.client.distributor import Json
from srtm.console.output import number
from srtm.text import figure, plural

_SHOWN = {"broken": "bold red", "unknown": "yellow", "dead": "bold red", "silent": "bold red"}
_TOPICS = ("topic", "promise", "latency ms", "promised", "msg/s", "r msg/s", "waiting", "brokers")
_BROKERS = ("broker", "state", "load", "mcap msg/s", "topics", "waiting", "broken", "synced")
_LEFT = ("promise", "state")
_AROUND = 8  # lines beside the rows: head, foot; a gap, a headline and a "more" for each table
_FEWEST = 3  # rows of brokers on a small terminal
_SHORTEST = 8  # characters of a name that are shown at least


def screen(topics: Json, brokers: Json, foot: str, width: int, height: int | None) -> RenderableType:
    """Return the screen from the two lists of the overview.

    ``width``: characters; long names are cut. ``height``: lines at most; None: all rows.
    """
    of_topics, of_brokers = _rooms(len(topics["rows"]), len(brokers["rows"]), height)
    parts: list[RenderableType] = [Text(_head(topics, brokers), no_wrap=True, overflow="ellipsis"), Text()]
    topic_rows = [_topic(row) for row in topics["rows"][:of_topics]]
    parts += [*_list(_TOPICS, topic_rows, width, topics["all"], "topic"), Text()]
    broker_rows = [_broker(row) for row in brokers["rows"][:of_brokers]]
    parts += _list(_BROKERS, broker_rows, width, brokers["all"], "broker")
    parts += [Text(foot, no_wrap=True, overflow="ellipsis", style="dim")] if foot else []
    return Group(*parts)


def _rooms(topics: int, brokers: int, height: int | None) -> tuple[int, int]:
    """Return how many rows each list gets: the brokers a third, and what the topics leave."""
    if height is None:
        return topics, brokers
    room = max(height - _AROUND, 2)
    of_brokers = min(brokers, max(_FEWEST, room // 3, room - topics), room - 1)
    return min(topics, room - of_brokers), of_brokers


def _head(topics: Json, brokers: Json) -> str:
    of_topics = _counted(topics["counts"], ("broken", "unknown", "kept"))
    of_brokers = _counted(brokers["counts"], ("live",))
    return (
        f"{topics['all']:,} {plural(topics['all'], 'topic')}: {of_topics}; "
        f"{brokers['all']:,} {plural(brokers['all'], 'broker')}: {of_brokers}"
    )


def _counted(counts: dict[str, int], always: Sequence[str]) -> str:
    """Return how many there are of each kind; those of ``always`` also if there is none."""
    kinds = [*always, *sorted(counts.keys() - set(always))]
    return ", ".join(f"{counts.get(kind, 0):,} {kind}" for kind in kinds)


def _list(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, of: int, noun: str
) -> Iterator[RenderableType]:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    others = [max(map(cell_len, cells)) + 1 for cells in zip(columns, *rows, strict=True)][1:]
    table.add_column(columns[0], no_wrap=True, max_width=max(_SHORTEST, width - 1 - sum(others)))
    for column in columns[1:]:
        table.add_column(column, justify="left" if column in _LEFT else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell, style=_SHOWN.get(cell, "")) for cell in row))
    yield table
    if len(rows) < of:
        yield Text(f"and {of - len(rows):,} more {plural(of - len(rows), noun)}", style="dim")


def _topic(row: Json) -> list[str]:
    return [
        row["name"],
        row["promise"],
        number(row["latency_ms"]),
        f"p{row['percentile']:g} {figure(row['slo_ms'])} ms",
        number(row["demand"]),
        number(row["rate"]),
        number(row["backlog"]),
        number(row["brokers"]),
    ]


def _broker(row: Json) -> list[str]:
    known = row["mcap"] and not row["mcap_assumed"]
    ago_s = row["last_sync_s_ago"]
    return [
        row["name"],
        row["state"],
        f"{row['allocated'] / row['mcap']:.0%}" if known else "-",
        number(row["mcap"]) if known else "-",
        number(row["topics"]),
        number(row["backlog"]),
        number(row["broken"]),
        "-" if ago_s is None else f"{figure(ago_s)} s ago",
    ]
