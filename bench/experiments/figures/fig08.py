"""Fig. 8a-d: max-min. Conc (equal totals) against Max-Min (equal parts of the topic) where brokers have load already.

The load that is there is Poisson in batches of 10; its publishers count as connections, its messages share the
servers. How many brokers it takes is told by the rates first and then measured (section 4.2): on each number, first
with nobody above what a broker is told to keep, then without that bound, for rates do not know that the load which is
there comes in batches. The paper says of publishers "that generate bursts of 10 messages" that Conc is better at 10,000
than at 8,000.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from bench.experiments.figures.fig07 import PUBLISHERS, fleets_of
from bench.experiments.lab.figure import Effort, Experiment, Figure, Row, parts_of
from bench.experiments.lab.layouts import (
    MACHINE,
    MCAP_WITHIN,
    SLO_NS,
    Kind,
    Result,
    by_rate,
    first_kept,
    mcap,
    ms,
    placed,
    run,
)
from bench.experiments.lab.points import COLUMNS, LABELS, buckets, of, panel, point
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check
from bench.simulation.brokers import Tail
from bench.simulation.traffic import Fleet

PARTS = {"8a": ("poisson", 1), "8b": ("poisson", 10), "8c": ("periodic", 1), "8d": ("periodic", 10)}
BEFORE = tuple(Fleet(count=load // 10, batch=10) for load in (10_000, 40_000, 50_000, 60_000, 70_000, 80_000))
THIRD = 2  # the broker of which the paper prints what 8,000 publishers find
PAPER_8K_MS = {"conc": 1.50, "maxmin": 0.87}


def figure(effort: Effort) -> Figure:
    parts = effort.of(PARTS)
    rows = [_row(part, fleet, strategy, effort) for part, fleet in fleets_of(parts) for strategy in ("conc", "maxmin")]
    loads = ", ".join(f"{other.load:,.0f}" for other in BEFORE)
    return Figure(
        rows=rows,
        panels=[panel_of(part, rows) for part in parts],
        checks=checks(rows),
        conditions=f"{loads} msg/s are there; {buckets(rows)}; {MACHINE}",
    )


def _row(part: str, fleet: Fleet, strategy: str, effort: Effort) -> Row:
    effort.step(f"Fig. {part}, {fleet.count:,} publishers, {strategy}")
    found = [first_kept(attempts(fleet, strategy, effort.seconds, seed)) for seed in effort.seeds()]
    last = [Tail.of([one.used[-1]]) for one in found]
    third = [Tail.of([one.parts[THIRD]]).p99_ns for one in found if len(one.loads) > THIRD and one.loads[THIRD]]
    return {
        "part": part,
        "publishers": fleet.count,
        **point(fleet, strategy, found, BEFORE),
        "last_p99_ms": statistics.fmean(ms(tail.p99_ns) for tail in last),
        "last_access_p99_ms": statistics.fmean(ms(tail.access_p99_ns) for tail in last),
        "last_part": statistics.fmean(tail.count / one.pooled.count for tail, one in zip(last, found, strict=True)),
        "third_p99_ms": statistics.fmean(map(ms, third)) if third else None,
    }


def attempts(fleet: Fleet, strategy: str, seconds: float, seed: int) -> Iterator[Callable[[], Result]]:
    """Every layout once, of those alike that on the fewest brokers. What rates are told to lack must be more than they
    are known to."""
    most = mcap(Kind.of(fleet), BEFORE[0])
    loads = [other.load for other in BEFORE]
    least = by_rate(fleet.load / MCAP_WITHIN, [room for load in loads if (room := most - load) > 0])
    tried = set()
    for k in range(least, len(BEFORE) + 1):
        for limit in (most, math.inf):
            layout = placed(fleet, strategy, k, seed, loads, limit).tobytes()
            if layout not in tried:
                tried.add(layout)
                yield partial(run, fleet, strategy, k, seconds, seed, before=BEFORE, most=limit)


def checks(rows: Sequence[Row]) -> list[Check]:
    by = {(row["part"], row["publishers"], row["strategy"]): row for row in rows}
    alike = all(
        by[part, count, "conc"]["brokers"] == 1 == by[part, count, "maxmin"]["brokers"]
        for part in parts_of(rows)
        for count in PUBLISHERS
        if count <= 4_000
    )
    found = [Check("up to 4,000 publishers: brokers", "1" if alike else "more", "1, so both are the same", alike)]
    if "8a" in parts_of(rows):
        found += _third_broker(*(by["8a", 8_000, strategy] for strategy in PAPER_8K_MS))
    for part in (part for part in parts_of(rows) if PARTS[part][1] > 1):
        eight, ten = (by[part, count, "conc"]["last_p99_ms"] for count in (8_000, 10_000))
        text = f"{ten:.3g} against {eight:.3g} ms"
        found.append(Check(f"{part}: Conc on its last broker, 10,000 against 8,000", text, "less", ten < eight))
    return found


def _third_broker(conc: Row, even: Row) -> list[Check]:
    """Broker 3 of both, where both use it."""
    brokers = conc["brokers"], even["brokers"]
    p99 = conc["third_p99_ms"], even["third_p99_ms"]
    used = None not in p99
    return [
        Check("8a: brokers for 8,000 publishers", "{} and {}".format(*brokers), "3 and 3", brokers == (3, 3)),
        Check(
            "8a: p99 on broker 3, Conc against Max-Min",
            "{:.3g} against {:.3g} ms".format(*p99) if used else "not used by both",
            "the SLO broken against kept (paper: 1.50 against 0.87)",
            used and p99[1] <= ms(SLO_NS) < p99[0],
        ),
    ]


def panel_of(part: str, rows: Sequence[Row]) -> Panel:
    """The paper's two values beside ours of the same broker."""
    process, batch = PARTS[part]
    shown = panel(part, f"{process}, batch {batch}", rows, "publishers", "publishers")
    if part != "8a":
        return shown
    third = []
    for strategy in PAPER_8K_MS:
        mine = [row for row in of(rows, part, strategy) if row["third_p99_ms"] is not None]
        x, y = [row["publishers"] for row in mine], [row["third_p99_ms"] for row in mine]
        third += [Series(label=f"{LABELS[strategy]}, broker 3", x=x, y=y)] if mine else []
    printed = Series(label="paper, broker 3", x=[8_000, 8_000], y=list(PAPER_8K_MS.values()), marks_only=True)
    return replace(shown, series=[*shown.series, *third, printed])


EXPERIMENT = Experiment(
    name="fig08",
    title="Max-min: Conc against Max-Min beside existing load",
    claim=(
        "Alike up to 4,000 publishers; at 8,000 on brokers 1 to 3, 1.50 ms on broker 3 under Conc, 0.87 under Max-Min; "
        "in batches of 10, Conc better at 10,000 than at 8,000."
    ),
    columns={
        "figure": "part",
        "publishers": "publishers",
        **COLUMNS,
        "last broker's p99, ms": "last_p99_ms",
        "last broker's access p99, ms": "last_access_p99_ms",
        "last broker's part": "last_part",
        "broker 3's p99, ms": "third_p99_ms",
    },
    run=figure,
    parts={f"fig0{part}": part for part in PARTS},
)
