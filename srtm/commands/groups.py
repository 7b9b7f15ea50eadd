"""``srtm topic groups``: finds publishers of a topic that fire together, and compares them with the declared groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from srtm.client.distributor import DistributorClient, Json
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, show, table
from srtm.console.recordings import recorded
from srtm.errors import BadInput
from srtm.text import figure, plural

if TYPE_CHECKING:
    from srtm.analysis.arrivals import Arrivals
    from srtm.analysis.correlation import Found
    from srtm.analysis.places import Places

_LONGEST_LIST = 40  # rows of a table for people


def groups(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    trace: Annotated[
        list[Path] | None,
        typer.Option("--trace", metavar="FILE", help="Recorded arrivals. Default: those that the brokers recorded."),
    ] = None,
    window_ms: Annotated[float, typer.Option(help="Publishers fire together within this time, ms.")] = 1.0,
    by_place: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Group by nearness instead: a CSV with id, latitude, longitude of each."),
    ] = None,
    within_km: Annotated[float, typer.Option(help="Mean distance within a group of --by-place, at most, km.")] = 2.0,
    apply: Annotated[bool, typer.Option("--apply", help="Declare the groups found; few publishers move.")] = False,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Find publishers that fire together.

    Recorded arrivals are tested against chance, and the groups found are compared with the declared groups. With
    --by-place publishers that stand close together are taken to fire together.
    """
    if by_place is not None:
        if trace:
            raise BadInput("by-place", str(by_place), "goes without --trace: groups are either by place or by time")
        _show_places(name, by_place, within_km, apply, distributor, token, json_file)
        return
    if not 1e-6 <= window_ms <= 60_000:  # false for NaN too
        raise BadInput("window-ms", window_ms, "must be from 0.000001 to 60,000 ms")
    found, changes, notes = ask_distributor(
        distributor, token, partial(_groups, name, trace or [], round(window_ms * 1e6), apply, token)
    )
    result = {**asdict(found), "warnings": [*notes, *found.warnings], "changes": changes, "applied": apply}
    show("topic groups", result, json_file, partial(_show, found, changes, notes, apply))


def _show_places(
    name: str,
    file: Path,
    within_km: float,
    apply: bool,
    distributor: list[str] | None,
    token: str | None,
    json_file: str | None,
) -> None:
    from srtm.analysis.places import read_places

    if not 1e-6 <= within_km <= 20_000:  # false for NaN too
        raise BadInput("within-km", within_km, "must be from 0.000001 to 20,000 km")
    places = read_places(_text(file), "by-place")
    ask = partial(_near, name, places, within_km, apply)
    result = ask_distributor(distributor, token, ask)
    show("topic groups", result, json_file, partial(_show_near, result))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput("by-place", str(file), f"must be a file that can be read ({error.strerror})") from error
    except UnicodeDecodeError:
        raise BadInput("by-place", str(file), "must be UTF-8") from None


async def _near(name: str, places: Places, within_km: float, apply: bool, client: DistributorClient) -> Json:
    from srtm.analysis.correlation import renamed
    from srtm.analysis.places import place_groups

    fleet = await client.publishers(name)
    declared = dict(zip(fleet["ids"], fleet["groups"], strict=True))
    found = place_groups(places, declared, within_km)
    changes = renamed(found, declared, dict.fromkeys(places.keys() & declared.keys(), ""), fresh="place")
    notes: list[str] = []
    if apply and changes:
        changes = await _declare(client, name, changes, declared, notes)
    named = declared | changes
    return {
        "within_km": within_km,
        "groups": [{"name": named[group.members[0]], "members": group.members} for group in found],
        "without_place": [publisher for publisher in declared if publisher not in places],
        "not_of_the_topic": [publisher for publisher in places if publisher not in declared],
        "warnings": notes,
        "changes": changes,
        "applied": apply,
    }


def _show_near(result: Json, console: Console) -> None:
    members = sum(len(group["members"]) for group in result["groups"])
    missing, strange = len(result["without_place"]), len(result["not_of_the_topic"])
    console.print(
        f"{members:,} {plural(members, 'publisher')} in {len(result['groups']):,} "
        f"{plural(len(result['groups']), 'group')} within {figure(result['within_km'], 6)} km"
    )
    notes = list(result["warnings"])
    notes += [f"{missing:,} {plural(missing, 'publisher')} not in the file: left as declared"] if missing else []
    notes += [f"{strange:,} {plural(strange, 'line')} of the file not of this topic: ignored"] if strange else []
    for note in notes:
        console.print(f"warning: {note}", soft_wrap=True)
    largest = sorted(result["groups"], key=lambda group: -len(group["members"]))[:_LONGEST_LIST]
    if largest:
        rows = [[group["name"], len(group["members"]), _some(group["members"])] for group in largest]
        console.print(table("", ["group", "members", "publishers"], rows, left=3))
    _show_changes(result["changes"], result["applied"], console)


def _some(members: Sequence[str], most: int = 3) -> str:
    return ", ".join(members[:most]) + (f" and {len(members) - most:,} more" if len(members) > most else "")


def _show_changes(changes: dict[str, str], applied: bool, console: Console) -> None:
    if changes:
        done = "declared anew" if applied else "would be declared anew with --apply"
        console.print(f"{len(changes):,} {plural(len(changes), 'publisher')} {done}")


def _named(arrivals: Arrivals, file: Path) -> Arrivals:
    """Return ``arrivals``. Raises BadInput if they name no publishers."""
    if len(arrivals) and not any(arrivals.names):
        raise BadInput("trace", str(file), "must name the publisher of each arrival: a column publisher")
    return arrivals


async def _groups(
    name: str, files: list[Path], window_ns: int, apply: bool, token: str | None, client: DistributorClient
) -> tuple[Found, dict[str, str], list[str]]:
    from srtm.analysis.arrivals import merged, read_arrivals
    from srtm.analysis.correlation import find_groups, regrouped, unseen

    fleet = await client.publishers(name)
    declared = dict(zip(fleet["ids"], fleet["groups"], strict=True))
    notes: list[str] = []
    traces = [_named(read_arrivals(file), file) for file in files]
    if not traces:
        traces = await recorded(client, await client.topic(name), token, notes, _arrivals, len)
        if not sum(map(len, traces)):
            notes.append("nothing was recorded: only the declared groups are shown")
            return unseen(declared, window_ns), {}, notes
    found = find_groups(merged(traces), declared, window_ns)
    changes = regrouped(found, declared)
    if apply and changes:
        changes = await _declare(client, name, changes, declared, notes)
    return found, changes, notes


async def _declare(
    client: DistributorClient, name: str, changes: dict[str, str], judged: dict[str, str], notes: list[str]
) -> dict[str, str]:
    """Declare the observed groups of publishers that did not change while the traces were fetched."""
    fleet = await client.publishers(name)
    now = dict(zip(fleet["ids"], fleet["groups"], strict=True))
    still = {
        publisher: group
        for publisher, group in changes.items()
        if publisher in now and now[publisher] == judged[publisher]
    }
    if len(still) < len(changes):
        notes.append(
            f"{len(changes) - len(still)} publishers were changed or removed meanwhile and are left as they are"
        )
    if still:
        await client.change_publishers(name, add=_declarations(fleet, still), remove=list(still))
    return still


def _arrivals(body: bytes, place: Json) -> Arrivals:
    from srtm.analysis.arrivals import trace_arrivals

    return trace_arrivals(body, place["broker"])


def _declarations(fleet: Json, changes: dict[str, str]) -> list[Json]:
    names = {"ids": "id", "rates": "rate", "processes": "process", "batches": "batch"}
    names |= {"latitudes": "latitude", "longitudes": "longitude"} if "latitudes" in fleet else {}
    rows = (dict(zip(names.values(), row, strict=True)) for row in zip(*(fleet[name] for name in names), strict=True))
    return [{**row, "correlation_group": changes[row["id"]]} for row in rows if row["id"] in changes]


def _show(found: Found, changes: dict[str, str], notes: list[str], applied: bool, console: Console) -> None:
    console.print(
        f"{found.publishers:,} {plural(found.publishers, 'publisher')} fired {found.firings:,} times in "
        f"{found.seconds:,.0f} s; together: within {figure(found.window_ns / 1e6, 6)} ms"
    )
    verdicts = Counter(group.verdict for group in found.declared)
    console.print(
        f"declared groups: {len(found.declared)} ({_counts(verdicts)}); observed groups: {len(found.observed)}, "
        f"{sum(not group.is_declared for group in found.observed)} of them not declared so"
    )
    for warning in [*notes, *found.warnings][:_LONGEST_LIST]:
        console.print(f"warning: {warning}", soft_wrap=True)
    worst = sorted(found.declared, key=lambda group: group.together)[:_LONGEST_LIST]
    rows: list[list[Any]] = [
        [group.name, group.verdict, group.members, group.seen, group.together, group.chance] for group in worst
    ]
    if rows:
        console.print(
            table("", ["declared group", "verdict", "members", "seen", "together", "by chance"], rows, left=2)
        )
    _show_changes(changes, applied, console)


def _counts(verdicts: Counter[Any]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()) or "none"
