"""Fig. 7a-d: concentration. LB (all six brokers) against Conc (the fewest that keep the SLO, equal loads)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row, parts_of
from bench.experiments.lab.layouts import BROKERS, MACHINE, Kind, Result, attempts, by_rate, fewest, mcap, run
from bench.experiments.lab.points import COLUMNS, buckets, keeps, of, panel, point
from bench.harness.results.verdict import Check
from bench.simulation.traffic import Fleet

PARTS = {"7a": ("poisson", 1), "7b": ("poisson", 10), "7c": ("periodic", 1), "7d": ("periodic", 10)}
BY_BATCH = (("7a", "7b"), ("7c", "7d"))  # the same but for the batch, which is larger in the second
PUBLISHERS = (1_000, 2_000, 4_000, 6_000, 8_000, 10_000)


def figure(effort: Effort) -> Figure:
    parts = effort.of(PARTS)
    rows = [_row(part, fleet, strategy, effort) for part, fleet in fleets_of(parts) for strategy in ("lb", "conc")]
    return Figure(
        rows=rows,
        panels=[
            panel(part, f"{process}, batch {batch}", rows, "publishers", "publishers")
            for part, (process, batch) in parts.items()
        ],
        checks=checks(rows),
        conditions=f"{buckets(rows)}; {MACHINE}",
    )


def fleets_of(parts: Mapping[str, tuple[str, int]]) -> list[tuple[str, Fleet]]:
    """Of each part all, smallest first."""
    return [
        (part, Fleet(count=count, process=process, batch=batch))
        for part, (process, batch) in parts.items()
        for count in PUBLISHERS
    ]


def _row(part: str, fleet: Fleet, strategy: str, effort: Effort) -> Row:
    effort.step(f"Fig. {part}, {fleet.count:,} publishers, {strategy}")
    found = [_result(fleet, strategy, effort.seconds, seed) for seed in effort.seeds()]
    return {"part": part, "publishers": fleet.count, **point(fleet, strategy, found)}


def _result(fleet: Fleet, strategy: str, seconds: float, seed: int) -> Result:
    if strategy == "lb":
        return run(fleet, strategy, BROKERS, seconds, seed)
    least = by_rate(fleet.load, [mcap(Kind.of(fleet))] * BROKERS)
    return fewest(attempts(fleet, strategy, seconds, seed), least)


def checks(rows: Sequence[Row]) -> list[Check]:
    parts = parts_of(rows)
    each = [check for part in parts for check in _checks_of(part, of(rows, part, "lb"), of(rows, part, "conc"))]
    pairs = [pair for pair in BY_BATCH if set(pair) <= set(parts)]
    return [*each, *(_rises(pair, *(of(rows, part, "lb") for part in pair)) for pair in pairs)]


def _checks_of(part: str, lb: Sequence[Row], conc: Sequence[Row]) -> list[Check]:
    kept, missed = sum(map(keeps, conc)), sum(not keeps(row) for row in lb)
    by_rate_ms = [row["worst_p99_ms"] for row in lb]
    listed = " > ".join(f"{one:.3g}" for one in by_rate_ms) + " ms"
    what = f"{part}: LB from {lb[0]['publishers']:,} to {lb[-1]['publishers']:,} publishers"
    return [
        Check(f"{part}: points where Conc keeps 1 ms", f"{kept}", f"{len(conc)}", kept == len(conc)),
        Check(f"{part}: points where LB does not", f"{missed}", f"{len(lb)}", missed == len(lb)),
        Check(what, listed, "falling at every point", all(b < a for a, b in pairwise(by_rate_ms))),
    ]


def _rises(pair: tuple[str, str], small: Sequence[Row], large: Sequence[Row]) -> Check:
    times = [b["worst_p99_ms"] / a["worst_p99_ms"] for a, b in zip(small, large, strict=True)]
    return Check(
        f"{' to '.join(pair)}: LB from batch {small[0]['batch']} to {large[0]['batch']}",
        f"{min(times):.3g} to {max(times):.3g} times",
        "rising at every point",
        min(times) > 1,
    )


EXPERIMENT = Experiment(
    name="fig07",
    title="Concentration: LB against Conc",
    claim="Conc always keeps the SLO, LB never; LB's penalty falls with the rate and rises with the batch.",
    columns={"figure": "part", "publishers": "publishers", **COLUMNS},
    run=figure,
    parts={f"fig0{part}": part for part in PARTS},
)
