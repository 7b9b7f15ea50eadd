"""The desired state of a broker, made from topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from distributor.model.cluster import Broker, Topic
from distributor.model.leases import MICRO
from distributor.placement.proposals import MaxRate, broker_traits, may_be_told_seldom
from srtm.contracts.contract import Contract
from srtm.contracts.versioned import Contracts, Key, Versioned
from srtm.control import (
    BrokerContract,
    BrokerContracts,
    ContractTerms,
    DesiredTopic,
    Exchange,
    Move,
    Share,
    SyncAnswer,
)

# Versions of contracts from which brokers are told differences: they follow a change within a second or two. The
# dictionary of a version of ten thousand contracts takes half a megabyte.
_RECENT_CONTRACTS = 8


def answer(
    version: int,
    have_version: int,
    broker: str,
    topics: Iterable[Topic],
    moves: list[Move],
    brokers: Mapping[str, Broker],
    max_rate: MaxRate,
    *,
    draining: bool,
    since: int = 0,
    remembered: int = 0,
) -> SyncAnswer:
    """The answer to a sync of ``broker``.

    It names every managed topic, also where the broker has no share. If ``since`` is above 0, ``topics`` are those that
    have changed since that version, and the answer names only these. ``brokers``: all that are known. ``remembered``:
    the version that the broker's data directory knows.
    """
    known = list(topics)
    return SyncAnswer(
        version=version,
        since=since,
        removed=[topic.name for topic in known if topic.removed] if since else [],
        topics=[desired_topic(topic, broker, brokers, max_rate) for topic in known if not topic.removed],
        moves=moves,
        draining=draining,
        purged=[topic.name for topic in known if is_to_be_purged(topic, have_version or remembered)],
    )


def is_to_be_purged(topic: Topic, known_version: int) -> bool:
    """Whether the broker is to delete the queued messages of ``topic``.

    Only one that knew the topic: a purge must not hit a later topic of that name.
    """
    return topic.removed and topic.purged and topic.version > known_version > 0


def desired_topic(topic: Topic, broker: str, brokers: Mapping[str, Broker], max_rate: MaxRate) -> DesiredTopic:
    """``topic`` as ``broker`` is to run it."""
    return DesiredTopic(
        topic=topic.name,
        share=share(topic, broker),
        on_excess=topic.spec.on_excess,
        publishers=topic.placement.ids_of.get(broker, []),
        assignment_version=topic.assignment_version,
        channels=list(topic.channels),
        histories=topic.spec.mode != "static",
        steady_histories=may_be_told_seldom(topic),
        exchange=exchange(topic, broker, brokers, max_rate),
        mqtt_filters=list(topic.spec.mqtt.filters),
        mqtt_name=topic.spec.mqtt.name,
        mqtt_v3_excess=topic.spec.mqtt.v3_excess,
        mqtt_groups=list(topic.spec.mqtt.groups),
        promise_ms=topic.spec.slo.latency_ms,
        terms=terms(topic, broker),
    )


def terms(topic: Topic, broker: str) -> ContractTerms:
    """The contracts of the topic's clients. Where all publishers name one, it holds for undeclared ones too."""
    names, publishers = topic.spec.contracts, topic.placement.publishers
    others = names.publishers or publishers.common_contract
    named: dict[str, list[str]] = {}
    if publishers.contracts is not None:
        for publisher in topic.placement.ids_of.get(broker, []):
            namespace = publishers.contract_of(publishers.positions[publisher])
            if namespace not in ("", others):
                named.setdefault(namespace, []).append(publisher)
    return ContractTerms(publishers=others, named=named, consumers=names.consumers, tenant=names.tenant)


class ToldContracts:
    """Contracts as brokers are told them: all, or what differs from a version that was in force here lately. Made once
    for all brokers."""

    def __init__(self) -> None:
        self._recent: dict[int, Contracts] = {}  # by version, oldest first
        self._forms: dict[
            Key, tuple[Versioned, BrokerContract]
        ] = {}  # of contracts in force: ten thousand take a second
        self._told: dict[int, BrokerContracts] = {}  # {version of a broker, 0: none: what makes it the latest}

    def follow(self, contracts: Contracts) -> None:
        """Those in force from now on."""
        if contracts is self._recent.get(contracts.version):
            return
        self._recent.pop(contracts.version, None)  # of a store that was read anew
        self._recent[contracts.version] = contracts
        while len(self._recent) > _RECENT_CONTRACTS:
            del self._recent[next(iter(self._recent))]
        self._forms = {key: form for key, form in self._forms.items() if contracts.by_key.get(key) is form[0]}
        self._told.clear()

    def news(self, version: int) -> BrokerContracts:
        """What a broker lacks that has those of ``version``; 0: all. Everything if that is not known any more."""
        since = version if version in self._recent else 0
        if since not in self._told:
            self._told[since] = self._news(since)
        return self._told[since]

    def _news(self, since: int) -> BrokerContracts:
        now = next(reversed(self._recent.values()))
        before = self._recent[since].by_key if since else {}
        return BrokerContracts(
            version=now.version,
            contracts=[self._form(one) for one in now.all() if before.get(one.contract.key) is not one],
            since=since,
            removed=sorted(before.keys() - now.by_key.keys()),
        )

    def _form(self, one: Versioned) -> BrokerContract:
        key = one.contract.key
        if key not in self._forms:
            self._forms[key] = one, _broker_contract(one.contract)
        return self._forms[key][1]


def _broker_contract(contract: Contract) -> BrokerContract:
    return BrokerContract(
        namespace=contract.namespace,
        subject=contract.subject,
        core=msgspec.Raw(contract.to_core()),
        replicated=contract.mode == "replicated",
    )


def exchange(topic: Topic, broker: str, brokers: Mapping[str, Broker], max_rate: MaxRate) -> Exchange | None:
    """What ``broker`` must know to exchange tokens with other brokers; None: it may not."""
    takes_part = broker in topic.leases.target and topic.holding(broker).share.is_usable
    if not topic.leases.pool or topic.leases.is_recalled(broker) or not takes_part:
        return None
    own = broker_traits(topic, broker, max_rate)
    return Exchange(
        epoch=topic.leases.pool,
        rate=topic.leases.envelope.rate / MICRO,
        burst=topic.leases.envelope.burst / MICRO,
        members={name: brokers[name].http_address for name in topic.leases.target if name in brokers},
        partners=topic.spec.adaptation.partners,
        indicator=topic.spec.adaptation.indicator,
        batch=own.batch,
        capacity=own.capacity,
    )


def share(topic: Topic, broker: str) -> Share:
    """The share of ``broker`` as a lease, or the order to keep what it has while the pool is recalled."""
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


def changes_desired_state(old: Topic | None, new: Topic, broker: str) -> bool:
    """Whether ``broker`` is told anything else of ``new`` than of ``old``."""
    if old is None or old.removed or new.removed:
        return True
    if old.spec is not new.spec or old.assignment_version != new.assignment_version or old.channels != new.channels:
        return True
    if old.leases.pool != new.leases.pool:
        return True
    return old.holding(broker).version != new.holding(broker).version
