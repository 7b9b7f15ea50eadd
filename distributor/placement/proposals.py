"""Proposals of the adaptor: which may become a topic's target, and what the adaptor is told about topics. Pure.

A proposal changes the split, never who has a share. It must name the brokers of the topic's target, sum to at most the
envelope, and give no broker more than it can process (``headroom``). ``leases`` moves the shares there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from distributor.model.cluster import Placement, Topic
from distributor.model.leases import MICRO, Amount, Leases
from distributor.placement.share_targets import assignable_envelope
from srtm.control import BrokerTraits, ShareProposal, TopicTraits
from srtm.errors import BadInput, Conflict
from srtm.text import figure
from srtm.topics.adaptation import ADAPTED
from srtm.topics.spec import TopicSpec
from srtm.units import LARGEST

MaxRate = Callable[[Topic, str], float | None]  # msg/s of a topic that a broker can process; None: not known


def may_be_told_seldom(topic: Topic) -> bool:
    """Whether brokers report traffic only when it changes."""
    return topic.spec.mode == "fitted"


def shares_version(topic: Topic) -> int:
    """The version that a proposal must name. It grows with the spec, the placement, and every share that is issued."""
    return max(topic.version, topic.assignment_version, *(held.version for held in topic.leases.holdings.values()), 0)


def checked_target(topic: Topic, proposal: ShareProposal, max_rate: MaxRate) -> dict[str, Amount]:
    """The target that ``proposal`` asks for.

    It may have been made before the latest shares were issued: it says what shares should be, whatever they are. Raises
    Conflict if the topic is not the one that it was made for; BadInput if it makes no sense, or gives a broker
    more than that can process.
    """
    if topic.spec.mode != proposal.mode or proposal.mode not in ADAPTED:
        raise Conflict("mode", proposal.mode, f"the topic's mode is {topic.spec.mode}")
    least = max(topic.version, topic.assignment_version)
    if not least <= proposal.version <= shares_version(topic):
        raise Conflict("version", proposal.version, f"the topic has changed; its shares are {shares_version(topic)}")
    if proposal.shares.keys() != topic.leases.target.keys():
        has = ", ".join(sorted(topic.leases.target))
        raise Conflict("shares", sorted(proposal.shares), f"must name the brokers that have a share: {has}")
    target = {name: _amount(name, one.rate, one.burst) for name, one in proposal.shares.items()}
    total = sum(target.values(), start=Amount(0, 0))
    envelope = assignable_envelope(topic)
    if not total <= envelope:
        most, asked = ((figure(each.rate / MICRO, 6), figure(each.burst / MICRO, 6)) for each in (envelope, total))
        rule = f"must sum to at most {most[0]} msg/s and {most[1]} messages"
        raise BadInput("shares", f"{asked[0]} msg/s, {asked[1]} messages", rule)
    for name, amount in target.items():
        limit = max_rate(topic, name)
        if limit is not None and amount.rate > round(limit * MICRO):
            rule = f"must be at most {figure(limit, 6)} msg/s: what {name} can process of this topic beside all others"
            raise BadInput(f"shares.{name}.rate", amount.rate / MICRO, rule)
    return target


def _amount(broker: str, rate: float, burst: float) -> Amount:
    """Raises BadInput."""
    rule = f"must be a rate above 0 and a burst of at least one message, each at most {LARGEST:g}"
    if not (0 < rate <= LARGEST and 1 <= burst <= LARGEST):  # false for NaN too
        raise BadInput(f"shares.{broker}", [rate, burst], rule)
    amount = Amount(round(rate * MICRO), round(burst * MICRO))
    if not amount.is_usable:
        raise BadInput(f"shares.{broker}", [rate, burst], rule)
    return amount


def needs_new_split(old: TopicSpec, new: TopicSpec) -> bool:
    """Whether the shares must become those of the declared split at once: under ``static`` no one else sets them."""
    return new.mode == "static" and (old.mode, old.split) != (new.mode, new.split)


def options_line(old: TopicSpec, new: TopicSpec) -> str:
    """For the decision log: what was changed."""
    said = {"mode": (old.mode, new.mode), "split": (old.split, new.split)}
    said |= {
        field: (value, getattr(new.adaptation, field)) for field, value in dataclasses.asdict(old.adaptation).items()
    }
    changes = [f"{field} {now} instead of {was}" for field, (was, now) in said.items() if was != now]
    return "options: " + ", ".join(changes)


def pooled_if_due(spec: TopicSpec, leases: Leases) -> Leases:
    """``leases`` as a pool under ``gdrl``, as soon as all shares are in force.

    Recalls the pool under any other mode, and while some tokens are for no broker: an exchange could move them to
    where they must not be.
    """
    return leases.as_pool() if spec.mode == "gdrl" and leases.is_fully_assigned else leases.recalled()


def is_same_placement(old: Topic, spec: TopicSpec, envelope: Amount, placement: Placement) -> bool:
    """Whether ``spec`` changes neither the mode nor the placement nor the envelope of ``old``."""
    return spec.mode == old.spec.mode and placement is old.placement and envelope == old.leases.envelope


def keep_adapted(topic: Topic, target: Mapping[str, Amount]) -> dict[str, Amount]:
    """The adapted shares of ``topic``, if ``target`` has the same brokers; else ``target``.

    ``target`` knows only the declared rates; adapted shares know the traffic.
    """
    adapted = topic.spec.mode in ADAPTED and target.keys() == topic.leases.target.keys()
    return dict(topic.leases.target if adapted else target)


def traits(topic: Topic, max_rate: MaxRate) -> TopicTraits:
    """What the adaptor's policy must know of ``topic``."""
    settings = topic.spec.adaptation
    return TopicTraits(
        percentile=topic.spec.slo.percentile,
        window_s=settings.window_s,
        interval_s=settings.interval_s,
        floor=settings.floor,
        dead_band=settings.dead_band,
        brokers={name: broker_traits(topic, name, max_rate) for name in topic.leases.target},
    )


def broker_traits(topic: Topic, broker: str, max_rate: MaxRate) -> BrokerTraits:
    traffic = topic.placement.traffic.get(broker)
    return BrokerTraits(
        capacity=max_rate(topic, broker),
        batch=traffic.batch if traffic is not None else 1,
        dispersion=traffic.dispersion if traffic is not None else 1.0,
        rate=traffic.rate if traffic is not None else 0.0,
    )
