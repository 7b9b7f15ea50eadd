"""A simulated layout on real brokers: each a process of its own, with its share of the bucket.

The arrivals that a broker noted are what the simulator gets (``bench.simulation.recorded``): what differs is not the
traffic. Where all of it goes before the machine's ordinary work (``chrt``), brokers go before the generator too: on
hosts of their own they would not wait for it. Not where publishers fire together: a generator that was interrupted
after each of them would spread over milliseconds what is meant for one instant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from msgspec.structs import replace as replace_fields

from bench.harness.cluster_runs.broker_api import put_bucket
from bench.harness.cluster_runs.trace import fetch_trace
from bench.harness.load.cpu import CpuMeter
from bench.harness.load.run import RunResult, deliveries, run_plan
from bench.harness.load.workload import Plan, Publishers, Subscriber, modelled
from bench.harness.results.provenance import has_precedence
from bench.harness.systems.systems import bare_broker
from bench.simulation.recorded import Layout, Recorded, recorded
from srtm.units import from_micro

TOPIC = "live"
WARM_UP_S = 1.0
TRIES = 2  # of a run that does not count


async def record(
    layout: Layout,
    *,
    seconds: float,
    seed: int,
    slo_ms: float,
    keep_intended: bool = False,
    latest_ms: float = math.inf,
    name: str = TOPIC,
) -> Recorded:
    """The first run that counts, else the last. ``latest_ms``: how late the generator may ever be; ``name``: of the
    runs' files. Raises Unavailable, PeerError, BadInput."""
    for _ in range(TRIES):
        found = await record_once(
            layout, seconds=seconds, seed=seed, slo_ms=slo_ms, keep_intended=keep_intended, name=name
        )
        if found.late_max_ms > latest_ms:
            stop = f"the generator was {found.late_max_ms:.3g} ms late once, more than {latest_ms:g} ms"
            found = replace(found, reasons=[*found.reasons, stop])
        if not found.reasons:
            break
    return found


async def record_once(
    layout: Layout, *, seconds: float, seed: int, slo_ms: float, keep_intended: bool, name: str = TOPIC
) -> Recorded:
    """Starts the brokers, sends, fetches what they recorded, ends them. Raises Unavailable, PeerError, BadInput."""
    options = ["--lab-service-time", f"{layout.lab_us:g}"] if layout.lab_us else []
    if has_precedence() and layout.fleet.group_size == 1:
        options.append("--realtime")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="srtm-live-")))
        systems = [
            await stack.enter_async_context(bare_broker(folder / f"broker-{at}", *options)) for at in layout.used
        ]
        for system, at in zip(systems, layout.used, strict=True):
            rate, burst = (from_micro(micro) for micro in layout.shares[at])
            await put_bucket(system.http_address, TOPIC, rate, burst)
        meter = CpuMeter(*systems)
        addresses = [system.tcp_address for system in systems]
        plan = plan_of(layout, addresses, seconds=seconds, seed=seed, slo_ms=slo_ms)
        result = await run_plan(replace_fields(plan, keep_each=keep_intended), meter.look, name=name)
        traces = [await fetch_trace(system.http_address, TOPIC) for system in systems]
    cpu_us, reasons = meter.us_per_message(), _reasons(result)
    found = recorded(layout, traces, warm_up_s=WARM_UP_S, cpu_us=cpu_us, reasons=reasons)
    intended_ns = np.sort(deliveries(result)[0]) if keep_intended else None
    return replace(found, late_max_ms=result.lateness_max_ms, intended_ns=intended_ns)


def _reasons(result: RunResult) -> list[str]:
    return [*result.reasons, *([f"{result.lost} messages were lost"] if result.lost else [])]


def plan_of(layout: Layout, addresses: Sequence[str], *, seconds: float, seed: int, slo_ms: float) -> Plan:
    """``addresses``: of the used brokers, in order."""
    return Plan(
        topic=TOPIC,
        targets=list(addresses),
        publishers=publishers_of(layout),
        subscribers=[Subscriber(target=at) for at in range(len(addresses))],
        duration_s=seconds,
        warmup_s=WARM_UP_S,
        seed=seed,
        slo_ms=slo_ms,
    )


def publishers_of(layout: Layout) -> Publishers:
    """Raises BadInput for a fleet that makes no sense."""
    fleet = layout.fleet
    return modelled(
        np.searchsorted(layout.used, layout.placement).tolist(),
        fleet.rate,
        group_size=fleet.group_size,
        noise_ns=fleet.noise_ns,
        process=fleet.process,
        batch=fleet.batch,
    )
