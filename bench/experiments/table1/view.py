"""Table 1 for people and documents: the caption, the table with the paper's own numbers, a picture, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.experiments.table1.rows import (
    BATCH,
    PAPER,
    PAPER_ROUNDS,
    PAPER_S,
    PART,
    PERCENTILE,
    PUBLISHERS,
    RATE_PER_S,
    SEQUENTIAL,
    Row,
    Settings,
    burst_of,
    line_of,
    verdicts,
)
from bench.harness.results.page import Page, Picture, Table
from bench.harness.results.panels import Panel, Series, draw
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import hand_over
from bench.harness.results.results import Results
from bench.harness.results.sources import PRODUCT, SIMULATED
from bench.harness.results.verdict import Verdict
from srtm.text import plural

CLAIM = (
    "A topic whose groups fire together is fitted on no more brokers than the paper printed, in a twentieth of the "
    "time. It keeps its promise then."
)
CONDITIONS = (
    "{publishers:,} publishers of {each:g} msg/s in batches of {batch}, groups firing together in turn; p{percentile} "
    "<= {promise_ms:g} ms, {brokers} {emulated} with a service time of {service_us:g} us; p{percentile} {measured} "
    "over {after_s:g} s afterwards.{also} r = {rate:,.0f}; b as in section 6 for periodic groups of any phase. As they "
    "fire in turn, {batch} messages for each member of a group would do for one bucket. They would delay whatever more "
    "of a group is on a broker than of the rate."
)
COLUMNS = (
    "k: rounds with so many brokers, and what they measured together, {rounds_s:g} s each in the paper's way. Left: "
    "what the brokers in use could still take of such publishers, by their service time."
)
REALTIME = " Reactors and generator before all ordinary work of the machine (`--realtime`)."
HEADER = ("groups of", "b", "", "time, s", "at most, s", "brokers", "p99 afterwards, ms", "left, msg/s", "")
_ROUNDS_AT = 3  # where the columns of k come in


def conditions_of(settings: Settings, measured: str) -> str:
    """``measured``: where p99s are taken, in words."""
    emulated = "simulated brokers" if settings.get("virtual") else "brokers in the laboratory (`--lab-service-time`)"
    facts = {"publishers": PUBLISHERS, "each": RATE_PER_S, "batch": BATCH, "percentile": PERCENTILE}
    also = REALTIME if settings["realtime"] else ""
    return CONDITIONS.format(**facts, **settings, emulated=emulated, measured=measured, also=also)


def table(rows: Sequence[Row]) -> Table:
    """For each group size what the paper printed, then a line for each way that was taken."""
    groups = list(dict.fromkeys(row.group for row in rows))
    most = max([len(PAPER_ROUNDS[group]) for group in groups] + [k for row in rows for k in row.by_k()])
    judged = {verdict.name: verdict for verdict in verdicts(rows)}
    lines = []
    for group in groups:
        here = [_cells(row, most, judged.get(row.name)) for row in rows if row.group == group]
        lines += [[f"{group}", f"{burst_of(group):,.0f}", *_printed(group, most)], *(["", "", *one] for one in here)]
    ks = [f"k = {k}" for k in range(1, most + 1)]
    return Table(header=[*HEADER[:_ROUNDS_AT], *ks, *HEADER[_ROUNDS_AT:]], rows=lines)


def _printed(group: int, most: int) -> list[str]:
    rounds = [f"{number}" for number in PAPER_ROUNDS[group]]
    empty = [""] * (most - len(rounds))
    return ["the paper", *rounds, *empty, f"{PAPER_S[group]:,}", "", f"{len(rounds)}", "", "", ""]


def _cells(row: Row, most: int, verdict: Verdict | None) -> list[str]:
    by_k = row.by_k()
    rounds = [f"{by_k[k][0]} ({by_k[k][1]:,.3g} s)" if k in by_k else "" for k in range(1, most + 1)]
    limit = f"{PAPER_S[row.group] / PART:.3g}" if row.method == SEQUENTIAL else ""
    p99 = "nothing received" if row.worst_p99_ms is None else f"{row.worst_p99_ms:.3g}"
    return [_way(row), *rounds, _took(row), limit, f"{row.brokers}", p99, f"{row.left:,.0f}", _result(row, verdict)]


def _way(row: Row) -> str:
    if row.method == SEQUENTIAL:
        return "ours"
    return f"its way, {row.service_us:g} us" if row.aside else "its way here"


def _took(row: Row) -> str:
    took = "" if row.took_s is None else f"{row.took_s:,.1f}"
    if row.state != "fits":
        return f"{took} ({row.state})".strip()
    return took + (" (by the sample)" if row.method == SEQUENTIAL and not row.certain else "")


def _result(row: Row, verdict: Verdict | None) -> str:
    if row.reasons:
        return f"does not count: {'; '.join(row.reasons)}"
    return "" if verdict is None else "reached" if verdict.reached else "**fell short**"


def line(row: Row) -> str:
    """As soon as it is found."""
    result = _result(row, None if row.aside else verdicts([row])[0])
    took = "" if row.took_s is None else f", {row.took_s:,.1f} s ({PAPER_S[row.group]:,} s printed)"
    return f"{row.name}: {row.state} on {row.brokers} {plural(row.brokers, 'broker')}{took} {result}".strip()


def panels(rows: Sequence[Row]) -> list[Panel]:
    """Time by group size, the brokers beside it: those judged, a twentieth of the paper's, the paper's."""
    ways = {SEQUENTIAL: "ours", PAPER: "the paper's way here"}
    found = [series for method, label in ways.items() if (series := _series(rows, method, label)).x]
    sizes, printed = list(PAPER_S), list(PAPER_S.values())
    paper = [
        Series(label="a twentieth of the paper's", x=sizes, y=[took / PART for took in printed]),
        Series(label="the paper (Table 1)", x=sizes, y=printed, marks_only=True),
    ]
    title, x, y = "Time to fit; beside it the brokers", "publishers in a group", "time (s, log scale)"
    return [Panel(title=title, x_label=x, y_label=y, series=[*found, *paper], slo_ms=None)]


def _series(rows: Sequence[Row], method: str, label: str) -> Series:
    mine = [(row, row.took_s) for row in rows if row.method == method and not row.aside and row.took_s is not None]
    x, y, brokers = [row.group for row, _ in mine], [took for _, took in mine], [f"{row.brokers}" for row, _ in mine]
    return Series(label=label, x=x, y=y, notes=brokers)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """``name``: of the command and its files; ``started``: s since 1970."""

    name: str
    conditions: str
    rows: Sequence[Row]
    settings: Settings
    seed: int
    started: float

    @property
    def page(self) -> Page:
        virtual = bool(self.settings.get("virtual"))
        columns = COLUMNS.format(**self.settings)
        again = [f"{row.name} ({row.tries} times)" for row in self.rows if row.tries > 1]
        notes = [f"The time afterwards, which the machine had spoilt, was measured again: {', '.join(again)}."]
        return Page(
            title="Table 1 in virtual time" if virtual else "Table 1 on real brokers",
            claim=CLAIM,
            verdict=f"{self.line}.",
            body=[
                Picture(file=f"{self.name}.png", about="Time to fit, by group size"),
                self.conditions,
                columns,
                table(self.rows),
                *(notes if again else []),
            ],
            sources=["distributor", *SIMULATED] if virtual else [*PRODUCT, "bench/experiments/table1"],
            origin=Origin.here(self.started),
        )

    @property
    def line(self) -> str:
        return line_of(self.name, verdicts(self.rows))

    @property
    def results(self) -> Results:
        found = verdicts(self.rows)
        return Results.of(
            f"bench {self.name}",
            [row.flat() for row in self.rows],
            seed=self.seed,
            started=self.started,
            settings=dict(self.settings),
            reasons=[f"{row.name}: {reason}" for row in self.rows for reason in row.reasons],
            result=[
                {"name": one.name, "reached": one.reached, "line": one.line, "checks": one.checks} for one in found
            ],
        )


def show_and_write(shown: Shown, show: Callable[[str], None], json_file: str | None, document: Path | None) -> bool:
    """Shows what was found and writes what is asked for. Whether every row is reached."""
    page = shown.page
    show(f"\n{page.text}\n\n{page.verdict}")
    if document is not None:
        draw(document / f"{shown.name}.png", panels(shown.rows), shown.conditions)
    hand_over(page, shown.results, name=shown.name, folder=document, json_file=json_file)
    return all(verdict.reached for verdict in verdicts(shown.rows))
