"""The cluster state as rows of the store, and back. Nothing is decided here."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import msgspec
import trio
from sqlalchemy import Connection

from distributor.model.cluster import Broker, Decision, FittingRecord, Topic
from distributor.model.full_brokers import CapacityCaps, TrafficClass
from distributor.model.state_change import StateChange
from distributor.storage import store
from distributor.storage.store import Edition, Replace, Store
from distributor.storage.topic_rows import Row, TopicRows, misplaced_in, text, topic_changes, topic_from
from srtm.contracts.contract import read_contract
from srtm.contracts.versioned import Contracts, Versioned
from srtm.topics.capacity import Capacity, parse_capacity
from srtm.topics.spec import Slo

DECISIONS_KEPT = 1000  # a topic: a log of years must not fill the disk
_VERSION = "version"
_SKIPPED = "skipped "
_MOST_SKIPS = 1_000
_CONTRACTS = "contracts"  # version of the last change of any
_DRAINING = "draining "  # and the name of a broker


@dataclass(frozen=True, kw_only=True)
class Stored:
    """All that was stored, as of ``edition``."""

    edition: Edition
    identity: int  # of the store, from its beginning on
    version: int
    skips: dict[int, int]  # {version: that with which the next leader began}; no broker was told those between
    draining: set[str]  # names of brokers
    brokers: dict[str, Broker]
    topics: dict[str, Topic]
    decisions: dict[str, list[Decision]]
    capacities: dict[str, tuple[Capacity, ...]]  # {broker: each of another promise or class}
    fittings: dict[str, FittingRecord]
    caps: CapacityCaps
    contracts: Contracts


def changes(
    change: StateChange, version: int, before: Mapping[str, Topic], log: Mapping[str, Decision] = MappingProxyType({})
) -> Iterator[Replace]:
    """What to store for ``change``, made as it is asked for: rows of a million publishers take seconds.

    ``before``: the present topics; their columns of publishers are not written again if they are the same. ``log``: new
    entries of decision logs, by topic.
    """
    yield Replace(store.settings, {"name": _VERSION}, [{"name": _VERSION, "value": version}])
    yield from (Replace(store.brokers, {"name": one.name}, [_broker_row(one)]) for one in change.brokers)
    if change.forgotten_broker:
        yield Replace(store.brokers, {"name": change.forgotten_broker})
    yield from (_drain_change(name, on) for name, on in change.draining.items())
    yield from (_capacities_change(name, figures) for name, figures in change.capacities.items())
    for topic in change.topics:
        yield from topic_changes(before.get(topic.name), topic)
        if topic.removed:
            yield Replace(store.fittings, {"topic": topic.name})
    for name in change.forgotten_topics:
        yield Replace(store.topics, {"name": name})
        for table in (store.publishers, store.places, store.shares, store.decisions, store.fittings):
            yield Replace(table, {"topic": name})
    for name, one in log.items():
        yield Replace(store.decisions, _decision_key(name, one.number), [_decision_row(name, one)])
        yield Replace(store.decisions, _decision_key(name, one.number - DECISIONS_KEPT))
    if change.fitting is not None:
        yield Replace(store.fittings, {"topic": change.fitting.topic}, [dataclasses.asdict(change.fitting)])


def skip_changes(skips: Mapping[int, int]) -> Iterator[Replace]:
    """What to store of ``skips``, whose last one is new. Of a thousand leaders the first one's is dropped."""
    found, first = list(skips.items())[-1]
    yield Replace(store.settings, {"name": f"{_SKIPPED}{found}"}, [{"name": f"{_SKIPPED}{found}", "value": first}])
    for old in list(skips)[:-_MOST_SKIPS]:
        yield Replace(store.settings, {"name": f"{_SKIPPED}{old}"})


def contract_changes(old: Contracts, new: Contracts) -> Iterator[Replace]:
    """What to store so that ``new`` replaces ``old``."""
    if new is old:
        return
    yield Replace(store.settings, {"name": _CONTRACTS}, [{"name": _CONTRACTS, "value": new.version}])
    for key in dict.fromkeys([*old.by_key, *new.by_key]):
        if old.by_key.get(key) != new.by_key.get(key):
            namespace, subject = key
            rows = [_contract_row(new.by_key[key])] if key in new.by_key else []
            yield Replace(store.contracts, {"namespace": namespace, "subject": subject}, rows)


def _contract_row(versioned: Versioned) -> Row:
    contract = versioned.contract
    names = {"namespace": contract.namespace, "subject": contract.subject}
    return {**names, "version": versioned.version, "document": text(contract.to_json())}


def _contract(row: Row) -> Versioned:
    return Versioned(read_contract(msgspec.json.decode(row["document"])), row["version"])


def cap_changes(old: CapacityCaps, new: CapacityCaps) -> list[Replace]:
    changed = [
        broker
        for broker in dict.fromkeys([*old.brokers, *new.brokers])
        if _cap_rows(new, broker) != _cap_rows(old, broker)
    ]
    return [Replace(store.marks, {"broker": broker}, _cap_rows(new, broker)) for broker in changed]


def _cap_rows(caps: CapacityCaps, broker: str) -> list[Row]:
    return [
        {
            "broker": broker,
            "percentile": slo.percentile,
            "latency_ms": slo.latency_ms,
            "process": traffic.process,
            "batch": traffic.batch,
            "group_size": traffic.group,
            "kept": rate,
        }
        for (name, slo, traffic), rate in caps.rates.items()
        if name == broker
    ]


def _caps(rows: Iterable[Row]) -> CapacityCaps:
    return CapacityCaps(
        {
            (
                row["broker"],
                Slo(percentile=row["percentile"], latency_ms=row["latency_ms"]),
                TrafficClass(process=row["process"], batch=row["batch"], group=row["group_size"]),
            ): row["kept"]
            for row in rows
        }
    )


def _broker_row(broker: Broker) -> Row:
    return {**dataclasses.asdict(broker), "claims": None if broker.claims is None else text(broker.claims)}


def _broker(row: Row) -> Broker:
    claims = row["claims"]
    return Broker(**{**row, "claims": None if claims is None else tuple(msgspec.json.decode(claims, type=list[str]))})


def _drain_change(broker: str, on: bool) -> Replace:
    name = _DRAINING + broker
    return Replace(store.settings, {"name": name}, [{"name": name, "value": 1}] if on else [])


def _capacities_change(broker: str, figures: Sequence[Capacity]) -> Replace:
    row = {"broker": broker, "figures": text([figure.to_json() for figure in figures])}
    return Replace(store.capacities, {"broker": broker}, [row] if figures else [])


def _decision_key(topic: str, number: int) -> Row:
    return {"topic": topic, "number": number}


def _decision_row(topic: str, decision: Decision) -> Row:
    return {**_decision_key(topic, decision.number), "wall_ns": decision.wall_ns, "lines": text(decision.lines)}


async def load(source: Store, known: Stored | None = None) -> Stored:
    """Everything that is stored. Raises Unavailable.

    ``known``: loaded before. Its publishers and places are read again only if they have changed, its decisions never.
    """
    found = await source.read(partial(_read, known=known))
    return await trio.to_thread.run_sync(_stored, found)


@dataclass(frozen=True)
class _Found:
    """Rows of one moment, without what is ``known`` already.

    ``specs``, ``placements``: names of topics whose part is known. Earlier decisions are known too.
    """

    edition: store.Edition
    settings: list[Row]
    brokers: list[Row]
    topics: dict[str, Row]
    known: Stored | None
    specs: set[str]
    placements: set[str]
    publishers: list[Row]
    places: list[Row]
    shares: list[Row]
    decisions: list[Row]
    capacities: list[Row]
    fittings: list[Row]
    marks: list[Row]
    contracts: list[Row]


def _read(connection: Connection, *, known: Stored | None) -> _Found:
    """Only rows: to make a million publishers of them takes seconds, and the server ends a session that idles in a
    transaction."""
    rows = {row["name"]: row for row in store.rows(connection, store.topics)}
    before = {name: topic for name, topic in known.topics.items() if name in rows} if known else {}
    # A spec and a placement never change without their version.
    specs = {name for name, topic in before.items() if rows[name]["version"] == topic.version}
    placements = {name for name in specs if rows[name]["assignment_version"] == before[name].assignment_version}
    return _Found(
        edition=store.edition(connection),
        settings=store.rows(connection, store.settings),
        brokers=store.rows(connection, store.brokers),
        topics=rows,
        known=known,
        specs=specs,
        placements=placements,
        publishers=store.rows(connection, store.publishers, topics=rows.keys() - specs if specs else None),
        places=store.rows(connection, store.places, topics=rows.keys() - placements if placements else None),
        shares=store.rows(connection, store.shares),
        decisions=store.decisions_after(
            connection, {name: log[-1].number for name, log in known.decisions.items()} if known else {}
        ),
        capacities=store.rows(connection, store.capacities),
        fittings=store.rows(connection, store.fittings),
        marks=store.rows(connection, store.marks),
        contracts=store.rows(connection, store.contracts),
    )


def _skips(numbers: Mapping[str, int]) -> dict[int, int]:
    """Oldest first."""
    named = {name.removeprefix(_SKIPPED): value for name, value in numbers.items() if name.startswith(_SKIPPED)}
    return dict(sorted((int(found), first) for found, first in named.items()))


def _stored(found: _Found) -> Stored:
    numbers = {row["name"]: row["value"] for row in found.settings}
    return Stored(
        edition=found.edition,
        identity=numbers.get(store.IDENTITY, 0),
        version=numbers.get(_VERSION, 0),
        skips=_skips(numbers),
        draining={name.removeprefix(_DRAINING) for name in numbers if name.startswith(_DRAINING)},
        brokers={row["name"]: _broker(row) for row in found.brokers},
        topics=_topics(found, numbers),
        decisions=_decisions(found),
        capacities={row["broker"]: _figures(row) for row in found.capacities},
        fittings={row["topic"]: FittingRecord(**row) for row in found.fittings},
        caps=_caps(found.marks),
        contracts=Contracts(
            numbers.get(_CONTRACTS, 0),
            {kept.contract.key: kept for kept in map(_contract, found.contracts)},
        ),
    )


def _topics(found: _Found, numbers: Mapping[str, int]) -> dict[str, Topic]:
    """``numbers``: the settings of the store, by name."""
    known = found.known.topics if found.known else {}
    shares, publishers, places = _by_topic(found.shares), _by_topic(found.publishers), _by_topic(found.places)
    misplaced = misplaced_in(numbers)
    topics = (
        topic_from(
            TopicRows(
                topic=row,
                shares=shares.get(name, []),
                publishers=publishers.get(name, []),
                places=places.get(name, []),
            ),
            misplaced.get(name, {}),
            known[name].spec if name in found.specs else None,
            known[name].placement if name in found.placements else None,
        )
        for name, row in found.topics.items()
    )
    return {topic.name: topic for topic in topics}


def _figures(row: Row) -> tuple[Capacity, ...]:
    return tuple(parse_capacity(figure) for figure in msgspec.json.decode(row["figures"]))


def _decisions(found: _Found) -> dict[str, list[Decision]]:
    """Known ones, and then those that were read, of topics that are there."""
    known = found.known.decisions if found.known else {}
    logs = {name: log for name, log in known.items() if name in found.topics}
    for name, rows in _by_topic(found.decisions).items():
        before = [decision for decision in logs.get(name, []) if decision.number < rows[0]["number"]]
        logs[name] = [*before, *(_decision(row) for row in rows)][-DECISIONS_KEPT:]
    return logs


def _by_topic(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """``rows`` are in the order of their keys, which begin with the topic."""
    return {name: list(group) for name, group in itertools.groupby(rows, key=lambda row: str(row["topic"]))}


def _decision(row: Row) -> Decision:
    return Decision(number=row["number"], wall_ns=row["wall_ns"], lines=tuple(msgspec.json.decode(row["lines"])))
