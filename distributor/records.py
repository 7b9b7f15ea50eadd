"""``state`` as rows of ``store`` and back. Nothing is decided here."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import trio
from sqlalchemy import Connection

from distributor import store
from distributor.leases import MICRO, NOTHING, Amount, Holding, Leases
from distributor.marks import FullMarks, TrafficClass
from distributor.state import Broker, Decision, FittingRecord, Placement, Topic
from distributor.store import Edition, Replace, Store
from srtm.capacity import Capacity, parse_capacity
from srtm.publishers import join
from srtm.topic import Slo, TopicSpec, parse_topic_json

DECISIONS_KEPT = 1000  # a topic: a log of years must not fill the disk
_CHUNK = 10_000  # publishers a row
_VERSION = "version"
_DRAINING = "draining "  # and the name of a broker
_ASTRAY = "astray "  # and a topic, a broker, and where they belong (nothing: on their way there); in micro-messages/s
NO_PUBLISHERS = join([])

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Stored:
    """All that was stored, as of ``edition``."""

    edition: Edition
    version: int
    draining: set[str]  # names of brokers
    brokers: dict[str, Broker]
    topics: dict[str, Topic]
    decisions: dict[str, list[Decision]]
    capacities: dict[str, tuple[Capacity, ...]]  # {broker: each of another promise or class}
    fittings: dict[str, FittingRecord]
    marks: FullMarks


def changes(
    before: Mapping[str, Topic],
    topics: Sequence[Topic],
    brokers: Sequence[Broker],
    version: int,
    log: Mapping[str, Decision],
    forgotten: str = "",
    draining: Mapping[str, bool] | None = None,
    capacities: Mapping[str, Sequence[Capacity]] | None = None,
) -> list[Replace]:
    """What to store so that ``topics`` and ``brokers`` replace their namesakes. Columns that did not change are not
    written again. ``draining``: {broker: whether, from now on}; ``capacities``: {broker: all of it now}."""
    result = [Replace(store.settings, {"name": _VERSION}, [{"name": _VERSION, "value": version}])]
    result += [Replace(store.brokers, {"name": one.name}, [dataclasses.asdict(one)]) for one in brokers]
    result += [Replace(store.brokers, {"name": forgotten})] if forgotten else []
    result += [_drain_change(name, on) for name, on in (draining or {}).items()]
    result += [_capacities_change(name, figures) for name, figures in (capacities or {}).items()]
    for topic in topics:
        result += _topic_changes(before.get(topic.name), topic)
    for name, one in log.items():
        result.append(Replace(store.decisions, _decision_key(name, one.number), [_decision_row(name, one)]))
        result.append(Replace(store.decisions, _decision_key(name, one.number - DECISIONS_KEPT)))
    return result


def fitting_change(topic: str, record: FittingRecord | None) -> Replace:
    return Replace(store.fittings, {"topic": topic}, [dataclasses.asdict(record)] if record else [])


def mark_changes(old: FullMarks, new: FullMarks) -> list[Replace]:
    changed = [
        broker
        for broker in dict.fromkeys([*old.brokers, *new.brokers])
        if _mark_rows(new, broker) != _mark_rows(old, broker)
    ]
    return [Replace(store.marks, {"broker": broker}, _mark_rows(new, broker)) for broker in changed]


def _mark_rows(marks: FullMarks, broker: str) -> list[Row]:
    return [
        {
            "broker": broker,
            "percentile": slo.percentile,
            "latency_ms": slo.latency_ms,
            "process": traffic.process,
            "batch": traffic.batch,
            "group_size": traffic.group,
            "kept": kept,
        }
        for (name, slo, traffic), kept in marks.kept.items()
        if name == broker
    ]


def _marks(rows: Iterable[Row]) -> FullMarks:
    return FullMarks(
        {
            (
                row["broker"],
                Slo(percentile=row["percentile"], latency_ms=row["latency_ms"]),
                TrafficClass(process=row["process"], batch=row["batch"], group=row["group_size"]),
            ): row["kept"]
            for row in rows
        }
    )


def _drain_change(broker: str, on: bool) -> Replace:
    name = _DRAINING + broker
    return Replace(store.settings, {"name": name}, [{"name": name, "value": 1}] if on else [])


def _capacities_change(broker: str, figures: Sequence[Capacity]) -> Replace:
    row = {"broker": broker, "figures": _text([one.to_json() for one in figures])}
    return Replace(store.capacities, {"broker": broker}, [row] if figures else [])


def _topic_changes(old: Topic | None, new: Topic) -> Iterator[Replace]:
    yield Replace(store.topics, {"name": new.name}, [_topic_row(new)])
    if old is None or new.leases is not old.leases:
        yield Replace(store.shares, {"topic": new.name}, _share_rows(new))
    yield from _astray_changes(_astray_rows(old), _astray_rows(new))
    if old is None or new.placement is not old.placement:
        yield Replace(store.publishers, {"topic": new.name}, _publisher_rows(new))


def _astray_changes(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[Replace]:
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            rows = [{"name": name, "value": new[name]}] if name in new else []
            yield Replace(store.settings, {"name": name}, rows)


def _astray_rows(topic: Topic | None) -> dict[str, int]:
    """No name has a space in it."""
    if topic is None:
        return {}
    return {
        f"{_ASTRAY}{topic.name} {broker} {home}": round(rate * MICRO)
        for broker, homes in topic.astray.items()
        for home, rate in homes.items()
    }


def _astray(settings: Mapping[str, int]) -> dict[str, dict[str, dict[str, float]]]:
    """{topic: {broker: {home: msg/s}}}"""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, value in settings.items():
        if name.startswith(_ASTRAY):
            topic, broker, home = name.removeprefix(_ASTRAY).split(" ")
            found.setdefault(topic, {}).setdefault(broker, {})[home] = value / MICRO
    return found


def _topic_row(topic: Topic) -> Row:
    spec = dataclasses.replace(topic.spec, publishers=NO_PUBLISHERS).to_json()
    return {
        "name": topic.name,
        "removed": topic.removed,
        "purged": topic.purged,
        "version": topic.version,
        "assignment_version": topic.assignment_version,
        "spec": _text(spec),
        "brokers": _text(topic.placement.brokers),
        "channels": _text(topic.channels),
        "reasons": _text(topic.reasons),
        "envelope_rate": topic.leases.envelope.rate,
        "envelope_burst": topic.leases.envelope.burst,
        "granted": topic.leases.granted,
        "pool": topic.leases.pool,
        "recalling": topic.leases.recalling,
    }


def _share_rows(topic: Topic) -> list[Row]:
    target, holdings = topic.leases.target, topic.leases.holdings
    return [
        _share_row(topic.name, broker, target.get(broker, NOTHING), holdings.get(broker))
        for broker in dict.fromkeys([*target, *holdings])
    ]


def _share_row(topic: str, broker: str, target: Amount, held: Holding | None) -> Row:
    held = held or Holding(0, NOTHING, NOTHING)
    return {
        "topic": topic,
        "broker": broker,
        "target_rate": target.rate,
        "target_burst": target.burst,
        "version": held.version,
        "rate": held.share.rate,
        "burst": held.share.burst,
        "bound_rate": held.bound.rate,
        "bound_burst": held.bound.burst,
        "applied": held.applied,
        "starts_full": held.full,
        "lease_ms": held.lease_ms,
        "longest_ms": held.longest_ms,
    }


def _publisher_rows(topic: Topic) -> list[Row]:
    rows = topic.spec.publishers.rows("")
    columns = (rows.ids, rows.rates, rows.groups, rows.processes, rows.batches, topic.placement.at.tolist())
    return [
        {"topic": topic.name, "chunk": start // _CHUNK, "columns": _chunk(columns, start)}
        for start in range(0, len(rows.ids), _CHUNK)
    ]


def _chunk(columns: Iterable[Sequence[Any]], start: int) -> bytes:
    return msgspec.msgpack.encode([list(column[start : start + _CHUNK]) for column in columns])


def _decision_key(topic: str, number: int) -> Row:
    return {"topic": topic, "number": number}


def _decision_row(topic: str, decision: Decision) -> Row:
    return {**_decision_key(topic, decision.number), "wall_ns": decision.wall_ns, "lines": _text(decision.lines)}


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


async def load(source: Store, known: Stored | None = None) -> Stored:
    """Everything, as it was when it was stored last. Of the topics in ``known``, which was loaded before, publishers
    are read again only where they have changed. Raises Unavailable."""
    found = await source.read(partial(_read, known=known))
    return await trio.to_thread.run_sync(_stored, found)


@dataclass(frozen=True)
class _Found:
    """Rows as they were at one moment; ``kept``: topics whose publishers are known already."""

    edition: store.Edition
    settings: list[Row]
    brokers: list[Row]
    topics: dict[str, Row]
    kept: dict[str, Topic]
    publishers: list[Row]
    shares: list[Row]
    decisions: list[Row]
    capacities: list[Row]
    fittings: list[Row]
    marks: list[Row]


def _read(connection: Connection, *, known: Stored | None) -> _Found:
    """Rows alone: making a million publishers of them takes seconds, and a session that idles in the middle of a
    transaction is ended by the server."""
    rows = {row["name"]: row for row in store.rows(connection, store.topics)}
    kept = {name: topic for name, topic in (known.topics if known else {}).items() if _is_as_placed(topic, rows)}
    return _Found(
        edition=store.edition(connection),
        settings=store.rows(connection, store.settings),
        brokers=store.rows(connection, store.brokers),
        topics=rows,
        kept=kept,
        publishers=store.rows(connection, store.publishers, topics=rows.keys() - kept.keys() if kept else None),
        shares=store.rows(connection, store.shares),
        decisions=store.rows(connection, store.decisions),
        capacities=store.rows(connection, store.capacities),
        fittings=store.rows(connection, store.fittings),
        marks=store.rows(connection, store.marks),
    )


def _stored(found: _Found) -> Stored:
    numbers = {row["name"]: row["value"] for row in found.settings}
    shares, publishers = _by_topic(found.shares), _by_topic(found.publishers)
    astray = _astray(numbers)
    topics = [
        _topic(row, shares.get(name, []), publishers.get(name, []), found.kept.get(name), astray.get(name, {}))
        for name, row in found.topics.items()
    ]
    return Stored(
        edition=found.edition,
        version=numbers.get(_VERSION, 0),
        draining={name.removeprefix(_DRAINING) for name in numbers if name.startswith(_DRAINING)},
        brokers={row["name"]: Broker(**row) for row in found.brokers},
        topics={topic.name: topic for topic in topics},
        decisions={name: [_decision(row) for row in rows] for name, rows in _by_topic(found.decisions).items()},
        capacities={row["broker"]: _figures(row) for row in found.capacities},
        fittings={row["topic"]: FittingRecord(**row) for row in found.fittings},
        marks=_marks(found.marks),
    )


def _figures(row: Row) -> tuple[Capacity, ...]:
    return tuple(parse_capacity(one) for one in msgspec.json.decode(row["figures"]))


def _is_as_placed(topic: Topic, rows: Mapping[str, Row]) -> bool:
    """A spec and a placement never change without their version."""
    row = rows.get(topic.name)
    return row is not None and (row["version"], row["assignment_version"]) == (topic.version, topic.assignment_version)


def _by_topic(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """``rows`` are in the order of their keys, which begin with the topic."""
    return {name: list(group) for name, group in itertools.groupby(rows, key=lambda row: str(row["topic"]))}


def _topic(
    row: Row,
    shares: Sequence[Row],
    chunks: Sequence[Row],
    placed: Topic | None,
    astray: Mapping[str, Mapping[str, float]],
) -> Topic:
    """``placed``: what has the same spec and placement, if that is at hand; else they are made from ``chunks``."""
    spec, placement = (placed.spec, placed.placement) if placed else _placed(row, chunks)
    return Topic(
        spec=spec,
        version=row["version"],
        placement=placement,
        assignment_version=row["assignment_version"],
        leases=_leases(row, shares, spec.lease_ms),
        reasons=tuple(msgspec.json.decode(row["reasons"])),
        channels=tuple(msgspec.json.decode(row["channels"])),
        removed=row["removed"],
        purged=row["purged"],
        astray=astray,
    )


def _placed(row: Row, chunks: Sequence[Row]) -> tuple[TopicSpec, Placement]:
    columns = [msgspec.msgpack.decode(chunk["columns"]) for chunk in chunks]
    ids, rates, groups, processes, batches, at = ([value for chunk in columns for value in chunk[i]] for i in range(6))
    block = {"ids": ids, "rates": rates, "groups": groups, "process": processes, "batch": batches}
    spec = parse_topic_json({**msgspec.json.decode(row["spec"]), "publishers": [block] if ids else []})
    brokers = tuple(msgspec.json.decode(row["brokers"]))
    return spec, Placement(publishers=spec.publishers, brokers=brokers, at=np.array(at, dtype=np.int64))


def _leases(row: Row, shares: Sequence[Row], lease_ms: int | None) -> Leases:
    targets = {one["broker"]: Amount(one["target_rate"], one["target_burst"]) for one in shares}
    return Leases(
        envelope=Amount(row["envelope_rate"], row["envelope_burst"]),
        granted=row["granted"],
        pool=row["pool"],
        recalling=row["recalling"],
        lease_ms=lease_ms,
        target={broker: target for broker, target in targets.items() if target != NOTHING},
        holdings={one["broker"]: _holding(one) for one in shares if one["version"]},
    )


def _holding(row: Row) -> Holding:
    return Holding(
        version=row["version"],
        share=Amount(row["rate"], row["burst"]),
        bound=Amount(row["bound_rate"], row["bound_burst"]),
        applied=row["applied"],
        full=row["starts_full"],
        lease_ms=row["lease_ms"],
        longest_ms=row["longest_ms"],
    )


def _decision(row: Row) -> Decision:
    return Decision(number=row["number"], wall_ns=row["wall_ns"], lines=tuple(msgspec.json.decode(row["lines"])))
