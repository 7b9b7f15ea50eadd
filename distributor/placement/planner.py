"""From a topic's spec and the brokers that there are to a placement and a target for its shares. Pure.

``allocation`` decides where publishers go and ``leases`` when shares move; here the two meet what the registry knows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from distributor.model.broker_load import NO_LOAD, BrokerLoad
from distributor.model.cluster import Broker, Placement, Topic
from distributor.model.leases import MICRO, Amount
from distributor.placement.allocation import BrokerCapacity, Demand, Plan, place_more, plan
from srtm.errors import BadInput
from srtm.token_bucket.burst_sizing import smallest_burst
from srtm.token_bucket.exact_split import split_bucket
from srtm.token_bucket.fitted_split import Traffic, fitted_bucket
from srtm.topics.capacity import Capacity, class_of, effective_mcap
from srtm.topics.spec import TopicSpec

# Of the topic's rate, for a broker that has undeclared publishers only: the floor of design section 6.
STARVED_WEIGHT = 0.02
# Of the slack (r less all rates), for publishers that are on their way from one broker to another, which count at both.
_NAMED = 5  # topics in a refusal: who has a thousand cannot read them all
_FOR_MOVERS = 0.75

Astray = Mapping[str, Mapping[str, float]]  # as in ``state.Topic``


def capacities(
    brokers: Iterable[Broker],
    usable: Collection[str],
    loads: Mapping[str, BrokerLoad],
    spec: TopicSpec,
    measured: Mapping[str, Sequence[Capacity]],
) -> list[BrokerCapacity]:
    """All brokers as allocation sees them when it places the topic of ``spec``; those that are not ``usable`` now have
    no room for anything new. Of a broker's ``measured`` capacities that counts which suits the hardest of the promises
    and classes that it would have."""
    asked = (spec.slo, class_of(spec.publishers))
    found = []
    for broker in brokers:
        if broker.name not in usable:
            found.append(BrokerCapacity(name=broker.name, mcap=1.0, allocated=1.0))
            continue
        load = loads.get(broker.name, NO_LOAD)
        promised = itertools.chain([asked], load.promised(besides=spec.name))
        mcap = effective_mcap(broker.mcap, measured.get(broker.name, ()), promised)
        found.append(BrokerCapacity(name=broker.name, mcap=mcap, allocated=load.allocated_besides(spec.name)))
    return found


def demand(spec: TopicSpec, burst: float) -> Demand:
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
    """b, messages: as the spec says, or what "auto" comes to (which takes seconds for large topics)."""
    if spec.burst != "auto":
        return spec.burst
    return float(smallest_burst(spec.publishers, spec.rate, spec.slo.percentile))


def sized(spec: TopicSpec, old: Topic | None) -> TopicSpec:
    """With a number for its burst. ``old``: as the topic is placed now: what "auto" came to is known, where nothing has
    changed that it depends on."""
    if old is not None and not old.removed and _same_envelope(old.spec, spec):
        return replace(spec, burst=old.burst)
    return replace(spec, burst=burst_of(spec))


def _same_envelope(old: TopicSpec, new: TopicSpec) -> bool:
    before, now = (old.burst, old.rate, old.slo.percentile), (new.burst, new.rate, new.slo.percentile)
    return before == now and old.publishers == new.publishers


def place_anew(spec: TopicSpec, offered: Sequence[BrokerCapacity]) -> tuple[float, Placement, tuple[str, ...]]:
    """Burst, a placement that takes nothing as given, and why it is so."""
    burst = burst_of(spec)
    return burst, *_place_all(spec, burst, offered)


def _place_all(spec: TopicSpec, burst: float, offered: Sequence[BrokerCapacity]) -> tuple[Placement, tuple[str, ...]]:
    return _placement(
        spec, plan(demand(spec, burst), [one for one in offered if one.rcap > 0], spec.placement, spec.seed)
    )


def place_again(
    spec: TopicSpec, offered: Sequence[BrokerCapacity], held: Sequence[str | None]
) -> tuple[float, Placement, tuple[str, ...]]:
    """The same for publishers some of which have a broker in ``held``: the fewest moves."""
    burst = burst_of(spec)
    return burst, *place_rest(spec, burst, offered, held)


def place_rest(
    spec: TopicSpec, burst: float, offered: Sequence[BrokerCapacity], held: Sequence[str | None]
) -> tuple[Placement, tuple[str, ...]]:
    """Those that have a broker in ``held`` move as little as the topic's principles allow, unless these are more
    brokers than ``burst`` has tokens for."""
    if not 0 < len({*held} - {None}) <= burst:
        return _place_all(spec, burst, offered)
    return _placement(spec, place_more(demand(spec, burst), offered, held, spec.placement))


def _placement(spec: TopicSpec, made: Plan) -> tuple[Placement, tuple[str, ...]]:
    return Placement(publishers=spec.publishers, brokers=made.brokers, at=made.placement), made.reasons


def shares(
    spec: TopicSpec,
    envelope: Amount,
    placement: Placement,
    extra: Collection[str],
    besides: Mapping[str, float] | None = None,
    absent: Collection[str] = (),
    most: Mapping[str, float] | None = None,
) -> dict[str, Amount]:
    """The target: what is in force of the envelope (``in_force``), split by ``spec.split`` over what is assigned, with
    a floor for every broker in ``extra``. ``besides``: {broker: msg/s more (or less) than what is assigned to it};
    ``absent``: proven dead, so that it gets nothing, though it may keep its publishers' places for a while; ``most``:
    {broker: msg/s of the topic that it may serve}, whoever sends there: beyond that nobody gets the tokens."""
    traffic = _traffic(placement, extra, besides)
    whole = in_force(envelope, placement, traffic)
    limits = most or {}
    traffic = {
        name: replace(one, rate=min(one.rate, limits.get(name, math.inf)))
        for name, one in traffic.items()
        if name not in absent
    }
    if not traffic:
        return {}
    parts = list(traffic.values())
    if spec.split == "fitted":
        split = fitted_bucket(whole.rate, whole.burst, parts, spec.slo.percentile)
    else:
        split = split_bucket(whole.rate, whole.burst, [one.rate for one in parts])
    target = {name: Amount(*share) for name, share in zip(traffic, split, strict=True)}
    load = placement.publishers.load
    for name in limits.keys() & target.keys():
        target[name] = target[name].least(part_of(envelope, load, limits[name], traffic[name].batch))
    return target


def _traffic(
    placement: Placement, extra: Collection[str], besides: Mapping[str, float] | None = None
) -> dict[str, Traffic]:
    """{broker: what comes there, as far as it gets tokens}."""
    traffic = dict(placement.traffic)
    floor = (sum(one.rate for one in traffic.values()) or placement.publishers.load) * STARVED_WEIGHT or 1.0
    for name, more in (besides or {}).items():
        one = traffic.get(name, Traffic(rate=0.0))
        traffic[name] = replace(one, rate=max(one.rate + more, min(floor, one.rate or floor)))
    for name in extra:
        traffic.setdefault(name, Traffic(rate=floor))
    return traffic


def in_force(envelope: Amount, placement: Placement, traffic: Mapping[str, Traffic]) -> Amount:
    """Of ``envelope``, the part of those who have a place (or are charged to one, in ``traffic``): publishers without
    one have no tokens, so that a broker gets no more of the topic than it was found to have room for."""
    load = placement.publishers.load
    if load == 0 or placement.missing == 0:
        return envelope
    batches = sum(one.batch for one in traffic.values())
    there = sum(one.rate for one in traffic.values())
    part = part_of(envelope, load, there, batches)
    return Amount(max(part.rate, len(traffic)), part.burst)


def part_of(envelope: Amount, load: float, rate: float, batch: int) -> Amount:
    """Of ``envelope``, which is for ``load`` msg/s, what ``rate`` of them need; a burst of ``batch`` at least."""
    part = min(1.0, rate / load)
    burst = max(math.floor(envelope.burst * part), batch * MICRO)
    return Amount(math.floor(envelope.rate * part), min(envelope.burst, burst))


def adaptable(topic: Topic) -> Amount:
    """What of the envelope of ``topic`` its shares may add up to now."""
    traffic = _traffic(topic.placement, topic.extra, besides(topic.astray))
    return in_force(topic.leases.envelope, topic.placement, traffic)


def leaving_share(
    old: Topic,
    placement: Placement,
    name: str,
    envelope: Amount,
    absent: Collection[str],
    most: Mapping[str, float],
) -> dict[str, Amount] | None:
    """A target while ``name`` still has messages that wait for tokens, and its publishers are on their way: it keeps
    half of what it needed, as does every share until it has gone. Where there is no token for that it keeps its share,
    and nobody else gets more. None: it has no share."""
    if name not in old.leases.target:
        return None
    if len(placement.brokers) + 1 > math.floor(envelope.burst / MICRO) or not placement.brokers:
        return dict(old.leases.target)
    kept = [one for one in extra_kept(old, placement, envelope, without=name) if one != name]
    room = math.floor(envelope.burst / MICRO) - len(placement.brokers) - 1
    weight = old.placement.assigned.get(name, 0.0) / 2 or placement.publishers.load * STARVED_WEIGHT
    return shares(old.spec, envelope, placement, kept[:room], {name: weight}, absent, most)


def on_their_way(
    old: Topic, placement: Placement, envelope: Amount, without: Collection[str]
) -> dict[str, dict[str, float]]:
    """Of publishers that have their place elsewhere from now on: what they send where they still are, as ``astray``.

    They count there until they have gone, and where they belong too: so neither broker is ever short of tokens, as far
    as the topic's slack goes. Beyond that the new place comes first; but a broker that all leave keeps enough for its
    backlog. ``without``: brokers that nothing is kept for."""
    moved = placement.moved_from(old.placement)
    for name, homes in old.astray.items():
        moved[name] = max(moved.get(name, 0.0), sum(homes.values()))
    moved = {name: rate for name, rate in moved.items() if name in old.leases.target and name not in without}
    slack = max(0.0, envelope.rate / MICRO - placement.publishers.load)
    part = min(1.0, slack * _FOR_MOVERS / (sum(moved.values()) or 1.0))
    left = [name for name in moved if name not in placement.brokers]
    homeless = left[max(0, math.floor(envelope.burst / MICRO) - len(placement.brokers)) :]  # no token for them
    least = placement.publishers.load * STARVED_WEIGHT
    return {
        name: {"": max(rate * part, least if name in left else 0.0)}
        for name, rate in moved.items()
        if name not in homeless
    }


def without_dead(topic: Topic, name: str, absent: Collection[str], most: Mapping[str, float]) -> Topic:
    """``topic`` once broker ``name`` is proven dead: what it had is free, and aimed at the others. Its publishers keep
    their places; those that it had astray are not there any more. ``absent``: all that are dead; ``most``: as in
    ``shares``."""
    leases = topic.leases.freed(name)
    if topic.removed:
        return replace(topic, leases=leases)
    astray = {where: homes for where, homes in topic.astray.items() if where != name}
    return split_anew(replace(topic, leases=leases, astray=astray), absent, most)


def split_anew(
    topic: Topic, absent: Collection[str], most: Mapping[str, float], extra: Collection[str] | None = None
) -> Topic:
    """``topic`` with its declared split aimed at, over its publishers, those astray and ``extra`` (if not given, its
    own); ``absent``, ``most``: as in ``shares``."""
    envelope, kept = topic.leases.envelope, topic.extra if extra is None else extra
    target = shares(topic.spec, envelope, topic.placement, kept, besides(topic.astray), absent, most)
    return replace(topic, leases=topic.leases.retargeted(envelope, target))


def besides(astray: Astray) -> dict[str, float]:
    """{broker: msg/s more, or less, than what is assigned to it}."""
    more: dict[str, float] = {}
    for name, homes in astray.items():
        for home, rate in homes.items():
            more[name] = more.get(name, 0.0) + rate
            if home:
                more[home] = more.get(home, 0.0) - rate
    return more


def room_for_extra(topic: Topic, broker: str) -> bool:
    """Whether ``broker`` can be given a token besides those that are to have one: by the target, and by the placement,
    which may be ahead of it while nobody has a token to spare."""
    return len({*topic.leases.target, *topic.placement.brokers, *topic.extra, broker}) <= math.floor(topic.burst)


def extra_kept(
    old: Topic, placement: Placement, envelope: Amount, without: str, astray: Collection[str] = ()
) -> list[str]:
    """Brokers that keep their share for undeclared publishers under a new placement, as far as there are tokens."""
    kept = [name for name in old.extra if name != without and name not in placement.brokers]
    return kept[: max(0, envelope.burst // MICRO - len({*placement.brokers, *astray}))]


def reasons_after(reasons: Sequence[str], placement: Placement, before: Placement) -> tuple[str, ...]:
    """``reasons`` with the lines about single brokers as they are after a few have moved."""
    about = tuple(f"{name}: " for name in {*before.brokers, *placement.brokers})
    kept = [line for line in reasons if not line.startswith((*about, "warning: "))]
    heads = {name: len(ids) for name, ids in placement.ids_of.items()}
    lines = [f"{name}: {heads[name]:,} publishers, {rate:,.6g} msg/s" for name, rate in placement.assigned.items()]
    return (*kept, *lines)


def reasons_fitted(
    reasons: Sequence[str], placement: Placement, before: Placement, held_to: Mapping[str, float]
) -> tuple[str, ...]:
    """``reasons`` as they are after a step of a fitting. ``held_to``: {broker: msg/s that it keeps of the topic beside
    its others}."""
    kept = tuple(line for line in reasons_after(reasons, placement, before) if not line.startswith("missing"))
    if placement.missing == 0:
        return kept
    full = [f"{name} keeps {rate:,.6g} msg/s of such traffic beside its other topics" for name, rate in held_to.items()]
    why = "; ".join(full) or "publishers are let in step by step"
    return (*kept, f"missing {placement.missing:,.6g} msg/s: {why}")


def share_lines(target: Mapping[str, Amount]) -> list[str]:
    return [f"{name}: share {one.rate / MICRO:g} msg/s, {one.burst / MICRO:g} messages" for name, one in target.items()]


def oversized_batches(spec: TopicSpec, placement: Placement, target: Mapping[str, Amount]) -> list[BadInput]:
    """One for each broker where a publisher's batch is larger than the burst of its share, and so never passes in one
    go."""
    batches = spec.publishers.batches
    found = []
    for at, name in enumerate(placement.brokers):
        if name not in target:
            continue  # dead: they come back, or go elsewhere
        here = np.flatnonzero(placement.at == at)
        worst = int(here[np.argmax(batches[here])])
        burst = target[name].burst / MICRO
        if batches[worst] > burst:
            rule = f"must be at most {burst:g} messages, the burst of its share on {name}, to pass in one go"
            found.append(BadInput(f"batch of publisher {spec.publishers.ids[worst]}", int(batches[worst]), rule))
    return found


def without_room(lacking: Mapping[str, float]) -> str:
    """``lacking``: {topic: msg/s for which other brokers have no room}. The worst are named, the rest summed up."""
    worst = sorted(lacking, key=lambda topic: -lacking[topic])
    named, rest = worst[:_NAMED], worst[_NAMED:]
    parts = [f"{topic} {lacking[topic]:,.6g} msg/s" for topic in named]
    parts += [f"{len(rest):,} more topics {sum(lacking[topic] for topic in rest):,.6g} msg/s"] if rest else []
    return f"the other brokers have no room for: {', '.join(parts)}"
