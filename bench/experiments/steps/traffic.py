"""Traffic of 10,000 msg/s on two real brokers, which may move from one to the other, as the load generator sends it.

It is that of publishers whom the topic does not name, so that nobody is told to move. Three generators make a step: who
stays, who leaves, who comes; those who leave are stopped as soon as the first message of those who come was sent.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import trio

from bench.experiments.steps.run import PROMISE_MS, Sent, Step
from bench.harness.cluster_runs.assigned_traffic import settled
from bench.harness.load.run import RunProgress, generator_of
from bench.harness.load.workload import Plan, Publishers, Subscriber
from srtm._native import LoadGen
from srtm.client.distributor import DistributorClient, Json
from srtm.cluster.supervisor import Cluster, cluster
from srtm.errors import Unavailable

LOAD, RATE = 10_000.0, 11_000.0  # msg/s
BURSTS = {1: 25, 10: 248}  # messages, by batch
_PUBLISHER_RATE = 10.0  # msg/s
_MCAP = 20_000.0
_READY_WITHIN_S = 20.0
_POLL_S = 0.002  # a generator has no other sign of its first message


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Cluster, DistributorClient]]:
    with tempfile.TemporaryDirectory(prefix="srtm-adaptation-") as folder:
        async with (
            cluster(brokers=2, mcap=_MCAP, data=Path(folder)) as running,
            DistributorClient(running.distributor) as client,
        ):
            yield running, client


def topic_document(topic: str, part: float, batch: int, mode: str) -> Json:
    """A publisher for each broker, declared with what comes there, ``part`` of the load on the first: that is the split
    to begin with."""
    name, _, window = mode.partition(", ")
    declared = {"ids": ["first", "second"], "rates": [LOAD * part, LOAD * (1 - part)]}
    adaptation = {"window_s": float(window.split()[0])} if window else {}
    return {
        "name": topic,
        "rate": RATE,
        "burst": BURSTS[batch],
        "mode": name,
        "split": "proportional" if name == "proportional" else "fitted",
        "placement": "lb",
        "adaptation": adaptation,
        "slo": {"percentile": 99, "latency_ms": PROMISE_MS},
        "publishers": [{**declared, "batch": batch}],
    }


async def placed(client: DistributorClient, topic: str) -> list[str]:
    """The brokers' addresses, the one of the first publisher first, once all shares are in force. Raises
    Unavailable."""
    view = await settled(client, topic, brokers=2, within_s=_READY_WITHIN_S)
    found = await client.publishers(topic)
    brokers = dict(zip(found["ids"], found["brokers"], strict=True))
    address = {place["broker"]: str(place["address"]) for place in view["brokers"]}
    return [address[brokers[who]] for who in ("first", "second")]


@dataclass(frozen=True)
class StepPlans:
    """Who sends all the time, only before the step, only after it."""

    stay: Plan
    leave: Plan
    come: Plan


def step_plans(
    topic: str, addresses: Sequence[str], step: Step, before_s: float, after_s: float, seed: int
) -> StepPlans:
    """Publishers of 10 msg/s each; on both brokers as many stay as the smaller of their parts."""
    before = [step.before, 1 - step.before]
    after = [step.after, 1 - step.after]
    stays = [min(pair) for pair in zip(before, after, strict=True)]
    everything = 2 * before_s + after_s  # it is stopped when the others have ended

    def plan(parts: Sequence[float], prefix: str, seconds: float) -> Plan:
        return _plan(topic, addresses, publishers_of(parts, prefix, step.batch), seconds, seed)

    return StepPlans(
        stay=plan(stays, "stay-", everything),
        leave=plan([was - rest for was, rest in zip(before, stays, strict=True)], "leave-", everything),
        come=plan([now - rest for now, rest in zip(after, stays, strict=True)], "come-", after_s),
    )


def _plan(topic: str, addresses: Sequence[str], publishers: Publishers, seconds: float, seed: int) -> Plan:
    return Plan(
        topic=topic,
        targets=list(addresses),
        publishers=publishers,
        subscribers=[Subscriber(target=at) for at in sorted(set(publishers.target))],
        duration_s=seconds,
        warmup_s=0.0,
        drain_s=0.0,
        seed=seed,
    )


def publishers_of(parts: Sequence[float], prefix: str, batch: int) -> Publishers:
    """``parts`` of the load, on each broker."""
    target = [at for at, part in enumerate(parts) for _ in range(round(part * LOAD / _PUBLISHER_RATE))]
    return Publishers(
        ids=[f"{prefix}{number}" for number in range(len(target))],
        target=target,
        rate=[_PUBLISHER_RATE] * len(target),
        batch=[batch] * len(target),
        group=[-1] * len(target),
        process=["poisson"] * len(target),
    )


async def send_step(plans: StepPlans, before_s: float, after_s: float) -> Sent:
    """Raises Unavailable."""
    with _generator(plans.stay) as stay, _generator(plans.leave) as leave, _generator(plans.come) as come:
        stay.start()
        leave.start()
        await _first_message(stay)
        await _first_message(leave)
        await trio.sleep(before_s)
        calm_until_ns = time.monotonic_ns()
        come.start()
        await _first_message(come)
        at_ns = time.monotonic_ns()
        leave.stop()
        await trio.sleep(after_s)
        ends_ns = time.monotonic_ns()
        late_ms = max(_progress(one).lateness_p99_ms for one in (stay, come))
        return Sent(calm_until_ns, at_ns, ends_ns, late_ms)


async def _first_message(generator: LoadGen) -> None:
    """Raises Unavailable."""
    deadline_s = trio.current_time() + _READY_WITHIN_S
    while _progress(generator).sent == 0:
        if trio.current_time() > deadline_s:
            raise Unavailable(f"the generator sent nothing within {_READY_WITHIN_S:g} s")
        await trio.sleep(_POLL_S)


def _progress(generator: LoadGen) -> RunProgress:
    return msgspec.json.decode(generator.progress(), type=RunProgress)


@contextmanager
def _generator(plan: Plan) -> Iterator[LoadGen]:
    """Stopped when the block ends."""
    generator = generator_of(plan)
    try:
        yield generator
    finally:
        generator.stop()
