"""The rate limiters that others have, beside SRTM's, on the same arrivals: what waits or is dropped, what is let go
above the envelope, and what is said for it. In virtual time; what a decision of the central bucket takes was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from adaptor.observations import Envelope
from bench.data.sensors import read_detectors
from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.experiments.lab.layouts import envelope as paper_envelope
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from bench.harness.results.intervals import percentile_ms
from bench.harness.results.panels import Panel, Series
from bench.harness.results.sources import SIMULATED
from bench.harness.results.verdict import Check, none_of
from bench.simulation import demand_day as day
from bench.simulation import rate_limiters
from bench.simulation.broker_reports import under_mode
from bench.simulation.buckets import ONE_BUCKET, one_bucket
from bench.simulation.rate_limiters import Limited
from bench.simulation.shifting_traffic import Shift, arrivals_of
from bench.simulation.traffic import Fleet
from srtm.token_bucket.bucket import conforms_due
from srtm.token_bucket.exact_split import split_bucket
from srtm.token_bucket.replay import NEVER_NS
from srtm.topics.adaptation import Adaptation, Mode
from srtm.units import MICRO

BROKERS = 4
# Medians of a Lua script's decisions by Redis 7.0.15 on loopback, 2026-11-23: one at a time, and 200 in one write.
ROUND_TRIP_NS, DECISION_NS = 63_000, 4_000
FLEET = Fleet(count=1_000, rate=10.0, batch=10, group_size=10)
POLICING = ("even split", "flow proportional share", "global random drop")
OURS: tuple[Mode, ...] = ("static", "proportional", "fitted", "gdrl")
_AFTER_NS = 10 * SECOND_NS  # in which nothing comes any more and shares still move; what is said then is not counted


@dataclass(frozen=True, kw_only=True)
class Case:
    """Arrivals of each broker, ns, in order."""

    name: str
    arrivals: Sequence[Ints]
    declared: Sequence[float]  # msg/s of each broker's publishers, as the topic says
    envelope: Envelope
    ends_ns: int
    batch: int = 1
    flow_rate: float = 10.0  # msg/s of a publisher


def cases(effort: Effort) -> list[Case]:
    """Groups that fire together, spread by chance; half and half, then one to nine from a third on; a day."""
    ends_ns = round(effort.seconds * SECOND_NS)
    rng = np.random.default_rng([effort.seed, 0x11])
    placement = rng.permutation(np.arange(FLEET.count, dtype=np.int64) % BROKERS)
    bucket = paper_envelope(FLEET, effort.seconds, effort.seed)
    grouped = Case(
        name="groups, batches of 10",
        arrivals=FLEET.arrivals(placement, BROKERS, effort.seconds, rng),
        declared=[FLEET.load / BROKERS] * BROKERS,
        envelope=Envelope(rate_micro=bucket.rate_micro, burst_micro=bucket.burst_micro),
        ends_ns=ends_ns,
        batch=FLEET.batch,
    )
    shift = Shift(at_s=effort.seconds / 3, ends_s=effort.seconds)
    shifted = Case(
        name="50:50 to 10:90",
        arrivals=arrivals_of(shift, effort.seed),
        declared=[part * shift.load for part in shift.before],
        envelope=shift.envelope,
        ends_ns=ends_ns,
    )
    rates = day.demand(read_detectors(), BROKERS, day.HOURS, day.PEAK, effort.seed)
    wandering = Case(
        name="a day of shifting demand",
        arrivals=day.arrivals(rates, effort.seconds / day.HOURS, effort.seed),
        declared=rates.mean(axis=1).tolist(),
        envelope=shift.envelope,
        ends_ns=ends_ns,
    )
    return [grouped, shifted, wandering]


def figure(effort: Effort) -> Figure:
    rows = []
    for case in cases(effort):
        for name, limit in limiters_of(case, effort.seed).items():
            rows.append(row(case, name, limit()))
            effort.step(f"{case.name}, {name}: p99 {rows[-1]['p99_ms']:.3g} ms, dropped {rows[-1]['dropped_part']:.2%}")
    names = list(dict.fromkeys(one["case"] for one in rows))
    return Figure(
        rows=rows,
        panels=[_panel([one for one in rows if one["case"] == name], name) for name in names],
        checks=checks(rows),
        conditions=f"{BROKERS} brokers, 2 for 50:50; Redis: {ROUND_TRIP_NS / 1e3:.0f} us a round trip, "
        f"{DECISION_NS / 1e3:.1f} us a decision; estimation every {rate_limiters.INTERVAL_S:g} s, "
        f"smoothed by {rate_limiters.SMOOTHING:g}",
    )


def limiters_of(case: Case, seed: int) -> dict[str, Callable[[], Limited]]:
    """By name, what each does with the case."""
    came, envelope = case.arrivals, case.envelope
    return {
        "even split": partial(rate_limiters.even, came, envelope),
        "central Redis bucket": partial(rate_limiters.central, came, envelope, ROUND_TRIP_NS, DECISION_NS),
        "flow proportional share": partial(
            rate_limiters.flow_proportional, came, envelope, case.flow_rate, case.ends_ns
        ),
        "global random drop": partial(rate_limiters.random_drop, came, envelope, case.ends_ns, seed),
        **{mode: partial(ours, mode, case, seed) for mode in OURS},
        ONE_BUCKET: lambda: Limited(*one_bucket(came, envelope), 0, 0),
    }


def ours(mode: Mode, case: Case, seed: int) -> Limited:
    start = split_bucket(case.envelope.rate_micro, case.envelope.burst_micro, list(case.declared))
    given = case.arrivals, case.envelope, start, case.declared
    run = under_mode(mode, Adaptation(), *given, seed, case.batch)
    run.run(case.ends_ns)
    wire = run.messages
    lasts_ns = case.ends_ns + _AFTER_NS
    run.run(lasts_ns)
    arrival, due = run.gone(lasts_ns)
    goes = due < NEVER_NS
    return Limited(arrival[goes], due[goes], 0, wire, stuck=int((~goes).sum()))


def row(case: Case, name: str, found: Limited) -> Row:
    """``over``: messages above b + r dt in the worst interval, by the checker of ``srtm.token_bucket.bucket``."""
    violation = conforms_due(found.gone_ns.tolist(), case.envelope.rate_micro, case.envelope.burst_micro)
    delay_ns, all_messages = found.delay_ns, len(found.gone_ns) + found.dropped + found.stuck
    return {
        "case": case.name,
        "limiter": name,
        "polices": name in POLICING,
        "bucket": f"r = {case.envelope.rate_micro / MICRO:,.0f}, b = {case.envelope.burst_micro / MICRO:g}",
        "messages": all_messages,
        "dropped_part": found.dropped / all_messages,
        "mean_ms": float(delay_ns.mean()) / 1e6,
        "p99_ms": percentile_ms(delay_ns, 99),
        "stuck": found.stuck,
        "over": 0.0 if violation is None else violation.released - violation.allowed,
        "wire_per_s": found.wire * SECOND_NS / case.ends_ns,
    }


def checks(rows: Sequence[Row]) -> list[Check]:
    """What is claimed of ours: never above the envelope, everything goes, fitted delays no more than the modes that
    hear of less."""
    mine = [one for one in rows if one["limiter"] in OURS]
    over = max(one["over"] for one in mine)
    found = [
        Check("messages above the envelope, ours", f"{over:.3g}", "0", over == 0.0),
        none_of("messages that never go, ours", sum(one["stuck"] for one in mine)),
    ]
    for name in dict.fromkeys(one["case"] for one in rows):
        here = {one["limiter"]: one for one in rows if one["case"] == name}
        best = min((here["static"], here["proportional"]), key=lambda one: one["mean_ms"])
        fitted = here["fitted"]
        bound = f"at most {best['limiter']}'s {best['mean_ms']:.3g} ms"
        found.append(
            Check(
                f"{name}: mean delay, fitted",
                f"{fitted['mean_ms']:.3g} ms",
                bound,
                fitted["mean_ms"] <= best["mean_ms"],
            )
        )
        wire, redis_wire = fitted["wire_per_s"], here["central Redis bucket"]["wire_per_s"]
        found.append(
            Check(
                f"{name}: control messages, fitted",
                f"{wire:.3g}/s",
                f"a hundredth of the central bucket's {redis_wire:,.0f}/s",
                wire <= redis_wire / 100,
            )
        )
    return found


def _panel(rows: Sequence[Row], name: str) -> Panel:
    return Panel(
        title=name,
        x_label="messages dropped (%)",
        y_label="p99 of access delay (ms, log scale)",
        series=[
            Series(
                label=f"{one['limiter']}: {one['wire_per_s']:,.0f} msg/s, {one['over']:,.0f} over",
                x=[100 * one["dropped_part"]],
                y=[one["p99_ms"]],
                marks_only=one["limiter"] == ONE_BUCKET,
            )
            for one in rows
        ],
        slo_ms=None,
    )


EXPERIMENT = Experiment(
    name="limiters",
    title="Rate limiters on the same arrivals",
    claim="SRTM's modes never let more go than (r, b) and drop nothing; fitted delays no more than static and "
    "proportional, for a hundredth of the messages of a central bucket; GDRL says more, and may delay less. Even "
    "split, flow proportional share and global random drop police: what they do not delay they drop, or let go above "
    "the envelope.",
    columns={
        "traffic": "case",
        "bucket": "bucket",
        "limiter": "limiter",
        "dropped, part": "dropped_part",
        "mean access delay, ms": "mean_ms",
        "p99, ms": "p99_ms",
        "stuck at the end": "stuck",
        "messages above b + r dt, worst interval": "over",
        "control messages/s": "wire_per_s",
    },
    run=figure,
    sources=("adaptor", *SIMULATED),
    runs="one run of {seconds:g} s each",
    full=Effort(repetitions=1),
)
