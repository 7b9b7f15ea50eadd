"""Fig. 10: as Fig. 9, and Max-Min on as many brokers as SRTM: what is gained comes of the spreading, not of brokers."""

from __future__ import annotations

from collections.abc import Sequence

from bench.experiments.fig09 import COLUMNS, GROUP_SIZES, PROCESSES, fleet_of, of, row
from bench.experiments.figure import Effort, Experiment, Figure, Panel, Row, lines, parts_of
from bench.experiments.layouts import MACHINE, attempts, buckets, fewest, run
from bench.verdict import Check

PARTS = {"10 (as 9a)": "9a", "10 (as 9b)": "9b"}


def figure(effort: Effort) -> Figure:
    fleets = [fleet_of(PROCESSES[as_part], size) for as_part in PARTS.values() for size in GROUP_SIZES]
    rows = [
        one
        for part, as_part in PARTS.items()
        for size in GROUP_SIZES
        for one in _rows(part, PROCESSES[as_part], size, effort)
    ]
    return Figure(
        rows=rows,
        panels=[_panel(part, [one for one in rows if one["part"] == part]) for part in PARTS],
        checks=checks(rows),
        conditions=f"{buckets(fleets)}; {MACHINE}",
    )


def _rows(part: str, process: str, size: int, effort: Effort) -> list[Row]:
    effort.step(f"Fig. {part}, {size}")
    fleet, seeds = fleet_of(process, size), list(effort.seeds())
    srtm = [fewest(attempts(fleet, "srtm", effort.seconds, seed), 1) for seed in seeds]
    forced = [run(fleet, "maxmin", one.k, effort.seconds, seed) for seed, one in zip(seeds, srtm, strict=True)]
    return [row(part, fleet, size, name, found) for name, found in (("srtm", srtm), ("maxmin", forced))]


def checks(rows: Sequence[Row]) -> list[Check]:
    """A group of 1 is nobody's to spread."""
    found = []
    for part in parts_of(rows):
        srtm, forced = (of(rows, part, one)[1:] for one in ("srtm", "maxmin"))
        worse = sum(b["worst_p99_ms"] >= a["worst_p99_ms"] for a, b in zip(srtm, forced, strict=True))
        found.append(
            Check(f"{part}: group sizes for which Max-Min is no better", f"{worse}", f"{len(srtm)}", worse == len(srtm))
        )
    return found


def _panel(part: str, rows: Sequence[Row]) -> Panel:
    return Panel(
        title=f"Fig. {part}: {PROCESSES[PARTS[part]]}",
        x_label="publishers in a group",
        y_label="worst broker's p99 (ms, log scale)",
        series=lines(rows, {"maxmin": "Max-Min, brokers of SRTM", "srtm": "SRTM"}, "x", "worst_p99_ms"),
    )


EXPERIMENT = Experiment(
    name="fig10",
    title="Correlation: Max-Min against SRTM on as many brokers",
    claim="On as many brokers as SRTM, Max-Min is worse: its groups stay together, and its buckets are small.",
    columns={"figure": "part", "group": "x", **COLUMNS},
    run=figure,
)
