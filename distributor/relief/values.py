"""What the policy of ``relief`` sees and says: values only. Rates are msg/s, delays ms at the percentile of the topic's
promise."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from distributor.config import DistributorConfig
from distributor.model.cluster import Placement

_ENOUGH_LATE = 1.5  # as many late messages as make a percentile: 150 for p99


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Settings, with the reason for each default."""

    grace_s: float = 15.0  # reports cover the last 10 s: what passes by itself within 5 s is nobody's fault
    observe_s: float = 12.0  # after each step: reports cover the last 10 s, which must all lie behind it
    canary: float = 0.02  # of a broker's publishers: enough to be seen, few enough to be harmless
    topic_moves: int = 200  # publishers of one topic a minute
    moves: int = 1000  # of all topics
    publisher_cool_down_s: float = 600.0  # one that was moved stays
    broker_cool_down_s: float = 300.0  # who has given does not take, who has taken does not give; also after a failure


def rules_of(config: DistributorConfig) -> Rules:
    return Rules(
        grace_s=config.relief_grace_s,
        topic_moves=config.relief_moves,
        moves=5 * config.relief_moves,
        publisher_cool_down_s=2 * config.relief_cool_down_s,
        broker_cool_down_s=config.relief_cool_down_s,
    )


@dataclass(frozen=True, kw_only=True)
class Part:
    """A topic on one broker over the last seconds, as reported."""

    rate: float  # let go
    count: int = 0  # of the messages that the delays are of
    access_ms: float = 0.0
    processing_ms: float = 0.0
    total_ms: float = 0.0  # with the wait for subscribers, which no promise covers

    @property
    def promised_ms(self) -> float:
        """What the promise covers: both parts, whose percentiles may add up to more than that of their sum."""
        return min(self.total_ms, self.access_ms + self.processing_ms)


@dataclass(frozen=True, kw_only=True)
class TopicView:
    percentile: float
    promise_ms: float
    burst: float  # b, messages
    placement: Placement
    parts: Mapping[str, Part]
    extra_brokers: Collection[str] = ()  # brokers that have a share for publishers that the topic does not name
    busy: bool = False  # being fitted, or publishers or tokens are on their way: not to be judged now

    def is_measured(self, broker: str) -> bool:
        part = self.parts.get(broker)
        return part is not None and part.count * (1 - self.percentile / 100) >= _ENOUGH_LATE

    def is_broken(self, broker: str) -> bool:
        return self.is_measured(broker) and self.parts[broker].promised_ms > self.promise_ms

    def is_processing(self, broker: str) -> bool:
        """Whether it is the load of the broker that makes messages late there; else their share."""
        return self.parts[broker].processing_ms > self.parts[broker].access_ms


@dataclass(frozen=True, kw_only=True)
class BrokerView:
    load: float  # of all topics
    capacity: float = math.inf  # at which its queues grow without end, where that is known
    room: float = math.inf  # that it may still be given
    takes_more: bool = True


@dataclass(frozen=True, kw_only=True)
class View:
    topics: Mapping[str, TopicView]
    brokers: Mapping[str, BrokerView]


class Step(Enum):
    CANARY = "canary"
    REST = "rest"
    BACK = "rollback"


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Publishers of ``topic`` that are to have another place: {publisher: broker}."""

    topic: str
    step: Step
    to: Mapping[str, str]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Note:
    """For the decision log."""

    topic: str
    text: str


Action = Shift | Note
