"""Which brokers are full, and for what: the rate that each was found to keep, per SLO and traffic class. Pure.

Capacity depends on what is asked (design section 5): a broker that is full for bursts within 1 ms may take any number
of single messages within 10. A mark holds until something leaves the broker, other than what the fitting that found it
full moves to others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from distributor.fitting.events import Layout, Task
from distributor.fitting.layout_model import Model
from srtm.topics.publishers import Process, Publishers
from srtm.topics.spec import Slo


@dataclass(frozen=True, kw_only=True)
class TrafficClass:
    """What moves capacity besides the rate."""

    process: Process  # of most publishers
    batch: int  # largest
    group: int  # publishers of the largest correlation group


def traffic_class(publishers: Publishers) -> TrafficClass:
    named = publishers.groups[publishers.groups >= 0]
    _, sizes = np.unique(named, return_counts=True)
    return TrafficClass(
        process="periodic" if publishers.periodic.sum() * 2 > len(publishers) else "poisson",
        batch=publishers.largest_batch,
        group=int(sizes.max(initial=1)),
    )


@dataclass(frozen=True)
class FullMarks:
    """A value: changes make another."""

    kept: Mapping[tuple[str, Slo, TrafficClass], float] = field(default_factory=lambda: MappingProxyType({}))  # msg/s

    @property
    def brokers(self) -> list[str]:
        return list(dict.fromkeys(name for name, *_ in self.kept))

    def of(self, slo: Slo, traffic: TrafficClass) -> dict[str, float]:
        """{broker: msg/s that it keeps}, of those that are full."""
        return {name: rate for (name, *what), rate in self.kept.items() if what == [slo, traffic]}

    def room(self, slo: Slo, publishers: Publishers, has: Mapping[str, float]) -> dict[str, float]:
        """{broker: msg/s that a topic may have there}, of those that are full. ``has``: what the topic has there now:
        a mark keeps newcomers out, and drives nobody away who was there when another topic met it."""
        if not self.kept:
            return {}
        return {name: max(rate, has.get(name, 0.0)) for name, rate in self.of(slo, traffic_class(publishers)).items()}

    def marked(self, slo: Slo, traffic: TrafficClass, full: Mapping[str, float]) -> FullMarks:
        return FullMarks({**self.kept, **{(name, slo, traffic): rate for name, rate in full.items()}})

    def joined(self, found: FullMarks) -> FullMarks:
        """With those of ``found``, which replace earlier ones."""
        return FullMarks({**self.kept, **found.kept}) if found.kept else self

    def lifted(self, broker: str) -> FullMarks:
        """Something has left ``broker``."""
        return FullMarks({key: rate for key, rate in self.kept.items() if key[0] != broker})


NO_MARKS = FullMarks()


def rate_on(task: Task, layout: Layout, broker: str) -> float:
    """Msg/s of the topic that ``broker`` has under ``layout``."""
    if broker not in layout.brokers:
        return 0.0
    return float(task.demand.rates[layout.placement == layout.brokers.index(broker)].sum())


def kept_by(
    task: Task, layout: Layout, gave_up: Collection[str], aborted: Collection[str], model: Model | None
) -> dict[str, float]:
    """{broker: msg/s that it keeps}, of those in ``gave_up``. Where another topic needed it (``aborted``): what it kept
    then. Else what the model says that it can process within the target, and at least what it has under ``layout``;
    one of which neither is known, or that could keep all of the topic, is not full."""
    full = {}
    for name in gave_up:
        kept = rate_on(task, layout, name)
        if name in aborted:
            full[name] = task.full[name]
            continue
        kept = kept if model is None else max(kept, model.keepable(name))
        if 0 < kept < float(task.demand.rates.sum()):
            full[name] = kept
    return full
