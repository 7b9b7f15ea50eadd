"""Fig. 6a, 6b: the DRL penalty. Independent Poisson publishers of 10 msg/s over 1 to 6 idle brokers, batch 1."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row, parts_of
from bench.experiments.lab.layouts import BROKERS, MACHINE, Result, ms, residual, run
from bench.experiments.lab.points import bucket_of, buckets
from bench.experiments.lab.theory import eq1_ms
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check, within
from bench.simulation.traffic import Fleet

FLEETS = {"6a": Fleet(count=1_000), "6b": Fleet(count=6_000)}
PAPER_6A_P99_MS = 14.7  # end to end at k = 6
THEORY_6A_ACCESS_MS = 11.6
THEORY_6B_ACCESS_MS = {2: 0.38, 3: 0.77, 4: 1.16, 5: 1.55, 6: 1.93}
_CLOSE = 0.15


def figure(effort: Effort) -> Figure:
    fleets = effort.of(FLEETS)
    rows = [_row(part, fleet, k, effort) for part, fleet in fleets.items() for k in range(1, BROKERS + 1)]
    return Figure(
        rows=rows,
        panels=[_panel(part, [row for row in rows if row["part"] == part]) for part in fleets],
        checks=checks(rows),
        conditions="; ".join(f"{part}: {buckets([row for row in rows if row['part'] == part])}" for part in fleets)
        + f"; {MACHINE}",
    )


def _row(part: str, fleet: Fleet, k: int, effort: Effort) -> Row:
    effort.step(f"Fig. {part}, {k} of {BROKERS} brokers")
    found = [run(fleet, "lb", k, effort.seconds, seed) for seed in effort.seeds()]
    return {
        "part": part,
        "publishers": fleet.count,
        "brokers": k,
        **{f"{name}_ms": _mean(found, f"{name}_ns") for name in ("p50", "p95", "p99", "access_p99", "processing_p99")},
        "p99_deviation_ms": statistics.pstdev(ms(one.pooled.p99_ns) for one in found),
        "access_mean_ms": statistics.fmean(ms(one.pooled.access_mean_ns) for one in found),
        "theory_mean_ms": statistics.fmean(eq1_ms(fleet, one.bucket, k) for one in found),
        "residual": residual(fleet, "lb", found[0].loads),
        **bucket_of(found),
    }


def _mean(found: Sequence[Result], name: str) -> float:
    return statistics.fmean(ms(getattr(one.pooled, name)) for one in found)


def checks(rows: Sequence[Row]) -> list[Check]:
    judges = {"6a": _low, "6b": _high}
    return [check for part in parts_of(rows) for check in judges[part]([row for row in rows if row["part"] == part])]


def _low(rows: Sequence[Row]) -> list[Check]:
    p99 = [row["p99_ms"] for row in rows]
    return [
        Check("6a: p99 by k", " < ".join(f"{one:.3g}" for one in p99) + " ms", "growing", p99 == sorted(p99)),
        within("6a: p99 at k = 6, end to end", rows[-1]["p99_ms"], PAPER_6A_P99_MS, _CLOSE, "ms"),
        within("6a: access p99 at k = 6", rows[-1]["access_p99_ms"], THEORY_6A_ACCESS_MS, _CLOSE, "ms"),
    ]


def _high(rows: Sequence[Row]) -> list[Check]:
    best = min(rows, key=lambda row: row["p99_ms"])["brokers"]
    return [
        Check("6b: best k", f"{best}", "2", best == 2),
        *(
            within(f"6b: access p99 at k = {row['brokers']}", row["access_p99_ms"], expected, _CLOSE, "ms")
            for row in rows
            if (expected := THEORY_6B_ACCESS_MS.get(row["brokers"])) is not None
        ),
    ]


def _panel(part: str, rows: Sequence[Row]) -> Panel:
    k = [row["brokers"] for row in rows]
    lines = [
        Series(label=label, x=k, y=[row[key] for row in rows])
        for label, key in (("p50", "p50_ms"), ("p95", "p95_ms"), ("p99", "p99_ms"), ("access p99", "access_p99_ms"))
    ]
    printed = {6: PAPER_6A_P99_MS} if part == "6a" else THEORY_6B_ACCESS_MS
    label = "paper: p99" if part == "6a" else "theory: access p99"
    marks = Series(label=label, x=list(printed), y=list(printed.values()), marks_only=True)
    title = f"Fig. {part}: {rows[0]['publishers']:,} publishers"
    return Panel(title=title, x_label="brokers", y_label="latency (ms, log scale)", series=[*lines, marks])


EXPERIMENT = Experiment(
    name="fig06",
    title="The DRL penalty: one topic over 1 to 6 brokers",
    claim="At low load p99 grows with the number of brokers (14.7 ms for 6); at high load two brokers are best.",
    columns={
        "figure": "part",
        "brokers": "brokers",
        "p50, ms": "p50_ms",
        "p95, ms": "p95_ms",
        "p99, ms": "p99_ms",
        "access p99, ms": "access_p99_ms",
        "processing p99, ms": "processing_p99_ms",
        "mean access, ms": "access_mean_ms",
        "Eq. (1), ms": "theory_mean_ms",
        "capacity left, msg/s": "residual",
        "bucket": "bucket",
    },
    run=figure,
    parts={f"fig0{part}": part for part in FLEETS},
)
