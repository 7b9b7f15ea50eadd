"""How a topic gets a new spec or placement: what becomes of its shares, and what is committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from distributor.model.cluster import FittingRecord, Misplaced, Placement, Topic
from distributor.model.full_brokers import NO_CAPS, CapacityCaps
from distributor.model.leases import Amount, Leases
from distributor.model.state_change import StateChange
from distributor.placement.planner import TopicPlan
from distributor.placement.proposals import is_same_placement, keep_adapted, pooled_if_due
from distributor.placement.reasons import oversized_batches, share_lines
from distributor.placement.share_targets import (
    ShareDemand,
    extra_load,
    kept_extra_brokers,
    load_in_transit,
    shares_while_leaving,
    target_shares,
)
from distributor.registry.room import Room
from distributor.registry.state import ClusterState
from srtm.topics.spec import TopicSpec
from srtm.units import to_micro


@dataclass(frozen=True, kw_only=True)
class TopicChange:
    """A new spec or placement of one topic, and why."""

    spec: TopicSpec
    plan: TopicPlan
    reason: str  # first line of the decision
    by_operator: bool = False  # what cannot work is refused; else it happens, and is warned about
    by_fitting: bool = False
    dead_broker: str = ""  # its share is free
    leaving_broker: str = ""  # its publishers leave it; it keeps a share for the messages that wait there
    fitting: FittingRecord | None = None  # how the topic is fitted from now on
    caps: CapacityCaps = NO_CAPS  # measured now; they hold although this change moves publishers away

    @property
    def envelope(self) -> Amount:
        """(r, b), micro."""
        return Amount(to_micro(self.spec.rate, "rate"), to_micro(self.plan.burst, "burst"))


@dataclass(frozen=True, kw_only=True)
class ShareContext:
    """What the shares of a topic depend on, besides the topic."""

    version: int  # of the change
    live: Collection[str]
    dead_brokers: Collection[str]
    limits: Mapping[str, float]  # {broker: msg/s of the topic that it can serve}


async def apply_topic_change(state: ClusterState, room: Room, change: TopicChange) -> Topic:
    """Commit ``change``, and start its shares on their way. Under ``state.placing``.

    Raises BadInput for an operator's batches that could never pass under ``reject``, and Unavailable.
    """
    async with state.writing:
        old = state.topics.get(change.spec.name)
        if old and change.dead_broker and not state.is_gone(change.dead_broker, old):
            return old  # the broker came back while this was planned
        context = ShareContext(
            version=state.version + 1,
            live=state.live(),
            dead_brokers=state.dead_brokers(),
            limits=room.limits(change.spec, change.plan.placement, state.caps.merged(change.caps)),
        )
        new = changed_topic(old, change, context)
        lines = [change.reason, *new.reasons, *share_lines(new.leases.target)]
        decision = "\n".join(lines)
        await state.commit(StateChange(topics=[new], decision=decision, caps=change.caps, fitting=change.fitting))
        return new


def changed_topic(old: Topic | None, change: TopicChange, context: ShareContext) -> Topic:
    """``old`` (None: a new topic) after ``change``. Pure. Raises BadInput."""
    spec, placement = change.spec, change.plan.placement
    misplaced = _misplaced(old, change)
    target, warnings = _target(old, change, _demand(old, change, context, misplaced))
    same_spec = old is not None and not old.removed and old.spec is spec
    return Topic(
        spec=spec,
        version=old.version if old and same_spec else context.version,
        placement=placement,
        assignment_version=context.version,
        leases=_leases(old, change, target, context),
        reasons=(*change.plan.reasons, *warnings),
        channels=old.channels if old and not old.removed else (),
        misplaced=misplaced,
    )


def submitted_split(
    old: Topic | None, placement: Placement, context: ShareContext, spec: TopicSpec, burst: float
) -> dict[str, Amount]:
    """The shares that ``old`` would get by a submission of ``spec`` with ``burst`` that places it so."""
    change = TopicChange(spec=spec, plan=TopicPlan(burst, placement, ()), reason="")
    return _shares(old, change, _demand(old, change, context, _misplaced(old, change)))


def _demand(old: Topic | None, change: TopicChange, context: ShareContext, misplaced: Misplaced) -> ShareDemand:
    return ShareDemand(
        spec=change.spec,
        envelope=change.envelope,
        placement=change.plan.placement,
        extra_brokers=_extra_brokers(old, change, misplaced),
        extra_load=extra_load(misplaced),
        dead_brokers=context.dead_brokers,
        limits=context.limits,
    )


def _misplaced(old: Topic | None, change: TopicChange) -> dict[str, dict[str, float]]:
    """Publishers in transit. Under a fitting no broker of the new placement keeps tokens for those that leave it, so
    that it can be measured at once."""
    if old is None:
        return {}
    measured = change.plan.placement.brokers if change.by_fitting else ()
    without = {change.dead_broker, change.leaving_broker, *measured}
    return load_in_transit(old, change.plan.placement, change.envelope, without)


def _extra_brokers(old: Topic | None, change: TopicChange, misplaced: Collection[str]) -> Sequence[str]:
    if old is None:
        return ()
    return kept_extra_brokers(old, change.plan.placement, change.envelope, change.dead_broker, misplaced)


def _shares(old: Topic | None, change: TopicChange, demand: ShareDemand) -> dict[str, Amount]:
    target = target_shares(demand)
    if old and is_same_placement(old, change.spec, demand.envelope, demand.placement):
        return keep_adapted(old, target)
    return target


def _target(old: Topic | None, change: TopicChange, demand: ShareDemand) -> tuple[dict[str, Amount], list[str]]:
    """The target, and warnings. Raises BadInput."""
    target = _shares(old, change, demand)
    oversized = oversized_batches(change.spec, demand.placement, target)
    if oversized and change.by_operator and change.spec.on_excess == "reject":
        raise oversized[0]
    if old and change.leaving_broker:  # until it needs its share no more
        target = shares_while_leaving(old, demand, change.leaving_broker) or target
    return target, [f"warning: {error}" for error in oversized]


def _leases(old: Topic | None, change: TopicChange, target: Mapping[str, Amount], context: ShareContext) -> Leases:
    leases = old.leases if old else Leases(change.envelope)
    if change.dead_broker:
        leases = leases.freed(change.dead_broker)
    leases = leases.with_lease(change.spec.lease_ms).with_target(change.envelope, target)
    return pooled_if_due(change.spec, leases).advanced(context.live, context.version)


def with_shares_advanced(topic: Topic, live: Collection[str], version: int) -> Topic:
    """``topic`` with all shares issued that may be issued now; the same object if there are none."""
    leases = topic.leases.advanced(live, version)
    return topic if leases is topic.leases else replace(topic, leases=leases)
