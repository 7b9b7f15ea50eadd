"""What a topic becomes when a broker is heard, and questions about topics that decide what is to be done. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from distributor.model.cluster import Broker, Topic
from distributor.model.columns import ROUNDING
from distributor.model.full_brokers import CapacityCaps
from distributor.model.leases import NOTHING, Amount
from distributor.placement import proposals as adapting
from distributor.placement.shares import with_declared_split
from srtm.topics.spec import TopicSpec

_LARGEST = 2**62  # micro


@dataclass(frozen=True, kw_only=True)
class News:
    """What a broker says with one sync, as far as it matters to the book."""

    broker: Broker
    have_version: int
    applied: Mapping[str, int]  # {topic: version of the share in force}
    held: Mapping[str, tuple[int, int]]  # {topic: rate and burst in force where that version is a recall}, micro
    channels: Mapping[str, tuple[str, ...]]  # {topic: its channels anywhere, as known now}


@dataclass(frozen=True, slots=True)
class Heard:
    """The latest news of a broker that was taken in."""

    news: News
    changes: int  # of topics, before it


def concerned(
    last: Heard | None, news: News, topics: Mapping[str, Topic], changed: Iterable[str], removed: Iterable[str]
) -> Iterable[Topic]:
    """The topics that ``news`` may change; ``heard`` leaves all others as they are, for it was asked the same of the
    same before. ``changed``: names of those that are others than before ``last``; ``removed``: of those that are."""
    if last is None or last.news.broker.incarnation != news.broker.incarnation:
        return topics.values()
    names = {*news.channels, *_changed(last.news.applied, news.applied), *_changed(last.news.held, news.held), *changed}
    if news.have_version != last.news.have_version:
        names.update(removed)
    return [topics[name] for name in sorted(names) if name in topics]


def _changed(before: Mapping[str, object], now: Mapping[str, object]) -> Iterable[str]:
    if before == now:
        return ()
    others = [name for name, value in now.items() if before.get(name) != value]
    return [*others, *(name for name in before if name not in now)]


def is_acknowledgement(old: Topic, new: Topic) -> bool:
    """Whether all that ``new`` has beyond ``old`` is what brokers have acknowledged: nobody is told anything else."""
    return new.leases.issues_as(old.leases) and (old.channels, old.removed) == (new.channels, False)


def is_held_on(topic: Topic) -> bool:
    """Whether it was removed, and brokers have not all said yet that they have dropped it."""
    return topic.removed and bool(topic.leases.holdings)


def has_part(topic: Topic, broker: str) -> bool:
    """Whether ``broker`` has publishers of ``topic``, or a share that is not nothing, or shall have one."""
    held = topic.leases.holdings.get(broker)
    return (
        (held is not None and held.bound != NOTHING)
        or broker in topic.leases.target
        or (broker in topic.placement.brokers and not topic.removed)
    )


def same_demand(old: Topic, spec: TopicSpec, burst: float) -> bool:
    """Whether ``old``'s placement is right for ``spec`` too: only the envelope, the promise or the like are
    different."""
    return (
        old.spec.publishers == spec.publishers
        and same_principles(old.spec, spec)
        and old.placement.state == "placed"
        and len(old.placement.brokers) <= burst
    )


def same_principles(old: TopicSpec, spec: TopicSpec) -> bool:
    """Whether a placement made for ``old`` is one that ``spec`` may build on."""
    return (old.placement, old.seed) == (spec.placement, spec.seed)


def heard(
    topic: Topic,
    news: News,
    version: int,
    live: Collection[str],
    *,
    reborn: bool,
    still_dead: Collection[str] | None = None,
    most: Callable[[Topic], Mapping[str, float]] = lambda _topic: {},
) -> Topic:
    """``topic`` after ``news`` from a broker; the same object if that changes nothing. ``still_dead``: the others that
    are proven dead, where this broker was so too until now: with its publishers' places it has a share again; ``most``:
    {broker: msg/s of the topic that it may serve}."""
    name = news.broker.name
    applied = news.applied.get(topic.name, 0)
    leases, channels = topic.leases, topic.channels
    if topic.removed:
        if reborn or news.have_version >= topic.version:
            leases = leases.freed(name)  # it has dropped the bucket
    else:
        if applied > topic.holding(name).version:
            leases = leases.doubted(name, version)
        elif reborn and name in leases.holdings:
            leases = leases.reissued(name, version)
        else:
            leases = leases.acknowledged(name, applied, _amount(news.held.get(topic.name, (0, 0))))
        if still_dead is not None and name in topic.placement.brokers and name not in leases.target:
            leases = with_declared_split(replace(topic, leases=leases), still_dead, most(topic)).leases
        leases = leases.advanced(live, version) if leases is not topic.leases else leases
        leases = adapting.pooled_if_due(topic.spec, leases)
        channels = news.channels.get(topic.name, channels)
    if leases is topic.leases and channels == topic.channels:
        return topic
    return replace(topic, leases=leases, channels=channels)


def _amount(held: tuple[int, int]) -> Amount:
    """More than any pool has where it makes no sense: that is noticed when the pool ends."""
    return Amount(*held) if min(held) >= 0 and max(held) <= _LARGEST else Amount(_LARGEST, _LARGEST)


def lifted(caps: CapacityCaps, before: Mapping[str, Topic], topics: Collection[Topic]) -> CapacityCaps:
    """``caps`` without those of brokers that something leaves as ``topics`` replace their namesakes."""
    for topic in topics:
        old = before.get(topic.name)
        if old is not None and old.placement is not topic.placement:
            now = topic.placement.assigned
            for name, rate in old.placement.assigned.items():
                if rate > now.get(name, 0.0) + ROUNDING and name in caps.brokers:
                    caps = caps.without(name)
    return caps
