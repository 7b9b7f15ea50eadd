"""Clients that publish to several topics: a connection of MQTT is at one broker, so they are placed as one. Pure.

A client's *home* is the broker where most of its rate is, over all topics. A topic is placed after the others, so it
looks for room there. Only topics with MQTT filters count: NSQ's publishers have a connection for each topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from distributor.model.cluster import Placement, Topic
from distributor.model.columns import NOWHERE, ROUNDING, Floats, Ints
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.reasons import SEVERAL_TOPICS
from srtm.text import plural
from srtm.topics.spec import TopicSpec

NO_HOMES: Mapping[str, str] = {}
_MOST_NAMED = 3  # clients in a warning


def homes(spec: TopicSpec, topics: Iterable[Topic], usable: Collection[str]) -> dict[str, str]:
    """{publisher: its home}, of the publishers of ``spec`` that another of ``topics`` has on a ``usable`` broker.

    Where two brokers have equal rates of it, the one that ``spec``'s topic has now counts.
    """
    if not spec.mqtt.filters:
        return {}
    ids, names = spec.publishers.ids, sorted(usable)
    known = {topic.name: topic.placement for topic in topics if topic.spec.mqtt.filters}
    own, others = known.pop(spec.name, None), [_places(ids, placement, names) for placement in known.values()]
    elsewhere = np.unique(np.concatenate([places.publishers for places in others])) if others else np.zeros(0)
    if not len(elsewhere):
        return {}
    every = [_places(ids, own, names), *others] if own is not None else others
    cells = np.concatenate([places.publishers * len(names) + places.brokers for places in every])
    cells, first, of_cell = np.unique(cells, return_index=True, return_inverse=True)
    sums = np.bincount(of_cell, weights=np.concatenate([places.rates for places in every]))
    order = np.lexsort((first, -sums, cells // len(names)))  # by publisher, then the most of its rate
    publishers, best = np.unique(cells[order] // len(names), return_index=True)
    brokers = cells[order][best] % len(names)
    is_shared = np.isin(publishers, elsewhere)
    pairs = zip(publishers[is_shared].tolist(), brokers[is_shared].tolist(), strict=True)
    return {ids[at]: names[broker] for at, broker in pairs}


class _Places(NamedTuple):
    """Where publishers of a topic are in another one, as columns: indices of publishers and brokers, msg/s."""

    publishers: Ints
    brokers: Ints
    rates: Floats


def _places(ids: Sequence[str], placement: Placement, names: Sequence[str]) -> _Places:
    known, index = placement.publishers.positions, {name: at for at, name in enumerate(names)}
    there = np.array([known.get(client, NOWHERE) for client in ids], dtype=np.int64)
    brokers = np.array([*(index.get(name, NOWHERE) for name in placement.brokers), NOWHERE], dtype=np.int64)
    at = brokers[np.append(placement.at, NOWHERE)[there]]  # the last entries are those of NOWHERE
    who = np.flatnonzero(at != NOWHERE)
    return _Places(who, at[who], placement.publishers.rates[there[who]])


def held_or_home(
    spec: TopicSpec, held: Sequence[str | None], homes: Mapping[str, str], offered: Sequence[BrokerCapacity]
) -> list[str | None]:
    """``held`` (the broker of each publisher of ``spec``, or None) with homes that have room for those without any."""
    with_room = {broker.name for broker in offered if broker.rcap > 0}
    usable = {client: home for client, home in homes.items() if home in with_room}
    return [broker or usable.get(client) for client, broker in zip(spec.publishers.ids, held, strict=True)]


def at_homes(
    placement: Placement, homes: Mapping[str, str], offered: Sequence[BrokerCapacity], most_brokers: float
) -> Placement:
    """``placement`` with clients at their ``homes``, as far as there is room; those of the largest rates come first.

    ``most_brokers``: on no more than these, unless there are more already. The same object if nobody moves.
    """
    publishers = placement.publishers
    rooms = {broker.name: broker.rcap for broker in offered}
    load, brokers, to = dict(placement.assigned), set(placement.brokers), dict[str, str]()
    astray = sorted(publishers.positions[client] for client in _away(placement, homes))
    for at in sorted(astray, key=lambda at: -publishers.rates[at]):
        client, rate = publishers.ids[at], float(publishers.rates[at])
        home = homes[client]
        has_room = load.get(home, 0.0) + rate <= rooms.get(home, 0.0) + ROUNDING
        if not has_room or len(brokers | {home}) > max(most_brokers, len(brokers)):
            continue
        to[client] = home
        brokers.add(home)
        load[home] = load.get(home, 0.0) + rate
        load[placement.brokers[placement.at[at]]] -= rate
    return placement.moved(to) if to else placement


def _away(placement: Placement, homes: Mapping[str, str]) -> list[str]:
    return [client for client, home in homes.items() if placement.broker_of(client) not in (None, home)]


def reasons(placement: Placement, homes: Mapping[str, str]) -> list[str]:
    """For people: how many clients of several topics have one place, and who has none for lack of room."""
    away = sorted(_away(placement, homes), key=placement.publishers.positions.__getitem__)
    met = sum(placement.broker_of(client) == home for client, home in homes.items())
    lines = [f"{SEVERAL_TOPICS}{met:,} placed at the broker of their other topics"] if met else []
    if away:
        some = [f"{client} ({homes[client]})" for client in away[:_MOST_NAMED]]
        more = [f"{len(away) - len(some):,} more"] if len(away) > len(some) else []
        lines.append(
            f"warning: {len(away):,} {plural(len(away), 'client')} of several topics: no room at the broker of the "
            f"other topics for {', '.join([*some, *more])}. Over MQTT such a client stays at one broker"
        )
    return lines
