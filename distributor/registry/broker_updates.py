"""What one sync of a broker changes: of topics, and of the caps of full brokers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from distributor.model.cluster import Broker, Topic
from distributor.model.columns import ROUNDING
from distributor.model.full_brokers import CapacityCaps
from distributor.model.leases import NOTHING, Amount, Leases
from distributor.placement.proposals import pooled_if_due
from distributor.placement.share_targets import with_declared_split

_MAX_AMOUNT = 2**62  # micro


@dataclass(frozen=True, kw_only=True)
class BrokerUpdate:
    """What a broker says with one sync, as far as the cluster state depends on it."""

    broker: Broker
    have_version: int
    applied: Mapping[str, int]  # {topic: version of the share in force}
    held: Mapping[str, tuple[int, int]]  # {topic: rate and burst in force where that version is a recall}, micro
    channels: Mapping[str, tuple[str, ...]]  # {topic: its channels on all brokers, as known now}
    cluster: int = 0  # identity of the store that the broker knows; 0: none
    peers: Mapping[str, str] | None = None  # {broker: incarnation} that the cluster had; None: it does not say now
    names_peers: bool = False  # it can say
    peer_claims: Mapping[str, Sequence[str]] = field(default_factory=dict)  # {peer: what it alone can hold}


@dataclass(frozen=True, slots=True)
class AppliedUpdate:
    """The latest update of a broker that was applied."""

    update: BrokerUpdate
    changes: int  # of topics, before it


@dataclass(frozen=True, kw_only=True)
class UpdateContext:
    """What the effect of an update depends on, besides the topic."""

    version: int  # of the change that it makes
    live: Collection[str]
    is_restart: bool  # another incarnation of the broker was known
    other_dead: Collection[str] | None = None  # the other dead brokers, if this one was dead until now; else None
    is_lost: Callable[[int], bool] = lambda _version: False  # whether the store that had a version is not this one
    suspects: Collection[str] = ()  # brokers that may have more than is stored
    limits: Callable[[Topic], Mapping[str, float]] = lambda _topic: {}  # {broker: msg/s that it can serve}


def affected_topics(
    last: AppliedUpdate | None,
    update: BrokerUpdate,
    topics: Mapping[str, Topic],
    changed: Iterable[str],
    pending_removals: Iterable[str],
) -> Collection[Topic]:
    """The topics that ``update`` may change.

    ``apply_broker_update`` would leave all others as they are: the broker said the same of the same topic before.
    ``last``: None if the broker was not heard before. ``changed``: names of the topics that have changed since then.
    """
    if last is None or last.update.broker.incarnation != update.broker.incarnation:
        return [topic for topic in topics.values() if _concerns(topic, update)]
    before = last.update
    names = {*update.channels, *_differing(before.applied, update.applied), *_differing(before.held, update.held)}
    names.update(changed)
    if update.have_version != before.have_version:
        names.update(pending_removals)
    return [topics[name] for name in sorted(names) if name in topics]


def _concerns(topic: Topic, update: BrokerUpdate) -> bool:
    """Whether the broker says something of ``topic``, or may have something of it."""
    name, broker = topic.name, update.broker.name
    may_have = topic.removed or broker in topic.leases.holdings or has_part(topic, broker)
    return may_have or name in update.channels or name in update.held or update.applied.get(name, 0) > 0


def _differing(before: Mapping[str, object], now: Mapping[str, object]) -> Iterable[str]:
    if before == now:
        return ()
    changed = [name for name, value in now.items() if before.get(name) != value]
    return [*changed, *(name for name in before if name not in now)]


def apply_broker_update(topic: Topic, update: BrokerUpdate, context: UpdateContext) -> Topic:
    """``topic`` after ``update``; the same object if nothing changes."""
    if topic.removed:
        leases, channels = _after_removal(topic, update, context), topic.channels
    else:
        leases, channels = _leases_after(topic, update, context), update.channels.get(topic.name, topic.channels)
    if leases is topic.leases and channels == topic.channels:
        return topic
    return replace(topic, leases=leases, channels=channels)


def _after_removal(topic: Topic, update: BrokerUpdate, context: UpdateContext) -> Leases:
    # With an older store it may have one under a version that was given twice.
    knows_removal = update.have_version >= topic.version and topic.name not in update.applied
    has_dropped_bucket = context.is_restart or knows_removal
    return topic.leases.freed(update.broker.name) if has_dropped_bucket else topic.leases


def _leases_after(topic: Topic, update: BrokerUpdate, context: UpdateContext) -> Leases:
    name, leases = update.broker.name, _acknowledged(topic, update, context)
    if context.suspects:
        leases = leases.suspected(context.suspects, context.version)
    other_dead = context.other_dead
    if other_dead is not None and name in topic.placement.brokers and name not in leases.target:
        # The broker is back: with its publishers it gets a share again.
        leases = with_declared_split(replace(topic, leases=leases), other_dead, context.limits(topic)).leases
    if leases is not topic.leases:
        leases = leases.advanced(context.live, context.version)
    return pooled_if_due(topic.spec, leases)


def _acknowledged(topic: Topic, update: BrokerUpdate, context: UpdateContext) -> Leases:
    name, leases = update.broker.name, topic.leases
    applied = update.applied.get(topic.name, 0)
    if applied > topic.holding(name).version or context.is_lost(applied):
        return leases.doubted(context.version, name)
    if context.is_restart and name in leases.holdings:
        return leases.reissued(name, context.version)
    return leases.acknowledged(name, applied, _amount(update.held.get(topic.name, (0, 0))))


def _amount(held: tuple[int, int]) -> Amount:
    """An amount that makes no sense becomes more than any pool has: then the recall of the pool notices it."""
    return Amount(*held) if min(held) >= 0 and max(held) <= _MAX_AMOUNT else Amount(_MAX_AMOUNT, _MAX_AMOUNT)


def is_acknowledgement(old: Topic, new: Topic) -> bool:
    """Whether ``new`` differs from ``old`` only by what brokers have acknowledged: no broker is told anything else."""
    return new.leases.issues_same_as(old.leases) and (old.channels, old.removed) == (new.channels, False)


def is_removal_pending(topic: Topic) -> bool:
    """Whether ``topic`` was removed, and not all brokers have said that they have dropped it."""
    return topic.removed and bool(topic.leases.holdings)


def has_part(topic: Topic, broker: str) -> bool:
    """Whether ``broker`` has publishers of ``topic``, has a share, or is to have one."""
    held = topic.leases.holdings.get(broker)
    return (
        (held is not None and held.bound != NOTHING)
        or broker in topic.leases.target
        or (broker in topic.placement.brokers and not topic.removed)
    )


def caps_after(caps: CapacityCaps, before: Mapping[str, Topic], topics: Collection[Topic]) -> CapacityCaps:
    """``caps`` without those of brokers that publishers leave when ``topics`` replace the ones of the same names."""
    for topic in topics:
        old = before.get(topic.name)
        if old is not None and old.placement is not topic.placement:
            now = topic.placement.assigned
            for name, rate in old.placement.assigned.items():
                if rate > now.get(name, 0.0) + ROUNDING and name in caps.brokers:
                    caps = caps.without(name)
    return caps
