"""Fig. 11: imprecise correlation. Groups of 25 whose firings are spread evenly over 0 to 16 ms; else as in Fig. 9."""

from __future__ import annotations

from collections.abc import Sequence

from bench.experiments.figures.fig09 import fleet_of, rows_of
from bench.experiments.lab.figure import Effort, Experiment, Figure, Row, parts_of
from bench.experiments.lab.layouts import MACHINE
from bench.experiments.lab.points import COLUMNS, LABELS, buckets, of, panel
from bench.harness.results.verdict import Check

PROCESSES = {"11a": "poisson", "11b": "periodic"}
SPREAD_MS = (0, 1, 2, 4, 8, 16)
SMALL_MS = 4  # a few percent of the 100 ms between a publisher's messages
GROUP_SIZE = 25


def figure(effort: Effort) -> Figure:
    fleets = [
        (part, spread_ms, fleet_of(process, GROUP_SIZE, spread_ms * 1_000_000))
        for part, process in PROCESSES.items()
        for spread_ms in SPREAD_MS
    ]
    rows = [row for part, spread_ms, fleet in fleets for row in rows_of(part, fleet, spread_ms, effort)]
    return Figure(
        rows=rows,
        panels=[
            panel(part, process, rows, "x", "a group's firings are spread over (ms)")
            for part, process in PROCESSES.items()
        ],
        checks=checks(rows),
        conditions=f"{buckets(rows)}; {MACHINE}",
    )


def checks(rows: Sequence[Row]) -> list[Check]:
    found = []
    for part in parts_of(rows):
        srtm, blind = of(rows, part, "srtm"), of(rows, part, "maxmin")
        small = [(a, b) for a, b in zip(srtm, blind, strict=True) if a["x"] <= SMALL_MS]
        kept = sum(b["worst_p99_ms"] > a["worst_p99_ms"] for a, b in small)
        what = f"{part}: SRTM better than Max-Min up to {SMALL_MS} ms"
        found.append(Check(what, f"{kept} of {len(small)}", "all", kept == len(small)))
        for line in (srtm, blind):
            found += _falls(part, line[0], line[-1])
    return found


def _falls(part: str, first: Row, last: Row) -> list[Check]:
    """Latency, and brokers, from no spread to the widest."""
    label, ends = LABELS[first["strategy"]], f"{first['x']} against {last['x']} ms"
    before, after = first["worst_p99_ms"], last["worst_p99_ms"]
    more, fewer = first["brokers"], last["brokers"]
    return [
        Check(f"{part}: p99 of {label}, {ends}", f"{before:.3g} and {after:.3g} ms", "less", after < before),
        Check(f"{part}: brokers of {label}, {ends}", f"{more} and {fewer}", "fewer", fewer < more),
    ]


EXPERIMENT = Experiment(
    name="fig11",
    title="Imprecise correlation: groups of 25, spread over an interval",
    claim="The gain stays at noise of a few percent of the interval; latency and brokers both fall as it grows.",
    columns={"figure": "part", "spread, ms": "x", **COLUMNS},
    run=figure,
)
