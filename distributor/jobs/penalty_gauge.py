"""The DRL penalty as a gauge: of each topic that is on several brokers, every so often, over a short window.

Each of its brokers is asked for a measurement like those of fittings, which records what arrives meanwhile and changes
nothing; ``srtm.analysis.drl_penalty`` then replays the arrivals. What that costs is bounded: one topic at a time,
so many messages a window, and topics with more traffic than fits into a window of a second have none. Hosts have
clocks of their own: between them, arrivals are as far apart as these say.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import trio

from distributor.fitting.events import Event, Progress, Recorded
from distributor.measuring.measurements import Measurements
from distributor.model.cluster import Topic
from distributor.model.leases import Amount
from distributor.prediction.replay import Trace
from distributor.registry.registry import Registry
from distributor.sync.figures import MeasuredPenalty
from distributor.sync.service import SyncService
from srtm.analysis.drl_penalty import RecordedPenalty, Recording, recorded_penalty
from srtm.control import MeasurementRequest
from srtm.errors import BadInput
from srtm.log import Log

PERIOD_S = 30.0  # from the beginning of one round of all topics to the next
WINDOW_S = 10.0
MOST_MESSAGES = 50_000  # in a window
_SHORTEST_S = 1.0
_PATIENCE_S = 5.0  # beyond the window


class _Anybody(dict[str, int]):
    """Who sent does not matter here, and whoever a topic does not name counts too."""

    def get(self, _id: str, _default: object = None) -> int:
        return 0


def shares_in_force(topic: Topic) -> dict[str, Amount] | None:
    """{broker: its share}; None: some are on their way, or the brokers exchange them, ten times a second."""
    if topic.leases.pool:
        return None
    held = {name: topic.holding(name) for name in topic.leases.target}
    if any(not one.is_acknowledged or one.share != topic.leases.target[name] for name, one in held.items()):
        return None
    return {name: one.share for name, one in held.items()}


def window_s(topic: Topic) -> float | None:
    """How long a window of the topic's traffic may be; None: it has no gauge. It is removed, or on one broker, or there
    is too much of it."""
    if topic.removed or len(topic.leases.target) < 2:
        return None
    length_s = min(WINDOW_S, MOST_MESSAGES / max(topic.spec.publishers.load, 1e-9))
    return length_s if length_s >= _SHORTEST_S else None


class PenaltyGauge:
    """``run`` fills ``syncing.penalties``."""

    def __init__(
        self,
        registry: Registry,
        syncing: SyncService,
        measuring: Measurements,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._registry = registry
        self._syncing = syncing
        self._measuring = measuring
        self._wall_ns = wall_ns
        self._prefix = f"penalty-{wall_ns()}."  # brokers may still have those of the leader before
        self._number = 0
        self._log = Log("distributor")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            began_s = trio.current_time()
            for name in [topic.name for topic in self._registry.managed()]:
                await self._gauge(name)
            await trio.sleep_until(began_s + PERIOD_S)

    async def _gauge(self, name: str) -> None:
        """A topic that cannot be gauged now has no penalty, rather than an old one."""
        try:
            found = await self._penalty(name)
        except Exception:  # noqa: BLE001 - a defect must not end the leader: the next one would meet it too
            self._log.failure("a penalty could not be worked out", topic=name, trace=traceback.format_exc())
            found = None
        if found is None or self._registry.managed_topic(name) is None:
            self._syncing.penalties.pop(name, None)
        else:
            self._syncing.penalties[name] = MeasuredPenalty(penalty=found, wall_ns=self._wall_ns())

    async def _penalty(self, name: str) -> RecordedPenalty | None:
        topic, fitting = self._registry.managed_topic(name), self._registry.fittings.get(name)
        if topic is None:
            return None
        length_s, shares = window_s(topic), shares_in_force(topic)
        if length_s is None or shares is None or (fitting is not None and fitting.running):
            return None
        traces = await self._recorded(topic, length_s)
        now = self._registry.managed_topic(name)
        if traces is None or now is None or shares_in_force(now) != shares:
            return None
        return await trio.to_thread.run_sync(partial(_replayed, traces, shares, topic.leases.envelope))

    async def _recorded(self, topic: Topic, length_s: float) -> dict[str, Trace] | None:
        """{broker: what arrived there}, of all that have a share; None: one of them did not answer."""
        self._number += 1
        id_ = f"{self._prefix}{self._number}"
        brokers = {name: self._registry.brokers.get(name) for name in topic.leases.target}
        send, receive = trio.open_memory_channel[Event](1000 * len(brokers))
        traces: dict[str, Trace] = {}
        try:
            for name, broker in brokers.items():
                if broker is None or not self._registry.is_alive(name):
                    return None
                request = _request(id_, topic, length_s, topic.holding(name).version)
                self._measuring.begin(name, broker.incarnation, request, self._number, _Anybody(), send.send_nowait)
            with trio.move_on_after(length_s + _PATIENCE_S):
                while len(traces) < len(brokers):
                    event = await receive.receive()
                    if isinstance(event, Progress) and event.final:
                        self._measuring.stop(event.broker, id_, trace_wanted=True)
                    elif isinstance(event, Recorded):
                        traces[event.broker] = event.trace
            return traces if len(traces) == len(brokers) else None
        finally:
            for name in brokers.keys() - traces.keys():
                self._measuring.stop(name, id_, trace_wanted=False)


def _request(id_: str, topic: Topic, length_s: float, share_version: int) -> MeasurementRequest:
    length_ns = round(length_s * 1e9)
    return MeasurementRequest(
        id=id_,
        topic=topic.name,
        percentile=topic.spec.slo.percentile,
        target_ns=topic.spec.slo.latency_ns,
        share_version=share_version,
        at_least_ns=length_ns,
        at_most_ns=length_ns,
        report_ns=length_ns,
    )


def _replayed(traces: Mapping[str, Trace], shares: Mapping[str, Amount], envelope: Amount) -> RecordedPenalty | None:
    """None: the brokers recorded at different times."""
    recordings = [
        Recording(
            broker=name,
            arrival_ns=np.maximum.accumulate(trace.arrival_ns),
            waited_ns=None,
            share_micro=(shares[name].rate, shares[name].burst),
        )
        for name, trace in traces.items()
    ]
    try:
        return recorded_penalty(recordings, envelope.rate, envelope.burst)
    except BadInput:
        return None
