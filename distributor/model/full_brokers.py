"""Measured capacity caps: which brokers are full, for which promise and which kind of traffic. Pure.

Capacity depends on what is asked: a broker that is full for bursts within 1 ms may take any number
of single messages within 10 ms. A fitting measures a cap. The cap holds until a publisher leaves the broker, unless the
same fitting moved that publisher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from srtm.topics.publishers import Process, Publishers
from srtm.topics.spec import Slo


@dataclass(frozen=True, kw_only=True)
class TrafficClass:
    """What changes the capacity of a broker, besides the rate."""

    process: Process  # of most publishers
    batch: int  # messages, largest
    group: int  # publishers in the largest correlation group


def traffic_class(publishers: Publishers) -> TrafficClass:
    """The class of the traffic of ``publishers``."""
    in_groups = publishers.groups[publishers.groups >= 0]
    _, sizes = np.unique(in_groups, return_counts=True)
    return TrafficClass(
        process="periodic" if publishers.periodic.sum() * 2 > len(publishers) else "poisson",
        batch=publishers.largest_batch,
        group=int(sizes.max(initial=1)),
    )


@dataclass(frozen=True)
class CapacityCaps:
    """The highest rate of full brokers, msg/s, by broker, promise and traffic class. Immutable."""

    rates: Mapping[tuple[str, Slo, TrafficClass], float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def brokers(self) -> list[str]:
        """Brokers that have a cap."""
        return list(dict.fromkeys(name for name, *_ in self.rates))

    def of(self, slo: Slo, traffic: TrafficClass) -> dict[str, float]:
        """{broker: msg/s that it can serve} of the brokers that are full for this promise and traffic."""
        return {name: rate for (name, *what), rate in self.rates.items() if what == [slo, traffic]}

    def limits(self, slo: Slo, publishers: Publishers, assigned: Mapping[str, float]) -> dict[str, float]:
        """{broker: msg/s that a topic may have there} of the brokers that are full.

        ``assigned``: {broker: msg/s that the topic has there now}. A cap keeps new publishers out. It does not drive
        out publishers that were there when another topic measured it.
        """
        if not self.rates:
            return {}
        caps = self.of(slo, traffic_class(publishers))
        return {name: max(rate, assigned.get(name, 0.0)) for name, rate in caps.items()}

    def with_caps(self, slo: Slo, traffic: TrafficClass, rates: Mapping[str, float]) -> CapacityCaps:
        """With ``rates`` ({broker: msg/s}) for this promise and traffic."""
        return CapacityCaps({**self.rates, **{(name, slo, traffic): rate for name, rate in rates.items()}})

    def merged(self, newer: CapacityCaps) -> CapacityCaps:
        """With the caps of ``newer``, which replace earlier ones of the same key."""
        return CapacityCaps({**self.rates, **newer.rates}) if newer.rates else self

    def without(self, broker: str) -> CapacityCaps:
        """Without the caps of ``broker``."""
        return CapacityCaps({key: rate for key, rate in self.rates.items() if key[0] != broker})


NO_CAPS = CapacityCaps()
