"""How many publishers a broker must give up to keep its promise again, which ones, and who can take them. Pure.

The model is that of heavy traffic: the delay of a broker that could carry C and gets x grows as 1 / (C - x). C is
known in a laboratory; elsewhere a broker that breaks its promise is taken to be close to it. It says how many to try,
no more: what counts is what is measured afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from distributor.fitting.retention import fair_order
from distributor.model.columns import Ints
from distributor.relief.values import TopicView, View
from srtm.topics.publishers import Publishers

CLEAR = 0.9  # of a promise: what shall come out
CALM = 0.7  # of a promise: whoever is beyond that takes nobody
_LEAST_SLACK = 0.02  # of what it gets: so much more a broker could carry, if nobody knows
_LARGEST_STEP = 0.5  # of a broker's part: what a model of an overloaded broker says beyond that is not to be believed


def to_shed(view: View, topic: TopicView, source: str) -> float:
    """Msg/s of ``topic`` to take off ``source``."""
    broker, part = view.brokers[source], topic.parts[source]
    slack = _slack(broker.load, broker.capacity)
    least = slack * (part.processing_ms / (CLEAR * topic.promise_ms) - 1)
    least = max(least, broker.load - CLEAR * broker.capacity)  # what has queued up must drain
    return min(max(least, 0.0), _LARGEST_STEP * part.rate)


def chosen(topic: TopicView, source: str, rate: float, without: Collection[str], most: int) -> list[str]:
    """The fewest publishers on ``source`` that send ``rate``, in proportion from every group, the large ones first; at
    least one, at most ``most``. ``without``: those that stay."""
    columns, here = topic.placement.publishers, np.flatnonzero(topic.placement.at == _index(topic, source))
    members = [at for at in here.tolist() if columns.ids[at] not in without]
    if not members:
        return []
    order = _large_first(np.array(members, dtype=np.int64), columns)
    declared = float(columns.rates[here].sum())
    wanted = rate * declared / max(topic.parts[source].rate, 1e-9)  # they may send more or less than they said
    count = int(np.searchsorted(np.cumsum(columns.rates[order]), wanted * (1 - 1e-9))) + 1
    return [columns.ids[at] for at in order[: min(count, most)].tolist()]


def _large_first(members: Ints, columns: Publishers) -> Ints:
    """In proportion from every group among those whose rates are alike, by powers of two."""
    size = np.floor(np.log2(columns.rates[members]))
    return np.concatenate([fair_order(members[size == one], columns.groups) for one in np.unique(size)[::-1]])


def rate_of(topic: TopicView, source: str, publishers: Collection[str]) -> float:
    """Msg/s that they send: what ``source`` lets go of theirs, or what they said, for an overloaded broker lets go less
    than comes."""
    columns = topic.placement.publishers
    declared = topic.placement.assigned.get(source, 0.0)
    theirs = sum(float(columns.rates[columns.positions[one]]) for one in publishers)
    return max(theirs, theirs * topic.parts[source].rate / declared) if declared else 0.0


def destination(view: View, name: str, source: str, rate: float, without: Collection[str]) -> str | None:
    """Who can take ``rate`` of topic ``name`` from ``source`` and keep all promises: rather a broker that has a part of
    it, rather the calmest. ``without``: brokers that are not to be asked."""
    topic = view.topics[name]
    best: tuple[bool, float, str] | None = None
    for broker, about in view.brokers.items():
        new = broker not in topic.placement.brokers
        if broker == source or broker in without or not about.takes_more or about.room < rate:
            continue
        if new and len({*topic.placement.brokers, *topic.extra_brokers, broker}) > math.floor(topic.burst):
            continue
        strain = _strain(view, topic, source, broker, rate)
        if strain <= CLEAR and (best is None or (new, strain, broker) < best):
            best = (new, strain, broker)
    return None if best is None else best[2]


def _strain(view: View, topic: TopicView, source: str, broker: str, more: float) -> float:
    """The largest delay on ``broker`` with ``more`` msg/s, as a part of its promise; infinite if it takes nobody."""
    about, giver = view.brokers[broker], view.brokers[source]
    # Brokers are taken for alike: no more than what one was seen to carry is expected of another.
    capacity = about.capacity if math.isfinite(about.capacity) else giver.load
    left = capacity - about.load - more
    if left <= 0:
        return math.inf
    part = topic.parts[source]
    worst = _slack(giver.load, giver.capacity) * part.processing_ms / left / topic.promise_ms
    worst = 0.0 if topic.is_measured(broker) else worst
    for other in view.topics.values():
        if other.is_measured(broker):
            now = other.parts[broker].promised_ms / other.promise_ms
            worst = max(worst, math.inf if now > CALM else now * (capacity - about.load) / left)
    return worst


def _slack(load: float, capacity: float) -> float:
    return max(_LEAST_SLACK * load, capacity - load if math.isfinite(capacity) else 0.0)


def _index(topic: TopicView, broker: str) -> int:
    brokers = topic.placement.brokers
    return brokers.index(broker) if broker in brokers else len(brokers)
