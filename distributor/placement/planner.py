"""From a topic's spec and the known brokers to a placement. Pure.

``allocation`` decides where publishers go, on columns of numbers. Here it meets topics and brokers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from distributor.model.broker_load import NO_LOAD, BrokerLoad
from distributor.model.cluster import Broker, Placement, Topic
from distributor.placement import joint
from distributor.placement.allocation import BrokerCapacity, Demand, Plan, place_more, plan
from distributor.placement.joint import NO_HOMES
from distributor.placement.promise_sizing import NO_SERVICES, PromiseSizing, auto_burst, most_burst
from distributor.placement.reasons import reasons_after_move
from srtm.token_bucket.assumed_capacity import assumed_mcap
from srtm.token_bucket.burst_sizing import smallest_burst
from srtm.topics.capacity import Capacity, class_of, effective_mcap
from srtm.topics.spec import TopicSpec


class TopicPlan(NamedTuple):
    """Where the publishers of a topic go, and why."""

    burst: float  # b, messages
    placement: Placement
    reasons: tuple[str, ...]


def capacities(
    brokers: Iterable[Broker],
    usable: Collection[str],
    loads: Mapping[str, BrokerLoad],
    spec: TopicSpec,
    measured: Mapping[str, Sequence[Capacity]],
) -> list[BrokerCapacity]:
    """All brokers as allocation sees them when it places the topic of ``spec``.

    A broker that is not ``usable`` has no room for anything new. Of a broker's ``measured`` capacities the one counts
    that suits the hardest of its promises and traffic classes, this topic's included. Without any, it is assumed.
    """
    asked = (spec.slo, class_of(spec.publishers))
    found = []
    for broker in brokers:
        if broker.name not in usable:
            found.append(BrokerCapacity(name=broker.name, mcap=1.0, allocated=1.0))
            continue
        load = loads.get(broker.name, NO_LOAD)
        promises = list(itertools.chain([asked], load.promised(without=spec.name)))
        mcap = effective_mcap(broker.mcap, measured.get(broker.name, ()), promises)
        mcap = mcap or assumed_mcap(slo for slo, _ in promises)
        found.append(BrokerCapacity(name=broker.name, mcap=mcap, allocated=load.allocated_to_others(spec.name)))
    return found


def demand(spec: TopicSpec, burst: float) -> Demand:
    """What allocation must know of the topic of ``spec``."""
    columns = spec.publishers
    return Demand(
        rates=columns.rates,
        groups=columns.groups,
        rate=spec.rate,
        burst=burst,
        batches=columns.batches,
        periodic=columns.periodic,
    )


def burst_of(spec: TopicSpec) -> float:
    """b, messages: the number in the spec, what "paper" comes to, or the most that "auto" may come to (``sized``)."""
    if spec.burst == "paper":
        return float(smallest_burst(spec.publishers, spec.rate, spec.slo.percentile))
    if spec.burst == "auto":
        return max(most_burst(spec), float(spec.publishers.largest_batch))
    return spec.burst


def sized(spec: TopicSpec, plan: TopicPlan, brokers: int, services: Mapping[str, int] = NO_SERVICES) -> TopicPlan:
    """``plan`` with the burst that "auto" comes to for its placement, of so many ``brokers`` in all.

    ``services``: as in ``PromiseSizing``. Raises BadInput if the burst is too large.
    """
    return plan._replace(burst=auto_burst(spec, plan.placement, brokers, services)) if spec.burst == "auto" else plan


def with_burst(spec: TopicSpec, old: Topic | None, services: Mapping[str, int] = NO_SERVICES) -> TopicSpec:
    """``spec`` with a number for its burst, but for an "auto" that depends on the placement.

    Reuses the burst of ``old`` if nothing has changed that it depends on. Of ``services`` (ns a message, by broker)
    only those matter that make a larger burst needed, and allowed.
    """
    if old is not None and not old.removed and _same_envelope(old.spec, spec) and not _needs_more(old, services):
        return replace(spec, burst=old.burst)
    return spec if spec.burst == "auto" else replace(spec, burst=burst_of(spec))


def _needs_more(old: Topic, services: Mapping[str, int]) -> bool:
    if old.spec.burst != "auto" or not services.keys() & set(old.placement.brokers):
        return False
    sizing = PromiseSizing(spec=old.spec, placement=old.placement, services=services)
    needed = sizing.smallest_burst(old.spec.rate)
    return needed is not None and old.burst < needed <= most_burst(old.spec)


def _same_envelope(old: TopicSpec, new: TopicSpec) -> bool:
    return _envelope_of(old) == _envelope_of(new) and old.publishers == new.publishers


def _envelope_of(spec: TopicSpec) -> tuple[object, ...]:
    if spec.burst == "auto":
        return spec.burst, spec.rate, spec.slo, spec.max_burst_s, spec.split, spec.placement, spec.seed
    return spec.burst, spec.rate, spec.slo.percentile


def place_anew(
    spec: TopicSpec,
    offered: Sequence[BrokerCapacity],
    homes: Mapping[str, str] = NO_HOMES,
    services: Mapping[str, int] = NO_SERVICES,
) -> TopicPlan:
    """Place all publishers, wherever they were before. ``homes``: as in ``place_rest``; ``services``: as in
    ``sized``."""
    if homes:
        return place_again(spec, offered, [None] * len(spec.publishers), homes, services)
    return _placed_and_sized(spec, len(offered), services, lambda burst: _place_all(spec, burst, offered))


def _place_all(spec: TopicSpec, burst: float, offered: Sequence[BrokerCapacity]) -> TopicPlan:
    with_room = [broker for broker in offered if broker.rcap > 0]
    return _planned(spec, burst, plan(demand(spec, burst), with_room, spec.placement, spec.seed))


def place_again(
    spec: TopicSpec,
    offered: Sequence[BrokerCapacity],
    held: Sequence[str | None],
    homes: Mapping[str, str] = NO_HOMES,
    services: Mapping[str, int] = NO_SERVICES,
) -> TopicPlan:
    """Place publishers that have a broker in ``held``, or None, with the fewest moves. ``homes``: as in
    ``place_rest``; ``services``: as in ``sized``."""
    return _placed_and_sized(spec, len(offered), services, lambda burst: place_rest(spec, burst, offered, held, homes))


def _placed_and_sized(
    spec: TopicSpec, brokers: int, services: Mapping[str, int], place: Callable[[float], TopicPlan]
) -> TopicPlan:
    plan = place(burst_of(spec))
    if spec.burst != "auto":
        return plan
    roomy = (lambda: place(float(brokers)).placement) if plan.burst < brokers else None
    burst = auto_burst(spec, plan.placement, brokers, services, roomy)
    return plan._replace(burst=burst, reasons=place(burst).reasons)


def place_rest(
    spec: TopicSpec,
    burst: float,
    offered: Sequence[BrokerCapacity],
    held: Sequence[str | None],
    homes: Mapping[str, str] = NO_HOMES,
) -> TopicPlan:
    """Place publishers so that those with a broker in ``held`` move as little as the topic's principles allow.

    If they are on more brokers than ``burst`` has tokens for, all are placed anew. ``homes`` ({publisher: broker}, of
    ``joint``) come before the principles: whoever has one goes there if there is room.
    """
    held = joint.held_or_home(spec, held, homes, offered) if homes else held
    if not 0 < len({*held} - {None}) <= burst:
        return _at_homes(_place_all(spec, burst, offered), homes, offered)
    made = place_more(demand(spec, burst), offered, held, spec.placement)
    return _at_homes(_planned(spec, burst, made), homes, offered)


def _at_homes(plan: TopicPlan, homes: Mapping[str, str], offered: Sequence[BrokerCapacity]) -> TopicPlan:
    placement = joint.at_homes(plan.placement, homes, offered, plan.burst)
    reasons = plan.reasons
    if placement is not plan.placement:
        reasons = reasons_after_move(reasons, placement, plan.placement)
    return plan._replace(placement=placement, reasons=(*reasons, *joint.reasons(placement, homes)))


def with_pinned(plan: TopicPlan, pinned: Mapping[str, str]) -> TopicPlan:
    """``plan`` with publishers that do not move where they are: {publisher: broker}."""
    known = plan.placement.publishers.positions
    to = {one: broker for one, broker in pinned.items() if one in known and plan.placement.broker_of(one) != broker}
    placement = plan.placement.moved(to) if to else plan.placement
    return plan._replace(placement=placement) if len(placement.brokers) <= plan.burst else plan


def _planned(spec: TopicSpec, burst: float, made: Plan) -> TopicPlan:
    placement = Placement(publishers=spec.publishers, brokers=made.brokers, at=made.placement)
    return TopicPlan(burst, placement, made.reasons)


def fits_placement(old: Topic, spec: TopicSpec, burst: float) -> bool:
    """Whether the placement of ``old`` is right for ``spec`` too: only the envelope, the promise or the like differ."""
    return (
        old.spec.publishers == spec.publishers
        and has_same_principles(old.spec, spec)
        and old.placement.state == "placed"
        and len(old.placement.brokers) <= burst
    )


def has_same_principles(old: TopicSpec, spec: TopicSpec) -> bool:
    """Whether a placement for ``spec`` may build on one that was made for ``old``."""
    return (old.placement, old.seed) == (spec.placement, spec.seed)
