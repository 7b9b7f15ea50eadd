"""The lease protocol in virtual time: brokers (the real ``LeaseHolder`` over a greedy engine), distributors that take
turns (the real ``Leases`` and the pure parts of the registry), and a network that loses, delays, repeats and reorders.

Every party has a clock of its own, with its own zero and its own speed. A broker here takes any answer that was ever
meant for its incarnation, however late: more than HTTP would let through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from broker.leases.lease_holder import LeaseHolder
from distributor.model.cluster import Broker, Placement, Topic
from distributor.model.leases import MICRO, NOTHING, Amount, Leases
from distributor.placement.proposals import pooled_if_due
from distributor.registry import desired_state as desired
from distributor.registry.broker_updates import BrokerUpdate, UpdateContext, apply_broker_update, has_part
from distributor.storage.topic_rows import NO_PUBLISHERS
from srtm.control import SyncAnswer
from srtm.errors import PeerError
from srtm.topics.adaptation import Mode
from srtm.topics.spec import TopicSpec, parse_topic_json
from tests.support.greedy_engine import GreedyEngine

MS = 10**6
ENVELOPE = Amount(100 * MICRO, 20 * MICRO)
NAME = "t"
LIVE_NS = 6_000 * MS


def unlimited(_topic: Topic, _broker: str) -> None:
    """Of no broker is it known what it can process."""


@dataclass(frozen=True)
class Clock:
    now_ns: Callable[[], int]  # of the simulation
    offset_ns: int = 0
    ppm: int = 0  # how much faster than the simulation's

    def __call__(self) -> int:
        now_ns = self.now_ns()
        return self.offset_ns + now_ns + now_ns * self.ppm // 10**6


@dataclass(frozen=True)
class Request:
    broker: str
    incarnation: int
    asked_ns: int  # by the broker's clock
    have_version: int
    applied: Mapping[str, int]
    held: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Answer:
    to: Request
    answer: SyncAnswer


class BrokerProcess:
    """One incarnation; ``remembered``: what the last one had on disk."""

    make_engine = GreedyEngine

    def __init__(self, name: str, incarnation: int, clock: Clock, remembered: SyncAnswer | None) -> None:
        self.name, self.incarnation, self.clock, self.remembered = name, incarnation, clock, remembered
        self.is_stopped = False
        self.engine = self.make_engine(clock.now_ns, clock)
        self.holder = LeaseHolder(self.engine)  # type: ignore[arg-type]  # it is an engine in all that matters
        if remembered is not None:
            self.holder.hold(remembered.topics, remembered.version)

    def request(self) -> Request:
        holder = self.holder
        return Request(self.name, self.incarnation, self.clock(), holder.version, holder.applied, holder.held)

    def take(self, answer: Answer) -> bool:
        """Whether it was put in force."""
        if answer.to.incarnation != self.incarnation:
            return False
        try:
            self.holder.apply(answer.answer, answer.to.asked_ns)
        except PeerError:  # older than what is in force
            return False
        if answer.answer.topics:
            self.remembered = answer.answer
        return True

    @property
    def share(self) -> Amount:
        return Amount(*self.engine.share_micro)

    def close(self) -> list[int]:
        """What it has let go."""
        self.engine.stop(0)
        return self.engine.released_ns


@dataclass
class Disk:
    """What a distributor has stored, and whose term it is."""

    topic: Topic
    version: int = 1
    term: int = 0
    incarnations: dict[str, int] = field(default_factory=dict)


class Book:
    """The term of one distributor: what ``Registry`` does about leases, without planning, SQL and HTTP."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        disk.term += 1
        self._disk, self._term, self._clock = disk, disk.term, clock
        self._started_ns = clock()
        self._heard_ns: dict[str, int] = {}
        self._desired_version: dict[str, int] = {}

    @property
    def is_sure(self) -> bool:
        """The election's promise: never two at a time."""
        return self._disk.term == self._term

    def hear(self, request: Request) -> Answer | None:
        known = self._disk.incarnations.get(request.broker, 0)
        if not self.is_sure or request.incarnation < known:
            return None
        reborn = 0 < known < request.incarnation
        self._disk.incarnations[request.broker] = request.incarnation
        brokers = {name: _broker(name) for name in self._disk.incarnations}
        update = BrokerUpdate(
            broker=brokers[request.broker],
            have_version=request.have_version,
            applied=request.applied,
            held=request.held,
            channels={},
        )
        topic, live = self._disk.topic, self.live() | {request.broker}
        context = UpdateContext(version=self._disk.version + 1, live=live, is_restart=reborn)
        self._commit(apply_broker_update(topic, update, context))
        self._heard_ns[request.broker] = self._clock()
        version = self._desired_version.get(request.broker, self._disk.version)
        self._desired_version[request.broker] = version
        if version == request.have_version:
            return Answer(request, SyncAnswer(version=version, unchanged=True))
        topics = [self._disk.topic]
        return Answer(
            request,
            desired.answer(
                version, request.have_version, request.broker, topics, [], brokers, unlimited, draining=False
            ),
        )

    def live(self) -> set[str]:
        return {name for name in self._heard_ns if self._silent_ns(name) <= LIVE_NS}

    def aim(self, target: Mapping[str, Amount]) -> None:
        self._change(lambda leases: leases.with_target(ENVELOPE, target))

    def last(self, lease_ms: int | None) -> None:
        self._change(lambda leases: leases.with_lease(lease_ms))

    def follow_mode(self, mode: Mode) -> None:
        """As an operator has it."""
        if self.is_sure:
            topic = self._disk.topic
            spec = replace(topic.spec, mode=mode)
            self._commit(replace(topic, spec=spec, leases=pooled_if_due(spec, topic.leases)))
            self._change(lambda leases: leases)

    def free(self, broker: str) -> None:
        """Proof of death, or its lease is over: its part of the target goes to the others. Who has none stays."""
        if not has_part(self._disk.topic, broker):
            return
        rest = {name: amount for name, amount in self._disk.topic.leases.target.items() if name != broker}
        target = spread(rest) if rest else self._disk.topic.leases.target
        self._change(lambda leases: leases.freed(broker).with_target(ENVELOPE, target))

    def tick(self) -> None:
        for broker in self._disk.topic.leases.expired(lambda name: self._silent_ns(name) / MS):
            self.free(broker)
        self._change(lambda leases: leases)

    def _change(self, change: Callable[[Leases], Leases]) -> None:
        if self.is_sure:
            leases = change(self._disk.topic.leases).advanced(self.live(), self._disk.version + 1)
            if leases is not self._disk.topic.leases:
                self._commit(replace(self._disk.topic, leases=leases, assignment_version=self._disk.version + 1))

    def _commit(self, new: Topic) -> None:
        old = self._disk.topic
        if new is old:
            return
        self._disk.version += 1
        self._disk.topic = new
        for name in self._heard_ns:
            if desired.changes_desired_state(old, new, name):
                self._desired_version[name] = self._disk.version

    def _silent_ns(self, name: str) -> int:
        return self._clock() - self._heard_ns.get(name, self._started_ns)


def spread(weights: Mapping[str, Amount]) -> dict[str, Amount]:
    """The envelope in proportion to the rates of ``weights``, exactly."""
    names, total = list(weights), sum(one.rate for one in weights.values())
    parts = {name: Amount(*(whole * weights[name].rate // total for whole in _PAIR)) for name in names}
    rest = ENVELOPE - sum(parts.values(), start=NOTHING)
    return {**parts, names[-1]: parts[names[-1]] + rest}


_PAIR = (ENVELOPE.rate, ENVELOPE.burst)


def _broker(name: str) -> Broker:
    return Broker(name=name, incarnation="", srtm_version="", tcp_address="", http_address="", mcap=0, accepting=True)


def new_disk(lease_ms: int | None, mode: Mode = "static") -> Disk:
    nobody = Placement(publishers=NO_PUBLISHERS, brokers=(), at=np.zeros(0, dtype=np.int64))
    leases = Leases(ENVELOPE, lease_ms=lease_ms)
    return Disk(Topic(spec=_spec(mode), version=1, placement=nobody, assignment_version=1, leases=leases))


def _spec(mode: Mode) -> TopicSpec:
    slo = {"percentile": 99, "latency_ms": 1}
    return parse_topic_json({"name": NAME, "rate": 100, "burst": 20, "mode": mode, "slo": slo})
