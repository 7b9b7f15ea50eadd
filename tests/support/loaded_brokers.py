"""Brokers in virtual time that get slower with their load, as seen through reports over the last ten seconds, and a
policy that moves publishers between them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from distributor.model.cluster import Placement
from distributor.relief.policy import Relief
from distributor.relief.values import BrokerView, Note, Part, Rules, Shift, TopicView, View
from srtm.topics.spec import TopicSpec

WINDOW_S = 10
TICK_S = 2  # between reports


@dataclass
class Server:
    """Delay at the percentile: ``base_ms`` when idle, growing as 1 / (capacity - load); a queue beyond it."""

    capacity: float
    base_ms: float = 0.2
    stall_ms: float = 0.0  # whatever the load
    queue: float = 0.0
    recent_ms: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_S // TICK_S))

    def tick(self, load: float) -> None:
        self.queue = max(0.0, self.queue + TICK_S * (load - self.capacity))
        free = max(1 - load / self.capacity, 0.01)
        self.recent_ms.append(self.stall_ms + self.base_ms / free + 1e3 * self.queue / self.capacity)


@dataclass
class Topic:
    spec: TopicSpec
    at: dict[str, str]
    factor: dict[str, float] = field(default_factory=dict)  # {publisher: times what it has declared}
    access_ms: dict[str, float] = field(default_factory=dict)  # {broker: ...}
    busy: bool = False

    def __post_init__(self) -> None:
        self.changed()

    def changed(self) -> None:
        """``at`` or ``factor`` is another now."""
        columns = self.spec.publishers
        brokers = tuple(sorted(set(self.at.values())))
        at = np.array([brokers.index(self.at[one]) for one in columns.ids], dtype=np.int64)
        factor = np.array([self.factor.get(one, 1.0) for one in columns.ids])
        sums = np.bincount(at, weights=columns.rates * factor, minlength=len(brokers))
        self.loads = dict(zip(brokers, sums.tolist(), strict=True))
        self.placement = Placement(publishers=columns, brokers=brokers, at=at)


@dataclass
class World:
    servers: dict[str, Server]
    topics: dict[str, Topic]
    rules: Rules = field(default_factory=Rules)
    known: bool = False  # whether capacities are known, as in a laboratory
    now_s: float = 0.0
    shifts: list[tuple[float, Shift]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.relief = Relief(self.rules)

    def load(self, broker: str) -> float:
        return sum(topic.loads.get(broker, 0.0) for topic in self.topics.values())

    def delay_ms(self, broker: str) -> float:
        return max(self.servers[broker].recent_ms)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now_s += TICK_S
            for name, server in self.servers.items():
                server.tick(self.load(name))
            for action in self.relief.look(self.now_s, self.view()):
                if isinstance(action, Note):
                    self.notes.append(action)
                else:
                    self.shifts.append((self.now_s, action))
                    self.topics[action.topic].at |= action.to
                    self.topics[action.topic].changed()

    def view(self) -> View:
        brokers = {
            name: BrokerView(
                load=self.load(name) * self._let_go(name), **({"capacity": server.capacity} if self.known else {})
            )
            for name, server in self.servers.items()
        }
        return View(topics={name: self._seen(topic) for name, topic in self.topics.items()}, brokers=brokers)

    def _let_go(self, broker: str) -> float:
        """Of what comes. A laboratory's server, whose capacity is known, stands behind the bucket that counts; else
        nobody lets go more than can be carried."""
        load = self.load(broker)
        return 1.0 if self.known or not load else min(1.0, self.servers[broker].capacity / load)

    def _seen(self, topic: Topic) -> TopicView:
        parts = {}
        for broker in topic.loads:
            processing_ms, access_ms = self.delay_ms(broker), topic.access_ms.get(broker, 0.0)
            rate = topic.loads[broker] * self._let_go(broker)
            parts[broker] = Part(
                rate=rate,
                count=round(rate * WINDOW_S),
                access_ms=access_ms,
                processing_ms=processing_ms,
                total_ms=access_ms + processing_ms,
            )
        slo = topic.spec.slo
        return TopicView(
            percentile=slo.percentile,
            promise_ms=slo.latency_ms,
            burst=30.0,
            placement=topic.placement,
            parts=parts,
            busy=topic.busy,
        )


def hurried() -> Rules:
    """Without a budget that matters."""
    return Rules(topic_moves=10_000, moves=10_000)
