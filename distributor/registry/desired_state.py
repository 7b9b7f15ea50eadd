"""What a broker is told: its desired state, made from topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from distributor.model.cluster import Broker, Topic
from distributor.model.leases import MICRO
from distributor.placement import proposals as adapting
from srtm.control import DesiredTopic, Exchange, Move, Share, SyncAnswer


def answer(
    version: int,
    have_version: int,
    broker: str,
    topics: Iterable[Topic],
    moves: list[Move],
    brokers: Mapping[str, Broker],
    most: adapting.MostRate,
    *,
    draining: bool,
    since: int = 0,
    remembered: int = 0,
) -> SyncAnswer:
    """The state of ``broker``: every managed topic is named, also where it has no share; above 0, those that are not as
    in the state ``since``, which are then ``topics``. ``brokers``: all that are known; ``most``: what each can process
    of a topic; ``remembered``: the state with which its data was left."""
    known = list(topics)
    return SyncAnswer(
        version=version,
        since=since,
        removed=[topic.name for topic in known if topic.removed] if since else [],
        topics=[desired_topic(topic, broker, brokers, most) for topic in known if not topic.removed],
        moves=moves,
        draining=draining,
        purged=[topic.name for topic in known if is_to_be_purged(topic, have_version or remembered)],
    )


def is_to_be_purged(topic: Topic, known_version: int) -> bool:
    """Only on a broker that knew the topic: a purge must not hit what came under the name later."""
    return topic.removed and topic.purged and topic.version > known_version > 0


def desired_topic(topic: Topic, broker: str, brokers: Mapping[str, Broker], most: adapting.MostRate) -> DesiredTopic:
    """``topic`` as ``broker`` shall run it."""
    return DesiredTopic(
        topic=topic.name,
        share=share(topic, broker),
        on_excess=topic.spec.on_excess,
        publishers=topic.placement.ids_of.get(broker, []),
        assignment_version=topic.assignment_version,
        channels=list(topic.channels),
        histories=topic.spec.mode != "static",
        steady_histories=adapting.may_be_told_seldom(topic),
        exchange=exchange(topic, broker, brokers, most),
    )


def exchange(topic: Topic, broker: str, brokers: Mapping[str, Broker], most: adapting.MostRate) -> Exchange | None:
    """What ``broker`` must know to exchange tokens with the others; None: it may not."""
    takes_part = broker in topic.leases.target and topic.holding(broker).share.usable
    if not topic.leases.pool or topic.leases.is_recalled(broker) or not takes_part:
        return None
    mine = adapting.broker_traits(topic, broker, most)
    return Exchange(
        epoch=topic.leases.pool,
        rate=topic.leases.envelope.rate / MICRO,
        members={name: brokers[name].http_address for name in topic.leases.target if name in brokers},
        partners=topic.spec.adaptation.partners,
        indicator=topic.spec.adaptation.indicator,
        batch=mine.batch,
        capacity=mine.capacity,
    )


def share(topic: Topic, broker: str) -> Share:
    """Its part of (r, b), as a lease; or the word to keep what it has, where that is being called in."""
    holding = topic.holding(broker)
    if topic.leases.is_recalled(broker):
        return Share(version=holding.version, rate=0.0, burst=0.0, recall=True)
    return Share(
        version=holding.version,
        rate=holding.share.rate / MICRO,
        burst=holding.share.burst / MICRO,
        full=holding.full,
        lease_s=None if holding.lease_ms is None else holding.lease_ms / 1000,
    )


def concerns(old: Topic | None, new: Topic, broker: str) -> bool:
    """Whether going from ``old`` to ``new`` changes what ``broker`` is told."""
    if old is None or old.removed or new.removed:
        return True
    if old.spec is not new.spec or old.assignment_version != new.assignment_version or old.channels != new.channels:
        return True
    if old.leases.pool != new.leases.pool:
        return True
    return old.holding(broker).version != new.holding(broker).version
