"""Share targets: how much of a topic's envelope (r, b) each broker shall have. Pure.

A share is a broker's part of a topic's token bucket. ``distributor.model.leases`` moves the shares in force to these
targets. Publishers that publish at another broker than their own are *misplaced*; their load counts where it arrives.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from distributor.model.cluster import Misplaced, Placement, Topic
from distributor.model.leases import MICRO, Amount
from srtm.token_bucket.exact_split import split_bucket
from srtm.token_bucket.fitted_split import Traffic, fitted_bucket
from srtm.topics.spec import TopicSpec

MIN_SHARE_FRACTION = 0.02  # of the topic's rate, for a broker with undeclared publishers only
_MOVING_SLACK_FRACTION = 0.75  # of the slack (r minus all rates): publishers in transit count at both brokers


@dataclass(frozen=True, kw_only=True)
class ShareDemand:
    """What decides the shares of one topic."""

    spec: TopicSpec
    envelope: Amount
    placement: Placement
    extra_brokers: Collection[str] = ()  # brokers without declared publishers that get a small share
    extra_load: Mapping[str, float] = field(default_factory=dict)  # {broker: msg/s more (or less) than assigned}
    dead_brokers: Collection[str] = ()  # they get nothing, also while they keep their publishers for the grace period
    limits: Mapping[str, float] = field(default_factory=dict)  # {broker: msg/s of the topic that it can serve}

    @classmethod
    def of(cls, topic: Topic, dead_brokers: Collection[str], limits: Mapping[str, float]) -> ShareDemand:
        """The demand of ``topic`` as it is placed now."""
        return cls(
            spec=topic.spec,
            envelope=topic.leases.envelope,
            placement=topic.placement,
            extra_brokers=topic.extra_brokers,
            extra_load=extra_load(topic.misplaced),
            dead_brokers=dead_brokers,
            limits=limits,
        )


def target_shares(demand: ShareDemand) -> dict[str, Amount]:
    """Split the assignable part of the envelope by ``spec.split`` over the brokers' traffic.

    A broker with a limit gets no more tokens than its limit needs, whoever publishes there.
    """
    traffic = _traffic(demand.placement, demand.extra_brokers, demand.extra_load)
    whole = _assignable(demand.envelope, demand.placement, traffic)
    limits = demand.limits
    served = {
        name: replace(at_broker, rate=min(at_broker.rate, limits.get(name, math.inf)))
        for name, at_broker in traffic.items()
        if name not in demand.dead_brokers
    }
    if not served:
        return {}
    target = dict(zip(served, _split(demand.spec, whole, list(served.values())), strict=True))
    load = demand.placement.publishers.load
    for name in limits.keys() & target.keys():
        limit = part_of_envelope(demand.envelope, load, limits[name], served[name].batch)
        target[name] = target[name].minimum(limit)
    return target


def _split(spec: TopicSpec, whole: Amount, traffic: list[Traffic]) -> list[Amount]:
    if spec.split == "fitted":
        parts = fitted_bucket(whole.rate, whole.burst, traffic, spec.slo.percentile)
    else:
        parts = split_bucket(whole.rate, whole.burst, [at_broker.rate for at_broker in traffic])
    return [Amount(*part) for part in parts]


def _traffic(
    placement: Placement, extra_brokers: Collection[str], extra_load: Mapping[str, float]
) -> dict[str, Traffic]:
    """{broker: traffic that gets tokens there}."""
    traffic = dict(placement.traffic)
    load = sum(at_broker.rate for at_broker in traffic.values()) or placement.publishers.load
    floor = load * MIN_SHARE_FRACTION or 1.0
    for name, more in extra_load.items():
        at_broker = traffic.get(name, Traffic(rate=0.0))
        traffic[name] = replace(at_broker, rate=max(at_broker.rate + more, min(floor, at_broker.rate or floor)))
    for name in extra_brokers:
        traffic.setdefault(name, Traffic(rate=floor))
    return traffic


def _assignable(envelope: Amount, placement: Placement, traffic: Mapping[str, Traffic]) -> Amount:
    """The part of ``envelope`` for the publishers that have a place.

    Publishers without a place have no tokens. So a broker gets no more of the topic than it has room for.
    """
    load = placement.publishers.load
    if load == 0 or placement.missing == 0:
        return envelope
    rate = sum(at_broker.rate for at_broker in traffic.values())
    batches = sum(at_broker.batch for at_broker in traffic.values())
    part = part_of_envelope(envelope, load, rate, batches)
    return Amount(max(part.rate, len(traffic)), part.burst)


def part_of_envelope(envelope: Amount, load: float, rate: float, batch: int) -> Amount:
    """What ``rate`` msg/s need of ``envelope``, which serves ``load`` msg/s; its burst is at least ``batch``."""
    part = min(1.0, rate / load)
    burst = max(math.floor(envelope.burst * part), batch * MICRO)
    return Amount(math.floor(envelope.rate * part), min(envelope.burst, burst))


def assignable_envelope(topic: Topic) -> Amount:
    """The largest sum that the shares of ``topic`` may have now."""
    traffic = _traffic(topic.placement, topic.extra_brokers, extra_load(topic.misplaced))
    return _assignable(topic.leases.envelope, topic.placement, traffic)


def shares_while_leaving(old: Topic, demand: ShareDemand, broker: str) -> dict[str, Amount] | None:
    """The target while the publishers of ``broker`` leave it and messages still wait there for tokens.

    ``broker`` keeps half of what it needed. If there is no token for that, all shares stay as they are. None: it has
    no share.
    """
    placement, burst = demand.placement, math.floor(demand.envelope.burst / MICRO)
    if broker not in old.leases.target:
        return None
    room = burst - len(placement.brokers) - 1
    if room < 0 or not placement.brokers:
        return dict(old.leases.target)
    load = old.placement.assigned.get(broker, 0.0) / 2 or placement.publishers.load * MIN_SHARE_FRACTION
    kept = kept_extra_brokers(old, placement, demand.envelope, without=broker)
    return target_shares(replace(demand, extra_brokers=kept[:room], extra_load={broker: load}))


def load_in_transit(
    old: Topic, placement: Placement, envelope: Amount, without: Collection[str]
) -> dict[str, dict[str, float]]:
    """The load of publishers that ``placement`` moves, at the brokers that they leave, as ``Topic.misplaced``.

    Publishers in transit count at both brokers, as far as the topic's slack allows, so that neither broker lacks
    tokens. Beyond that the new broker comes first, but a broker that all publishers leave keeps enough for its backlog.
    ``without``: brokers that keep nothing.
    """
    moved = placement.moved_from(old.placement)
    for name, homes in old.misplaced.items():
        moved[name] = max(moved.get(name, 0.0), sum(homes.values()))
    moved = {name: rate for name, rate in moved.items() if name in old.leases.target and name not in without}
    slack = max(0.0, envelope.rate / MICRO - placement.publishers.load)
    part = min(1.0, slack * _MOVING_SLACK_FRACTION / (sum(moved.values()) or 1.0))
    abandoned = [name for name in moved if name not in placement.brokers]
    tokens = max(0, math.floor(envelope.burst / MICRO) - len(placement.brokers))
    without_token = abandoned[tokens:]
    floor = placement.publishers.load * MIN_SHARE_FRACTION
    return {
        name: {"": max(rate * part, floor if name in abandoned else 0.0)}
        for name, rate in moved.items()
        if name not in without_token
    }


def after_death(topic: Topic, broker: str, dead_brokers: Collection[str], limits: Mapping[str, float]) -> Topic:
    """``topic`` once ``broker`` is proven dead: its share is free, and the others are to get it.

    Its publishers keep their assignment. Misplaced publishers that it had are gone. ``dead_brokers``: all of them.
    """
    leases = topic.leases.freed(broker)
    if topic.removed:
        return replace(topic, leases=leases)
    misplaced = {name: homes for name, homes in topic.misplaced.items() if name != broker}
    return with_declared_split(replace(topic, leases=leases, misplaced=misplaced), dead_brokers, limits)


def with_declared_split(
    topic: Topic,
    dead_brokers: Collection[str],
    limits: Mapping[str, float],
    extra_brokers: Collection[str] | None = None,
) -> Topic:
    """``topic`` with the target of its declared split. ``extra_brokers``: None keeps those that it has."""
    demand = ShareDemand.of(topic, dead_brokers, limits)
    if extra_brokers is not None:
        demand = replace(demand, extra_brokers=extra_brokers)
    leases = topic.leases.with_target(demand.envelope, target_shares(demand))
    return replace(topic, leases=leases)


def extra_load(misplaced: Misplaced) -> dict[str, float]:
    """{broker: msg/s more, or less, than what is assigned to it}."""
    more: dict[str, float] = {}
    for name, homes in misplaced.items():
        for home, rate in homes.items():
            more[name] = more.get(name, 0.0) + rate
            if home:
                more[home] = more.get(home, 0.0) - rate
    return more


def misplaced_without(topic: Topic, settled: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """``topic.misplaced`` once publishers belong to where they are. ``settled``: {publisher: broker}."""
    publishers, left = topic.placement.publishers, {name: dict(homes) for name, homes in topic.misplaced.items()}
    for publisher_id, broker in settled.items():
        home, homes = topic.placement.broker_of(publisher_id), left.get(broker, {})
        if home in homes:
            homes[home] -= float(publishers.rates[publishers.positions[publisher_id]])
            if homes[home] < 1 / MICRO:
                del homes[home]
    return {name: homes for name, homes in left.items() if homes}


def has_token_for(topic: Topic, broker: str) -> bool:
    """Whether the burst has one token for ``broker`` besides all brokers that have a share or publishers.

    The placement may be ahead of the target while nobody has a token to spare: so both count.
    """
    return len({*topic.leases.target, *topic.placement.brokers, *topic.extra_brokers, broker}) <= math.floor(
        topic.burst
    )


def kept_extra_brokers(
    old: Topic, placement: Placement, envelope: Amount, without: str, misplaced: Collection[str] = ()
) -> list[str]:
    """Brokers that keep their share for undeclared publishers under a new placement, as far as there are tokens."""
    kept = [name for name in old.extra_brokers if name != without and name not in placement.brokers]
    return kept[: max(0, envelope.burst // MICRO - len({*placement.brokers, *misplaced}))]
