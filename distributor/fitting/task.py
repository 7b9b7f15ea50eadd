"""From a topic to a search for its layout. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from distributor.fitting.events import Begin, Layout, Scaler, Task
from distributor.fitting.search import fitted, proportional
from distributor.model.cluster import Placement, Topic
from distributor.model.columns import NOWHERE
from distributor.model.full_brokers import CapacityCaps
from distributor.placement import planner
from distributor.placement.allocation import BrokerCapacity
from srtm.errors import BadInput
from srtm.topics.spec import TopicSpec

Method = Literal["on-breach", "always", "paper", "off"]
METHODS: tuple[Method, ...] = ("on-breach", "always", "paper", "off")
_ALIASES: Mapping[str, Method] = {"sequential": "always"}  # of stores and clients before on-breach
ROUNDS_S = 60.0
_LONGEST_ROUNDS_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class FittingOptions:
    """How a topic is fitted. Making one with a bad value raises BadInput."""

    method: Method = "on-breach"
    rounds_s: float = ROUNDS_S  # length of a round, under "paper"

    def __post_init__(self) -> None:
        if not 1 <= self.rounds_s <= _LONGEST_ROUNDS_S:
            raise BadInput("rounds_s", self.rounds_s, f"must be from 1 to {_LONGEST_ROUNDS_S:g} s")


def parsed_options(method: str, rounds_s: float) -> FittingOptions:
    """Raises BadInput."""
    for known in METHODS:
        if _ALIASES.get(method, method) == known:
            return FittingOptions(method=known, rounds_s=rounds_s)
    raise BadInput("fitting", method, f"must be one of {', '.join(METHODS)}")


def begin_of(
    topic: Topic,
    brokers: Sequence[BrokerCapacity],
    *,
    scaler: Scaler,
    caps: CapacityCaps,
    others: Mapping[str, float],
    pinned: Mapping[str, str],
) -> Begin:
    """The event with which a search begins.

    ``others``: {broker: msg/s of other topics that it lets go}. ``pinned``: {publisher that stays where it is:
    its broker}.
    """
    spec = topic.spec
    positions = spec.publishers.positions
    task = Task(
        demand=planner.demand(spec, topic.burst),
        percentile=spec.slo.percentile,
        target_ns=spec.slo.latency_ns,
        strategy=spec.placement,
        scaler=scaler,
        full=caps.limits(spec.slo, spec.publishers, topic.placement.assigned),
        others=others,
        pinned={positions[one]: broker for one, broker in pinned.items() if one in positions},
    )
    # Whatever else changes the topic's shares splits them that way: a fit must not end with the next stranger.
    split = fitted(spec.publishers, spec.slo.percentile) if spec.split == "fitted" else proportional
    return Begin(task=task, brokers=brokers, split=split, in_force=layout_in_force(topic))


def is_same_task(old: TopicSpec, new: TopicSpec) -> bool:
    """Whether what was found for ``old`` holds for ``new``: who proposes shares, and how, is another matter; but where
    brokers exchange tokens, shares are issued and measured otherwise."""
    return _what_is_fitted(old) == _what_is_fitted(new)


def _what_is_fitted(spec: TopicSpec) -> tuple[object, ...]:
    return spec.publishers, spec.rate, spec.burst, spec.slo, spec.split, spec.placement, spec.seed, spec.mode == "gdrl"


def layout_in_force(topic: Topic) -> Layout | None:
    """None: nobody is anywhere, or a broker has no share yet."""
    placement, target = topic.placement, topic.leases.target
    if not placement.brokers or not target.keys() >= set(placement.brokers):
        return None
    shares = tuple((target[name].rate, target[name].burst) for name in placement.brokers)
    return Layout(brokers=placement.brokers, placement=placement.at, shares_micro=shares)


def placement_of(topic: Topic, layout: Layout) -> Placement:
    """Brokers without a publisher are left out: a placement names none."""
    used = np.unique(layout.placement[layout.placement >= 0])
    renumbered = np.full(len(layout.brokers) + 1, -1, dtype=np.int64)  # the last entry is that of NOWHERE
    renumbered[used] = np.arange(len(used))
    brokers = tuple(layout.brokers[at] for at in used.tolist())
    return Placement(publishers=topic.spec.publishers, brokers=brokers, at=renumbered[layout.placement])


def moves_between(old: Placement, new: Placement) -> int:
    """How many publishers of a topic have another broker in ``new``."""
    index = {name: at for at, name in enumerate(new.brokers)}
    names = np.array([*(index.get(name, len(index)) for name in old.brokers), NOWHERE], dtype=np.int64)
    return int(np.count_nonzero(names[old.at] != new.at))
