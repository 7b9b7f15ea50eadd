"""Twice the rate, with ``delay``: what comes out is the rate, exactly, and nothing is lost.

Falsified by: a due instant that the reference bucket does not give on the recorded arrivals, a rate off by half a per
cent, late timers, or an interval in which more than the envelope passed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.harness.cluster_runs.broker_api import put_bucket
from bench.harness.cluster_runs.trace import Trace, fetch_trace, percentile_ms
from bench.harness.load.run import RunResult, run_plan
from bench.harness.load.workload import Plan, Subscriber, modelled
from bench.harness.results.verdict import Check, Verdict, at_most, none_of, within
from bench.harness.systems.systems import bare_broker
from srtm.token_bucket.bucket import conforms_actual, conforms_due
from srtm.token_bucket.replay import due_instants
from srtm.units import to_micro

CLAIM = (
    "Offered twice a rate of 5,000 msg/s for 10 s with delay: released within 0.5 % of it once the burst is spent, due "
    "instants the reference's to the nanosecond, p99 of (actual - due) under 1 ms, never over the envelope."
)
TOPIC = "overload"
RATE = 5_000.0
BURST = 100.0
OFFERED = 2 * RATE
PUBLISHERS = 200
SECONDS = 10.0
RATE_WITHIN = 0.005
LATENESS_MS = 1.0


async def measure(folder: Path, seed: int, quick: bool) -> Verdict:
    seconds = SECONDS / 5 if quick else SECONDS
    async with bare_broker(folder / "overload") as broker:
        await put_bucket(broker.http_address, TOPIC, RATE, BURST)
        result = await run_plan(_plan(broker.tcp_address, seconds, seed))
        return judge(result, await fetch_trace(broker.http_address, TOPIC), seconds)


def _plan(address: str, seconds: float, seed: int) -> Plan:
    return Plan(
        topic=TOPIC,
        targets=[address],
        publishers=modelled([0] * PUBLISHERS, OFFERED / PUBLISHERS),
        subscribers=[Subscriber(target=0)],
        duration_s=seconds,
        warmup_s=0.0,
        drain_s=2 * seconds,  # what waits at the end takes as long again
        seed=seed,
    )


def judge(result: RunResult, trace: Trace, seconds: float) -> Verdict:
    rate_micro, burst_micro = to_micro(RATE, "rate"), to_micro(BURST, "burst")
    lateness_ns = int(trace.lateness_ns.max(initial=0))
    late_p99_ms = percentile_ms(trace.lateness_ns, 99)
    differing = int((trace.due_ns != due_instants(trace.arrival_ns, rate_micro, burst_micro)).sum())
    over_due = conforms_due(trace.due_ns.tolist(), rate_micro, burst_micro)
    over_actual = conforms_actual(trace.released_ns.tolist(), rate_micro, burst_micro, lateness_ns)
    return Verdict(
        name="overload",
        claim=CLAIM,
        checks=[
            within("released while overloaded", release_rate(trace), RATE, RATE_WITHIN, "msg/s"),
            none_of("due instants that differ from the reference's", differing),
            at_most("actual - due, p99", late_p99_ms, LATENESS_MS, "ms"),
            Check("due instants over b + r dt", str(over_due or "none"), "none", over_due is None),
            Check("hand-overs over b + r (dt + J)", str(over_actual or "none"), "none", over_actual is None),
            none_of("messages lost", result.lost),
        ],
        runs=[{**result.row("overload"), "late_p99_ms": late_p99_ms, "late_max_ms": lateness_ns / 1e6}],
        settings={"rate": RATE, "burst": BURST, "offered": OFFERED, "seconds": seconds},
        reasons=result.reasons,
    )


def release_rate(trace: Trace) -> float:
    """Msg/s let go from the moment that the burst was spent to the last arrival; 0 if it never was."""
    delayed = np.flatnonzero(trace.access_ns > 0)
    if not len(delayed):
        return 0.0
    from_ns, to_ns = int(trace.due_ns[delayed[0]]), int(trace.arrival_ns.max())
    count = int(((trace.released_ns > from_ns) & (trace.released_ns <= to_ns)).sum())
    return count / ((to_ns - from_ns) / 1e9)
