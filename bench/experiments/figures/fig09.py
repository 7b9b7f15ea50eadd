"""Fig. 9a, 9b: correlation. Max-Min (blind) against SRTM (every group spread) over group sizes; 1,000 publishers of
10 msg/s in batches of 10, members of a group at the same instants. Each on the fewest that do, or on the best."""

from __future__ import annotations

from collections.abc import Sequence

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row, parts_of
from bench.experiments.lab.layouts import MACHINE, attempts, fewest
from bench.experiments.lab.points import COLUMNS, buckets, keeps, of, panel, point
from bench.harness.results.verdict import Check
from bench.simulation.traffic import Fleet

PROCESSES = {"9a": "poisson", "9b": "periodic"}
GROUP_SIZES = (1, 5, 10, 15, 20, 25, 30)


def figure(effort: Effort) -> Figure:
    parts = effort.of(PROCESSES)
    fleets = [(part, size, fleet_of(process, size)) for part, process in parts.items() for size in GROUP_SIZES]
    rows = [row for part, size, fleet in fleets for row in rows_of(part, fleet, size, effort)]
    return Figure(
        rows=rows,
        panels=[panel(part, process, rows, "x", "publishers in a group") for part, process in parts.items()],
        checks=checks(rows),
        conditions=f"{buckets(rows)}; {MACHINE}",
    )


def fleet_of(process: str, group_size: int, noise_ns: int = 0) -> Fleet:
    return Fleet(count=1_000, process=process, batch=10, group_size=group_size, noise_ns=noise_ns)


def rows_of(part: str, fleet: Fleet, x: float, effort: Effort) -> list[Row]:
    """SRTM and Max-Min, each on the fewest brokers that do, or on the best."""
    effort.step(f"Fig. {part}, {x:g}")
    found = {
        name: [fewest(attempts(fleet, name, effort.seconds, seed), 1) for seed in effort.seeds()]
        for name in ("srtm", "maxmin")
    }
    return [{"part": part, "x": x, **point(fleet, name, runs)} for name, runs in found.items()]


def checks(rows: Sequence[Row]) -> list[Check]:
    return [
        check for part in parts_of(rows) for check in _checks_of(part, of(rows, part, "srtm"), of(rows, part, "maxmin"))
    ]


def _checks_of(part: str, srtm: Sequence[Row], blind: Sequence[Row]) -> list[Check]:
    kept = sum(map(keeps, srtm))
    ours, theirs = ([row["brokers"] for row in one] for one in (srtm, blind))
    worse = all(b["worst_p99_ms"] >= a["worst_p99_ms"] for a, b in zip(srtm[1:], blind[1:], strict=True))
    last = f"{blind[-1]['worst_p99_ms']:.3g} against {srtm[-1]['worst_p99_ms']:.3g} ms for groups of {srtm[-1]['x']}"
    forced = all(b <= a for a, b in zip(ours, theirs, strict=True)) and sum(theirs) < sum(ours)
    return [
        Check(f"{part}: group sizes for which SRTM keeps 1 ms", f"{kept}", f"{len(srtm)}", kept == len(srtm)),
        Check(f"{part}: brokers of SRTM", _listed(ours), "never fewer for larger groups", ours == sorted(ours)),
        Check(
            f"{part}: brokers of Max-Min against SRTM",
            f"{_listed(theirs)} against {_listed(ours)}",
            "fewer for some group sizes, more for none",
            forced,
        ),
        Check(f"{part}: p99 of Max-Min against SRTM", last, "never better", worse),
    ]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


EXPERIMENT = Experiment(
    name="fig09",
    title="Correlation: Max-Min against SRTM",
    claim="SRTM keeps the SLO up to groups of 30; Max-Min is forced onto fewer brokers.",
    columns={"figure": "part", "group": "x", **COLUMNS},
    run=figure,
    parts={f"fig0{part}": part for part in PROCESSES},
)
