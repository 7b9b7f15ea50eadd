"""What every broker has: whose publishers, how many messages of them, under which promises. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from distributor.state import Topic
from srtm.capacity import Class, class_of
from srtm.topic import Slo, TopicSpec


@dataclass(frozen=True, eq=False)
class BrokerLoad:
    """Of one broker."""

    rates: Mapping[str, float] = field(default_factory=dict)  # {topic: msg/s of its publishers there}
    specs: Mapping[str, TopicSpec] = field(default_factory=dict)  # of the same topics

    @cached_property
    def allocated(self) -> float:
        """Msg/s."""
        return sum(self.rates.values())

    def allocated_besides(self, topic: str) -> float:
        """Msg/s of all topics but this one."""
        if topic not in self.rates:
            return self.allocated
        return sum(rate for name, rate in self.rates.items() if name != topic)

    def promised(self, besides: str = "") -> Iterator[tuple[Slo, Class]]:
        """What its topics, but for the one named, were promised, and how they send."""
        return ((spec.slo, class_of(spec.publishers)) for name, spec in self.specs.items() if name != besides)


NO_LOAD = BrokerLoad()


def loads_of(topics: Iterable[Topic]) -> dict[str, BrokerLoad]:
    """{broker: its load}, of those that have publishers."""
    rates: dict[str, dict[str, float]] = {}
    specs: dict[str, dict[str, TopicSpec]] = {}
    for topic in topics:
        for broker, rate in {} if topic.removed else topic.placement.assigned.items():
            if rate > 0:
                rates.setdefault(broker, {})[topic.name] = rate
                specs.setdefault(broker, {})[topic.name] = topic.spec
    return {broker: BrokerLoad(there, specs[broker]) for broker, there in rates.items()}
