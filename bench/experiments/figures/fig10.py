"""Fig. 10: as Fig. 9, and Max-Min on as many brokers as SRTM: against SRTM, since what is gained comes of the spreading
and not of brokers, and against what Max-Min does on the number that is best for it."""

from __future__ import annotations

from collections.abc import Sequence

from bench.experiments.figures.fig09 import GROUP_SIZES, PROCESSES, fleet_of
from bench.experiments.lab.figure import Effort, Experiment, Figure, Row, parts_of
from bench.experiments.lab.layouts import MACHINE, attempts, fewest, run
from bench.experiments.lab.points import AS_MANY, COLUMNS, buckets, of, panel, point
from bench.harness.results.verdict import Check
from bench.simulation.traffic import Fleet

PARTS = {"10 (as 9a)": "9a", "10 (as 9b)": "9b"}


def figure(effort: Effort) -> Figure:
    fleets = [(part, size, fleet_of(PROCESSES[like], size)) for part, like in PARTS.items() for size in GROUP_SIZES]
    rows = [row for part, size, fleet in fleets for row in _rows(part, fleet, size, effort)]
    return Figure(
        rows=rows,
        panels=[panel(part, PROCESSES[like], rows, "x", "publishers in a group") for part, like in PARTS.items()],
        checks=checks(rows),
        conditions=f"{buckets(rows)}; {MACHINE}",
    )


def _rows(part: str, fleet: Fleet, size: int, effort: Effort) -> list[Row]:
    effort.step(f"Fig. {part}, {size}")
    seeds = list(effort.seeds())
    srtm = [fewest(attempts(fleet, "srtm", effort.seconds, seed), 1) for seed in seeds]
    as_many = [run(fleet, "maxmin", one.k, effort.seconds, seed) for seed, one in zip(seeds, srtm, strict=True)]
    own = [fewest(attempts(fleet, "maxmin", effort.seconds, seed), 1) for seed in seeds]
    found = {"srtm": srtm, AS_MANY: as_many, "maxmin": own}
    return [{"part": part, "x": size, **point(fleet, name, runs)} for name, runs in found.items()]


def checks(rows: Sequence[Row]) -> list[Check]:
    """A group of 1 is nobody's to spread."""
    found = []
    for part in parts_of(rows):
        srtm, as_many, own = (of(rows, part, one)[1:] for one in ("srtm", AS_MANY, "maxmin"))
        found.append(_no_better(f"{part}: Max-Min no better than SRTM on as many", as_many, srtm))
        another = [(a, b) for a, b in zip(as_many, own, strict=True) if a["brokers"] != b["brokers"]]
        what = f"{part}: Max-Min no better than on its own number, where that is another"
        found.append(_no_better(what, [a for a, _ in another], [b for _, b in another]))
    return found


def _no_better(what: str, rows: Sequence[Row], than: Sequence[Row]) -> Check:
    """For all group sizes, of which there must be some."""
    worse = sum(a["worst_p99_ms"] >= b["worst_p99_ms"] for a, b in zip(rows, than, strict=True))
    return Check(what, f"{worse} of {len(rows)} group sizes", "all", worse == len(rows) > 0)


EXPERIMENT = Experiment(
    name="fig10",
    title="Correlation: Max-Min against SRTM on as many brokers",
    claim="On as many brokers as SRTM, Max-Min is worse than SRTM, and than on its own number of brokers: its groups "
    "stay together and its buckets are small.",
    columns={"figure": "part", "group": "x", **COLUMNS},
    run=figure,
)
