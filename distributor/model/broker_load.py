"""The load of every broker: whose publishers, at which rate, under which promises. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from distributor.model.cluster import Topic
from srtm.topics.capacity import Class, class_of
from srtm.topics.spec import Slo, TopicSpec


@dataclass(frozen=True, eq=False)
class BrokerLoad:
    """The load of one broker."""

    rates: Mapping[str, float] = field(default_factory=dict)  # {topic: msg/s of its publishers there}
    specs: Mapping[str, TopicSpec] = field(default_factory=dict)  # of the same topics

    @cached_property
    def allocated(self) -> float:
        """Msg/s."""
        return sum(self.rates.values())

    def allocated_to_others(self, topic: str) -> float:
        """Msg/s of all topics but this one."""
        if topic not in self.rates:
            return self.allocated
        return sum(rate for name, rate in self.rates.items() if name != topic)

    def without(self, topic: str) -> BrokerLoad:
        rates, specs = dict(self.rates), dict(self.specs)
        rates.pop(topic, None)
        specs.pop(topic, None)
        return BrokerLoad(rates, specs)

    def with_topic(self, spec: TopicSpec, rate: float) -> BrokerLoad:
        """``rate``: msg/s of its publishers there, instead of those that it had."""
        return BrokerLoad({**self.rates, spec.name: rate}, {**self.specs, spec.name: spec})

    def has(self, spec: TopicSpec, rate: float) -> bool:
        """Whether it counts this topic with this spec and ``rate``."""
        return self.specs.get(spec.name) is spec and self.rates.get(spec.name) == rate

    def promised(self, without: str = "") -> Iterator[tuple[Slo, Class]]:
        """The promises and traffic classes of its topics, but for the one named ``without``."""
        return ((spec.slo, class_of(spec.publishers)) for name, spec in self.specs.items() if name != without)


NO_LOAD = BrokerLoad()
_MAX_FOLLOWED = 20  # changed topics; if there are more, all loads are summed anew


def loads_of(topics: Iterable[Topic]) -> dict[str, BrokerLoad]:
    """{broker: its load}, of those that have publishers."""
    rates: dict[str, dict[str, float]] = {}
    specs: dict[str, dict[str, TopicSpec]] = {}
    for topic in topics:
        for broker, rate in _rates_of(topic).items():
            rates.setdefault(broker, {})[topic.name] = rate
            specs.setdefault(broker, {})[topic.name] = topic.spec
    return {broker: BrokerLoad(by_topic, specs[broker]) for broker, by_topic in rates.items()}


def loads_after(
    loads: Mapping[str, BrokerLoad], changed: Collection[str], topics: Mapping[str, Topic]
) -> Mapping[str, BrokerLoad]:
    """``loads_of`` all ``topics``, from the ``loads`` before some of them changed.

    ``changed``: their names, also of topics that are gone. Most changes are of shares alone, and cost nothing here.
    """
    if len(changed) > _MAX_FOLLOWED:
        return loads_of(topics.values())
    found = dict(loads)
    for name in changed:
        topic = topics.get(name)
        rates = {} if topic is None else _rates_of(topic)
        for broker in [broker for broker, load in found.items() if name in load.rates and broker not in rates]:
            found[broker] = found[broker].without(name)
        if topic is not None:
            found.update(dict(_with_topic(found, topic.spec, rates)))
    return {broker: load for broker, load in found.items() if load.rates}


def _rates_of(topic: Topic) -> dict[str, float]:
    """{broker: msg/s of its publishers there}."""
    return {} if topic.removed else {broker: rate for broker, rate in topic.placement.assigned.items() if rate > 0}


def _with_topic(
    loads: Mapping[str, BrokerLoad], spec: TopicSpec, rates: Mapping[str, float]
) -> Iterator[tuple[str, BrokerLoad]]:
    """The new loads of the brokers on which the topic of ``spec`` has another rate or spec now."""
    for broker, rate in rates.items():
        load = loads.get(broker, NO_LOAD)
        if not load.has(spec, rate):
            yield broker, load.with_topic(spec, rate)
