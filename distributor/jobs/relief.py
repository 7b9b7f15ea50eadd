"""The policy of ``relief`` on the live cluster: what brokers report goes in, publishers are placed elsewhere and the
decision log says why. Only the leader does this."""

from __future__ import annotations

import math
import traceback
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import attrgetter

import trio

from distributor.jobs import explain as explaining
from distributor.model.broker_load import NO_LOAD
from distributor.model.cluster import Placement, Topic
from distributor.placement.share_targets import ShareDemand, target_shares
from distributor.prediction.forecast import Service, Simulation
from distributor.registry.registry import Registry
from distributor.relief.values import BrokerView, Note, Part, Shift, TopicView, View
from distributor.sync.service import SyncService
from srtm.control import LatencyMs, TopicReport
from srtm.errors import Unavailable
from srtm.log import Log

_PERIOD_S = 2.0  # soon enough for breaches of many seconds; a look at a large cluster costs milliseconds
_RATE_OVER_S = 10.0  # as the delays that are reported
_REPORTED: Mapping[float, Callable[[LatencyMs], float]] = {
    50: attrgetter("p50_ms"),
    95: attrgetter("p95_ms"),
    99: attrgetter("p99_ms"),
    99.9: attrgetter("p999_ms"),
}


class ReliefJob:
    """``is_fitting``: whether a topic is being fitted, and so moved by somebody else. ``run`` it beside the
    registry."""

    def __init__(
        self, registry: Registry, syncing: SyncService, is_fitting: Callable[[str], bool] = lambda _topic: False
    ) -> None:
        self._registry = registry
        self._syncing = syncing
        self._is_fitting = is_fitting
        self._rates = Rates()
        self._log = Log("distributor")

    async def run(self) -> None:
        """Until cancelled; does nothing if the configuration says so."""
        while self._registry.config.relief:
            await trio.sleep(_PERIOD_S)
            try:
                await self.look()
            except Unavailable as error:  # the store: nothing was changed; what was begun is judged by what is there
                self._log.warning("no relief", reason=error)
            except Exception:  # noqa: BLE001 - a defect here must not end the leader: the next one would meet it too
                self._log.failure("no relief", trace=traceback.format_exc())

    async def look(self) -> None:
        """Once. Raises Unavailable."""
        relief, now_s = self._syncing.relief, trio.current_time()
        for action in relief.look(now_s, self.view(now_s)):
            if isinstance(action, Note):
                await self._registry.note(action.topic, action.text)
            elif not await self._is_carried_out(action):
                relief.failed(action.topic, now_s)

    async def _is_carried_out(self, shift: Shift) -> bool:
        """A defect that one shift meets is a shift that failed. Raises Unavailable."""
        try:
            return await self._carry_out(shift)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001
            self._log.failure("a relief is defective", topic=shift.topic, trace=traceback.format_exc())
            return False

    async def _carry_out(self, shift: Shift) -> bool:
        topic = self._registry.managed_topic(shift.topic)
        if topic is None or self._is_fitting(shift.topic):
            return False
        if not shift.to.keys() <= topic.spec.publishers.positions.keys():  # some were removed since the look
            return False
        trouble = await self._trouble(topic, shift)
        if trouble is not None:
            await self._registry.note(shift.topic, f"nobody is moved: {trouble}")
            return False
        return await self._registry.relocate(shift.topic, shift.to, shift.reason)

    async def _trouble(self, topic: Topic, shift: Shift) -> str | None:
        """Why those who shall take publishers cannot. A broker that is new to the topic gets a small share, and may
        make messages wait longer for it than they are late now: the forecast says."""
        after = topic.placement.moved(shift.to)
        if full := self._registry.overfull(topic, after):
            return f"{full[0]} has no room for {after.assigned[full[0]]:,.6g} msg/s of the topic"
        new = set(shift.to.values()) - set(topic.placement.brokers)
        if new:
            services = explaining.services(topic.name, self._registry, self._syncing)
            wait_ms = await trio.to_thread.run_sync(partial(self._access_ms, topic, after, services))
            late = {broker: wait_ms[broker] for broker in new if wait_ms[broker] > topic.spec.slo.latency_ms}
            for broker, delay_ms in late.items():
                return f"on {broker}, which is new to the topic, messages would wait {delay_ms:.3g} ms for tokens"
        return None

    def _access_ms(self, topic: Topic, after: Placement, services: Mapping[str, Service]) -> Mapping[str, float]:
        envelope, spec = topic.leases.envelope, topic.spec
        target = target_shares(
            ShareDemand(spec=spec, envelope=envelope, placement=after, extra_brokers=topic.extra_brokers)
        )
        simulation = Simulation(spec.publishers, spec.slo.percentile, envelope, spec.seed)
        forecast = simulation.forecast(after, target, services)
        return {name: one.access_ms for name, one in forecast.brokers.items()}

    # What is seen

    def view(self, now_s: float) -> View:
        registry, reports = self._registry, self._syncing.living()
        rates = {
            name: {topic: self._rates.of(name, one, now_s) for topic, one in by_topic.items()}
            for name, by_topic in reports.items()
        }
        live = registry.live()
        topics = {
            topic.name: TopicView(
                percentile=topic.spec.slo.percentile,
                promise_ms=topic.spec.slo.latency_ms,
                burst=topic.burst,
                placement=topic.placement,
                parts={
                    name: part(reports[name][topic.name], topic.spec.slo.percentile, rates[name][topic.name])
                    for name in topic.placement.brokers
                    if name in live and topic.name in reports.get(name, {})
                },
                extra_brokers=topic.extra_brokers,
                busy=self._is_busy(topic, live),
            )
            for topic in registry.managed()
        }
        self._rates.forget_all_but({(name, topic) for name, by_topic in reports.items() for topic in by_topic})
        takes_more, loads = registry.takes_more(), registry.loads
        brokers = {
            name: BrokerView(
                load=sum(rates.get(name, {}).values()),
                capacity=self._capacity(name),
                room=_room(registry.brokers[name].mcap, loads.get(name, NO_LOAD).allocated),
                takes_more=name in takes_more,
            )
            for name in live
        }
        return View(topics=topics, brokers=brokers)

    def _is_busy(self, topic: Topic, live: set[str]) -> bool:
        """Publishers or tokens are on their way, or somebody else is at it."""
        return (
            self._is_fitting(topic.name)
            or any("" in homes for homes in topic.misplaced.values())
            or any(not held.is_acknowledged for name, held in topic.leases.holdings.items() if name in live)
            or bool(self._registry.draining & topic.leases.target.keys())
        )

    def _capacity(self, broker: str) -> float:
        service_ns = self._syncing.session(broker).lab_service_ns
        return 1e9 / service_ns if service_ns else math.inf


class Rates:
    """Msg/s that brokers let go, from their counters."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], deque[tuple[float, int]]] = {}

    def forget_all_but(self, known: Collection[tuple[str, str]]) -> None:
        """``known``: (broker, topic)."""
        for key in self._seen.keys() - known:
            self._seen.pop(key)

    def of(self, broker: str, report: TopicReport, now_s: float) -> float:
        """Over the last seconds; 0 until there are two reports."""
        seen = self._seen.setdefault((broker, report.topic), deque())
        if seen and report.released < seen[-1][1]:  # another incarnation
            seen.clear()
        seen.append((now_s, report.released))
        while len(seen) > 2 and seen[1][0] <= now_s - _RATE_OVER_S:
            seen.popleft()
        (since_s, before), (_, after) = seen[0], seen[-1]
        return (after - before) / (now_s - since_s) if now_s > since_s else 0.0


def _room(mcap: float, allocated: float) -> float:
    """By what an operator states; what was measured for a promise is asked when it comes to it."""
    return mcap - allocated if mcap else math.inf


def part(report: TopicReport, percentile: float, rate: float) -> Part:
    """A report as the policy sees it; one without the last seconds is one without messages."""
    if report.recent is None:
        return Part(rate=rate)
    at = _at(percentile)
    return Part(
        rate=rate,
        count=report.recent.total.count,
        access_ms=at(report.recent.access),
        processing_ms=at(report.recent.processing),
        total_ms=at(report.recent.total),
    )


def _at(percentile: float) -> Callable[[LatencyMs], float]:
    """Of the percentiles that are reported the first that is no lower."""
    return next(reported for at, reported in _REPORTED.items() if at >= percentile)
