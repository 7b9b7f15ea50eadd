"""From a topic's spec and the brokers that there are to a placement and a target for its shares. Pure.

``allocation`` decides where publishers go and ``leases`` when shares move; here the two meet what the registry knows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from distributor.allocation import BrokerCapacity, Demand, Plan, place_more, plan
from distributor.leases import MICRO, Amount
from distributor.state import Broker, Placement, Topic
from srtm.errors import BadInput
from srtm.fitted_split import Traffic, fitted_bucket
from srtm.sizing import smallest_burst
from srtm.splitting import split_bucket
from srtm.topic import TopicSpec

# Of the topic's rate, for a broker that has undeclared publishers only: the floor of design section 6.
STARVED_WEIGHT = 0.02


def capacities(
    brokers: Iterable[Broker], usable: Collection[str], topics: Iterable[Topic], topic: str
) -> list[BrokerCapacity]:
    """All brokers as allocation sees them when it places ``topic``; those that are not ``usable`` now have no room for
    anything new."""
    allocated: dict[str, float] = {}
    for other in topics:
        if other.name != topic and not other.removed:
            for name, rate in other.placement.assigned.items():
                allocated[name] = allocated.get(name, 0.0) + rate
    return [
        BrokerCapacity(name=broker.name, mcap=broker.mcap, allocated=allocated.get(broker.name, 0.0))
        if broker.name in usable
        else BrokerCapacity(name=broker.name, mcap=1.0, allocated=1.0)
        for broker in brokers
    ]


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
    leaving: Mapping[str, float] | None = None,
) -> dict[str, Amount]:
    """The target: the envelope split by ``spec.split`` over what is assigned, with a floor for every broker in
    ``extra``. ``leaving``: {broker: weight, msg/s} besides."""
    traffic = {**placement.traffic, **{name: Traffic(rate=rate) for name, rate in (leaving or {}).items()}}
    floor = sum(one.rate for one in traffic.values()) * STARVED_WEIGHT or 1.0
    for name in extra:
        traffic.setdefault(name, Traffic(rate=floor))
    if not traffic:
        return {}
    parts = list(traffic.values())
    if spec.split == "fitted":
        split = fitted_bucket(envelope.rate, envelope.burst, parts, spec.slo.percentile)
    else:
        split = split_bucket(envelope.rate, envelope.burst, [one.rate for one in parts])
    return {name: Amount(*share) for name, share in zip(traffic, split, strict=True)}


def leaving_share(old: Topic, placement: Placement, name: str, envelope: Amount) -> dict[str, Amount] | None:
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
    return shares(old.spec, envelope, placement, kept[:room], {name: weight})


def room_for_extra(topic: Topic, broker: str) -> bool:
    """Whether ``broker`` can be given a token besides those that are to have one: by the target, and by the placement,
    which may be ahead of it while nobody has a token to spare."""
    return len({*topic.leases.target, *topic.placement.brokers, *topic.extra, broker}) <= math.floor(topic.burst)


def extra_kept(old: Topic, placement: Placement, envelope: Amount, without: str) -> list[str]:
    """Brokers that keep their share for undeclared publishers under a new placement, as far as there are tokens."""
    kept = [name for name in old.extra if name != without and name not in placement.brokers]
    return kept[: max(0, envelope.burst // MICRO - len(placement.brokers))]


def share_lines(target: Mapping[str, Amount]) -> list[str]:
    return [f"{name}: share {one.rate / MICRO:g} msg/s, {one.burst / MICRO:g} messages" for name, one in target.items()]


def oversized_batches(spec: TopicSpec, placement: Placement, target: Mapping[str, Amount]) -> list[BadInput]:
    """One for each broker where a publisher's batch is larger than the burst of its share, and so never passes in one
    go."""
    batches = spec.publishers.batches
    found = []
    for at, name in enumerate(placement.brokers):
        here = np.flatnonzero(placement.at == at)
        worst = int(here[np.argmax(batches[here])])
        burst = target[name].burst / MICRO
        if batches[worst] > burst:
            rule = f"must be at most {burst:g} messages, the burst of its share on {name}, to pass in one go"
            found.append(BadInput(f"batch of publisher {spec.publishers.ids[worst]}", int(batches[worst]), rule))
    return found
