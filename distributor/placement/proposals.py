"""Shares that the adaptor proposes: what of a proposal may become a topic's target, and what it is told about topics.
Pure.

A proposal never changes who has a share, and never more than the split: it must name the brokers that the topic's
target names, sum to no more than the envelope, and give none more than it can process (``carried``). How the shares
get there is ``leases``' business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from distributor.model.cluster import Placement, Topic
from distributor.model.leases import MICRO, Amount, Leases
from distributor.placement.shares import assignable_envelope
from srtm.control import BrokerTraits, ShareProposal, TopicTraits
from srtm.errors import BadInput, Conflict
from srtm.token_bucket.exact_split import LARGEST
from srtm.topics.adaptation import ADAPTED
from srtm.topics.spec import TopicSpec

_CHANGES_KEPT = 20  # a topic

MostRate = Callable[[Topic, str], float | None]  # msg/s of a topic that a broker can process; None: not known


@dataclass(frozen=True, kw_only=True)
class ShareChange:
    """For people: what was changed, when and why."""

    wall_ns: int
    mode: str
    reason: str
    shares: Mapping[str, Amount]


def may_be_told_seldom(topic: Topic) -> bool:
    """Whether brokers need not report traffic that stays as it is."""
    return topic.spec.mode == "fitted"


def shares_version(topic: Topic) -> int:
    """What a proposal must name: it grows with the spec, the placement, and with every share that is issued."""
    return max(topic.version, topic.assignment_version, *(held.version for held in topic.leases.holdings.values()), 0)


def checked_target(topic: Topic, proposal: ShareProposal, most: MostRate) -> dict[str, Amount]:
    """The target that ``proposal`` asks for. Raises Conflict where the topic is not what it was made for, BadInput
    where it makes no sense, or gives a broker more than it can process. Shares may have been issued since it was made:
    it says what they should be, whatever they are, and nobody need be told of topics again only because shares
    moved."""
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
        rule = f"must sum to at most {envelope.rate / MICRO:g} msg/s and {envelope.burst / MICRO:g} messages"
        raise BadInput("shares", f"{total.rate / MICRO:g} msg/s, {total.burst / MICRO:g} messages", rule)
    for name, amount in target.items():
        limit = most(topic, name)
        if limit is not None and amount.rate > round(limit * MICRO):
            rule = f"must be at most {limit:g} msg/s: what {name} can process of this topic beside all others"
            raise BadInput(f"shares.{name}.rate", amount.rate / MICRO, rule)
    return target


def _amount(broker: str, rate: float, burst: float) -> Amount:
    """Raises BadInput."""
    rule = f"must be a rate above 0 and a burst of at least one message, each at most {LARGEST:g}"
    if not (0 < rate <= LARGEST and 1 <= burst <= LARGEST):  # false for NaN too
        raise BadInput(f"shares.{broker}", [rate, burst], rule)
    amount = Amount(round(rate * MICRO), round(burst * MICRO))
    if not amount.usable:
        raise BadInput(f"shares.{broker}", [rate, burst], rule)
    return amount


def change_of(proposal: ShareProposal, target: Mapping[str, Amount], wall_ns: int) -> ShareChange:
    return ShareChange(wall_ns=wall_ns, mode=proposal.mode, reason=proposal.reason, shares=target)


def decided_change(old: Topic | None, new: Topic, decision: str, wall_ns: int) -> ShareChange | None:
    """What a decision did to the shares, or to who decides on them; its first line is the reason."""
    if old is not None and (old.spec.mode, old.leases.target) == (new.spec.mode, new.leases.target):
        return None
    reason, _, _ = decision.partition("\n")
    return ShareChange(wall_ns=wall_ns, mode=new.spec.mode, reason=reason, shares=new.leases.target)


def splits_anew(old: TopicSpec, new: TopicSpec) -> bool:
    """Whether the shares are to be those of the declared split, at once: under ``static`` nobody else sees to them."""
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
    """Under ``gdrl`` the brokers exchange among themselves as soon as all shares are in force; under any other mode,
    and where some of the topic's tokens are for nobody (they might be exchanged to where they must not be), a pool is
    called back."""
    return leases.as_pool() if spec.mode == "gdrl" and leases.is_whole else leases.recalled()


def is_same_place(old: Topic, spec: TopicSpec, envelope: Amount, placement: Placement) -> bool:
    """Whether a change of the spec has nothing to do with who sends where, or how much there is to split."""
    return spec.mode == old.spec.mode and placement is old.placement and envelope == old.leases.envelope


def kept(topic: Topic, target: Mapping[str, Amount]) -> dict[str, Amount]:
    """Shares that were adapted stay as they are, rather than become ``target``, which knows only what was declared;
    unless other brokers are to have a share."""
    adapted = topic.spec.mode in ADAPTED and target.keys() == topic.leases.target.keys()
    return dict(topic.leases.target if adapted else target)


def with_change(log: Mapping[str, tuple[ShareChange, ...]], name: str, change: ShareChange) -> tuple[ShareChange, ...]:
    """Of topic ``name``, newest last."""
    return (*log.get(name, ()), change)[-_CHANGES_KEPT:]


def traits(topic: Topic, most: MostRate) -> TopicTraits:
    """What a policy must know of ``topic``."""
    settings = topic.spec.adaptation
    return TopicTraits(
        percentile=topic.spec.slo.percentile,
        window_s=settings.window_s,
        interval_s=settings.interval_s,
        floor=settings.floor,
        dead_band=settings.dead_band,
        brokers={name: broker_traits(topic, name, most) for name in topic.leases.target},
    )


def broker_traits(topic: Topic, broker: str, most: MostRate) -> BrokerTraits:
    traffic = topic.placement.traffic.get(broker)
    return BrokerTraits(
        capacity=most(topic, broker),
        batch=traffic.batch if traffic is not None else 1,
        dispersion=traffic.dispersion if traffic is not None else 1.0,
        rate=traffic.rate if traffic is not None else 0.0,
    )
