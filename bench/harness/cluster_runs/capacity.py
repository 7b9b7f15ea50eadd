"""The benchmarking phase: the largest rate that a broker of a cluster carries within a promise.

The load generator publishes to a scratch topic of that broker and reads it back; each step is one rate, judged by the
sequential test of the fittings over every single message (intended instant to receipt), else by the sample. The topic
has no bucket, and both it and its channel are ephemeral: whatever ends the command, they go with its connections.

Beside other topics the climb ends as soon as one of them comes near its promise. What the generator could not send in
time says nothing of the broker: such a step is taken once more, and ends the climb the second time.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from typing import Any

import trio

from bench.harness.cluster_runs.rate_search import Climb
from bench.harness.load.run import RunResult, deliveries, run_plan
from bench.harness.load.workload import Plan, Subscriber, modelled
from bench.harness.machine.host import Host
from bench.harness.results.intervals import percentile_ms
from distributor.prediction.sequential_test import SequentialTest, Verdict, by_interval
from srtm.client.distributor import DistributorClient, Json
from srtm.concurrency.background import background_nursery
from srtm.errors import Conflict, PeerError, Unavailable
from srtm.net.address import parse_address
from srtm.net.http_client import HttpClient
from srtm.topics.capacity import Capacity, Class, LimitedBy, Machine
from srtm.topics.spec import Slo

FIRST = 1_000.0  # msg/s
MOST = 200_000.0  # msg/s: what the generator sends on a good day
IN_DANGER = 0.8  # of another topic's promise: beyond it the climb ends
WARMUP_S = 1.0
_LOOK_S = 0.5
_GONE_WITHIN_S = 5.0
_STEAL_TOLD = 0.01  # of all processors
_AT = {50: "p50_ms", 90: "p95_ms", 95: "p95_ms", 99: "p99_ms", 99.9: "p999_ms"}  # what a report has, never less

Run = Callable[[Plan], Any]  # as ``run_plan``


@dataclass(frozen=True, kw_only=True)
class CapacityOptions:
    slo: Slo = field(default_factory=lambda: Slo(percentile=99, latency_ms=1.0))
    traffic: Class = field(default_factory=Class)
    seconds: float = 4.0  # measured in a step
    first: float = FIRST
    most: float = MOST
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Step:
    """One rate. ``verdict``: kept, broken, or invalid (the generator was late) and endangered (another topic was)."""

    rate: float
    verdict: str
    why: str
    latency_ms: float = 0.0  # at the percentile
    messages: int = 0
    lateness_p99_ms: float = 0.0  # of the generator
    steal_s: float = 0.0
    throttled_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Found:
    capacity: Capacity | None  # None: not even the smallest rate was kept
    steps: Sequence[Step]
    disturbed: tuple[str, ...] = ()  # what others took of the broker's processors meanwhile


def judged(result: RunResult, rate: float, slo: Slo) -> Step:
    """What one run says of its rate."""
    instants_ns, latencies_ns = deliveries(result)
    target_ns = slo.latency_ns
    test = SequentialTest(slo.percentile)
    test.add(by_interval(instants_ns - instants_ns.min(initial=0), latencies_ns, target_ns, target_ns))
    latency_ms = percentile_ms(latencies_ns, slo.percentile)
    by_sample = " (by the sample)" if test.verdict is Verdict.UNDECIDED else ""
    verdict, why = "kept", f"p{slo.percentile:g} {latency_ms:.3g} ms{by_sample}"
    if not result.valid:
        verdict, why = "invalid", "; ".join(result.reasons)
    elif result.lost or result.refused:
        verdict, why = "broken", f"{result.lost} messages lost, {result.refused} refused"
    elif test.verdict is Verdict.ABOVE or (test.verdict is Verdict.UNDECIDED and latency_ms > slo.latency_ms):
        verdict = "broken"
    return Step(
        rate=rate,
        verdict=verdict,
        why=why,
        latency_ms=latency_ms,
        messages=len(latencies_ns),
        lateness_p99_ms=result.lateness_p99_ms,
        steal_s=result.steal_s,
        throttled_s=result.throttled_s,
    )


def promises(topics: Sequence[Json]) -> dict[str, Slo]:
    return {one["name"]: Slo(**one["slo"]) for one in topics}


def near_their_promise(broker: Json, promised: dict[str, Slo]) -> dict[str, str]:
    """{topic: how near} of those on the broker that have waited, in the last minute, nearly as long as promised.
    ``broker``: its view. Access and processing are added, which is not less than the percentile of their sum as a
    rule."""
    found = {}
    for report in broker["reports"]:
        slo = promised.get(report["topic"])
        if slo is None:
            continue
        last = report["last_60s"]
        waited_ms = sum(last[part][_AT[slo.percentile]] for part in ("access", "processing") if last[part]["count"])
        if waited_ms > IN_DANGER * slo.latency_ms:
            found[report["topic"]] = f"{report['topic']}: {waited_ms:.3g} ms of the {slo.latency_ms:g} ms promised"
    return found


class _Others:
    """The topics that are on the broker already, watched while a step runs."""

    def __init__(self, client: DistributorClient, broker: str, promised: dict[str, Slo], before: Json) -> None:
        self._client = client
        self._broker = broker
        self._promised = promised
        self._before = self._now = before
        self._steal = 0.0  # largest share of all processors
        self._began_s = trio.current_time()
        self._near_before = near_their_promise(before, promised)

    async def _look(self) -> Json:
        self._now = await self._client.broker(self._broker)
        if self._now["throttling"] is not None:
            self._steal = max(self._steal, self._now["throttling"]["steal_share"])
        return self._now

    @property
    def elapsed_s(self) -> float:
        return max(trio.current_time() - self._began_s, 1.0)

    def taken(self) -> tuple[str, ...] | None:
        """What the broker says others took of its processors since the beginning; None: it cannot tell."""
        before, now = self._before["throttling"], self._now["throttling"]
        if before is None or now is None:
            return None
        return _disturbances(now["throttled_s"] - before["throttled_s"], self.elapsed_s, self._steal)

    async def watch(self, endangered: Callable[[str], None]) -> None:
        """Until cancelled, or one is in danger that was not before."""
        while True:
            near = near_their_promise(await self._look(), self._promised)
            new = [how for topic, how in near.items() if topic not in self._near_before]
            if new:
                endangered("; ".join(new))
                return
            await trio.sleep(_LOOK_S)

    async def rate(self) -> float:
        """Msg/s of all of them since the beginning."""
        now, then = _received(await self._look(), self._promised), _received(self._before, self._promised)
        return sum(max(0, count - then.get(topic, 0)) for topic, count in now.items()) / self.elapsed_s


def _received(broker: Json, promised: dict[str, Slo]) -> dict[str, int]:
    return {one["topic"]: one["received"] for one in broker["reports"] if one["topic"] in promised}


async def measure_capacity(
    client: DistributorClient,
    name: str,
    options: CapacityOptions,
    tell: Callable[[Step], None],
    run: Run = run_plan,
) -> Found:
    """Climb on broker ``name``. Raises NotFound, Conflict (it is not there to be measured), Unavailable."""
    before = await client.broker(name)
    if not before["alive"] or not before["accepting"] or before["draining"]:
        raise Conflict("broker", name, "must be alive and not draining to be measured")
    others = _Others(client, name, promises(await client.topics()), before)
    topic = f"capacity-{secrets.token_hex(4)}#ephemeral"
    steps: list[Step] = []

    def note(step: Step) -> None:
        tell(step)
        steps.append(step)

    async def attempt(rate: float) -> Step:
        return await _step(_plan(before["tcp_address"], topic, rate, options), rate, options.slo, others, run)

    try:
        kept, limited_by = await _climbed(Climb(options.first, options.most), attempt, note)
    finally:
        await _remove(before["http_address"], topic)
    beside = await others.rate()
    taken = _taken(options, before, others, steps)
    found = _capacity(kept, limited_by, options, before, beside, taken) if kept else None
    return Found(capacity=found, steps=steps, disturbed=taken)


async def _climbed(
    climb: Climb, attempt: Callable[[float], Awaitable[Step]], note: Callable[[Step], None]
) -> tuple[float, LimitedBy]:
    """The largest rate kept (msg/s, 0: none), and what ended the climb."""
    while (rate := climb.next) is not None:
        step = await attempt(rate)
        note(step)
        if step.verdict == "invalid":
            step = await attempt(rate)
            note(step)
        match step.verdict:
            case "kept":
                climb.keep()
            case "broken":
                climb.fail()
            case "endangered":
                return climb.kept, "other topics"
            case _:
                return climb.kept, "generator" if climb.broken is None else "broker"
    return climb.kept, "the highest rate asked for" if climb.broken is None else "broker"


def _taken(options: CapacityOptions, before: Json, others: _Others, steps: Sequence[Step]) -> tuple[str, ...]:
    """What others took of the broker's processors: as it says, else, where it is on this machine, as seen from here."""
    taken = others.taken()
    if taken is not None:
        return taken
    here = is_here(before["tcp_address"])
    return disturbed(steps, options.seconds + WARMUP_S, Host.here().cores) if here else ()


def _capacity(
    kept: float, limited_by: LimitedBy, options: CapacityOptions, before: Json, beside: float, taken: tuple[str, ...]
) -> Capacity:
    return Capacity(
        mcap=round(kept + beside, 3),
        slo=options.slo,
        traffic=options.traffic,
        measured=datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds"),
        source="bench",
        machine=machine_of(before),
        beside=round(beside, 3),
        limited_by=limited_by,
        lab_service_time_ns=before["lab_service_time_ns"],
        disturbed=taken,
    )


async def _step(plan: Plan, rate: float, slo: Slo, others: _Others, run: Run) -> Step:
    """One run, cut off when another topic comes into danger."""
    danger: list[str] = []
    result: RunResult | None = None

    def cut_off(why: str) -> None:
        danger.append(why)
        nursery.cancel_scope.cancel()

    async with background_nursery() as nursery:
        nursery.start_soon(others.watch, cut_off)
        result = await run(plan)
        nursery.cancel_scope.cancel()
    if danger or result is None:
        return Step(rate=rate, verdict="endangered", why="; ".join(danger))
    return await trio.to_thread.run_sync(partial(judged, result, rate, slo))


def _plan(address: str, topic: str, rate: float, options: CapacityOptions) -> Plan:
    traffic = options.traffic
    each = rate / traffic.publishers
    return Plan(
        topic=topic,
        targets=[address],
        publishers=modelled([0] * traffic.publishers, each, process=traffic.process, batch=traffic.batch),
        subscribers=[Subscriber(target=0, channel="capacity#ephemeral")],
        duration_s=options.seconds,
        warmup_s=WARMUP_S,
        seed=options.seed,
        slo_ms=options.slo.latency_ms,
        percentile=options.slo.percentile,
        keep_each=True,
    )


async def _remove(http_address: str, topic: str) -> None:
    """At once, also after Ctrl-C; where that fails it goes with its last connection."""
    with trio.CancelScope(shield=True):
        async with aclosing(HttpClient(f"http://{http_address}")) as http:
            try:
                await http.request("POST", f"/topic/delete?topic={topic.replace('#', '%23')}", timeout_s=_GONE_WITHIN_S)
            except (Unavailable, PeerError):
                return


def machine_of(broker: Json) -> Machine | None:
    """As the broker says itself. ``broker``: its view."""
    told = broker["machine"]
    return None if told is None else Machine(cores=told["cores"], kernel=told["kernel"], cpu=told["cpu"])


def is_here(tcp_address: str) -> bool:
    """Whether the broker is on this machine: it is reached by loopback."""
    host = parse_address("tcp_address", tcp_address)[0]
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def disturbed(steps: Sequence[Step], seconds: float, cores: int) -> tuple[str, ...]:
    """What others took of this machine's processors while the steps ran, each ``seconds`` long."""
    lasted_s = len(steps) * seconds
    throttled_s, steal_s = sum(one.throttled_s for one in steps), sum(one.steal_s for one in steps)
    return _disturbances(throttled_s, lasted_s, steal_s / (lasted_s * cores))


def _disturbances(throttled_s: float, lasted_s: float, steal: float) -> tuple[str, ...]:
    """``steal``: share of all processors."""
    found = []
    if throttled_s > 0:
        found.append(f"throttled by a CPU quota: {throttled_s:.2g} s of {lasted_s:.0f} s")
    if steal > _STEAL_TOLD:
        found.append(f"steal {steal:.1%}")
    return tuple(found)
