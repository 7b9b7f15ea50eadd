"""Fig. 7a-d: concentration. LB (all six brokers) against Conc (the fewest that keep the SLO, equal loads)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.experiments.figure import Effort, Experiment, Figure, Panel, Row, lines, parts_of
from bench.experiments.layouts import (
    BROKERS,
    MACHINE,
    PAPER,
    SLO_NS,
    Result,
    attempts,
    buckets,
    by_rate,
    envelope,
    fewest,
    mcap,
    ms,
    run,
)
from bench.traffic import Fleet
from bench.verdict import Check

PARTS = {"7a": ("poisson", 1), "7b": ("poisson", 10), "7c": ("periodic", 1), "7d": ("periodic", 10)}
PUBLISHERS = (1_000, 2_000, 4_000, 6_000, 8_000, 10_000)


def figure(effort: Effort) -> Figure:
    parts = effort.of(PARTS)
    fleets = [
        (part, Fleet(count=count, process=process, batch=batch))
        for part, (process, batch) in parts.items()
        for count in PUBLISHERS
    ]
    rows = [_row(part, fleet, strategy, effort) for part, fleet in fleets for strategy in ("lb", "conc")]
    return Figure(
        rows=rows,
        panels=[_panel(part, [row for row in rows if row["part"] == part]) for part in parts],
        checks=checks(rows),
        conditions=f"{buckets([fleet for _, fleet in fleets])}; {MACHINE}",
    )


def _row(part: str, fleet: Fleet, strategy: str, effort: Effort) -> Row:
    effort.step(f"Fig. {part}, {fleet.count:,} publishers, {strategy}")
    found = [_result(fleet, strategy, effort.seconds, seed) for seed in effort.seeds()]
    worst = [ms(one.worst.p99_ns) for one in found]
    return {
        "part": part,
        "process": fleet.process,
        "batch": fleet.batch,
        "publishers": fleet.count,
        "strategy": strategy,
        "brokers": statistics.mode(one.k for one in found),
        "worst_p99_ms": statistics.fmean(worst),
        "p99_deviation_ms": statistics.pstdev(worst),
        "p99_ms": statistics.fmean(ms(one.pooled.p99_ns) for one in found),
        "access_p99_ms": statistics.fmean(ms(one.pooled.access_p99_ns) for one in found),
        "residual": BROKERS * mcap(PAPER, fleet.process, fleet.batch) - fleet.load,
        "bucket": envelope(fleet).text,
    }


def _result(fleet: Fleet, strategy: str, seconds: float, seed: int) -> Result:
    if strategy == "lb":
        return run(fleet, strategy, BROKERS, seconds, seed)
    least = by_rate(fleet.load, [mcap(PAPER, fleet.process, fleet.batch)] * BROKERS)
    return fewest(attempts(fleet, strategy, seconds, seed), least)


def checks(rows: Sequence[Row]) -> list[Check]:
    found = []
    for part in parts_of(rows):
        lb, conc = ([row for row in rows if (row["part"], row["strategy"]) == (part, one)] for one in ("lb", "conc"))
        slo_ms = ms(SLO_NS)
        kept = sum(row["worst_p99_ms"] <= slo_ms for row in conc)
        missed = sum(row["worst_p99_ms"] > slo_ms for row in lb)
        found += [
            Check(f"{part}: points where Conc keeps 1 ms", f"{kept}", f"{len(conc)}", kept == len(conc)),
            Check(f"{part}: points where LB does not", f"{missed}", f"{len(lb)}", missed == len(lb)),
        ]
        falls = lb[-1]["worst_p99_ms"] < lb[0]["worst_p99_ms"]
        ends = f"{lb[0]['worst_p99_ms']:.3g} to {lb[-1]['worst_p99_ms']:.3g} ms"
        found.append(Check(f"{part}: LB from 1,000 to 10,000 publishers", ends, "falling", falls))
    return found


def _panel(part: str, rows: Sequence[Row]) -> Panel:
    process, batch = PARTS[part]
    return Panel(
        title=f"Fig. {part}: {process}, batch {batch}",
        x_label="publishers",
        y_label="worst broker's p99 (ms, log scale)",
        series=lines(rows, {"lb": "LB", "conc": "Conc"}, "publishers", "worst_p99_ms"),
    )


EXPERIMENT = Experiment(
    name="fig07",
    title="Concentration: LB against Conc",
    claim="Conc always keeps the SLO, LB never; LB's penalty falls with the rate and rises with the batch.",
    columns={
        "figure": "part",
        "publishers": "publishers",
        "placement": "strategy",
        "brokers": "brokers",
        "worst broker's p99, ms": "worst_p99_ms",
        "deviation, ms": "p99_deviation_ms",
        "p99 of all, ms": "p99_ms",
        "access p99, ms": "access_p99_ms",
        "capacity left, msg/s": "residual",
        "bucket": "bucket",
    },
    run=figure,
    parts={f"fig0{part}": part for part in PARTS},
)
