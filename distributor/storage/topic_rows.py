"""A topic as rows of the store, and back: spec, publishers and their places, shares. Nothing is decided here.

Publishers and places are in separate chunks of columns: of a large fleet a few publishers move, and the fleet stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from distributor.model.cluster import Misplaced, Placement, Topic
from distributor.model.columns import Ints
from distributor.model.leases import MICRO, NOTHING, Amount, Holding, Leases
from distributor.storage import store
from distributor.storage.store import Replace
from srtm.topics.publishers import coordinates, join
from srtm.topics.spec import LEAST_LATENCY_MS, LONGEST_LATENCY_MS, TopicSpec, parse_topic_json

_CHUNK = 10_000  # publishers a row
_MISPLACED = "astray "  # then a topic, a broker and a home ("" in transit); the value is micro-messages/s
NO_PUBLISHERS = join([])

Row = dict[str, Any]


def topic_changes(old: Topic | None, new: Topic) -> Iterator[Replace]:
    """What to store so that ``new`` replaces ``old`` (None: nothing is stored).

    Shares are always written: acknowledgements are shown before they are stored, so ``old`` does not say which shares
    the store has. Publishers, places and misplaced load are written if they differ.
    """
    yield Replace(store.topics, {"name": new.name}, [_topic_row(new)])
    yield Replace(store.shares, {"topic": new.name}, _share_rows(new))
    yield from _misplaced_changes(_misplaced_rows(old), _misplaced_rows(new))
    if old is None or new.placement is not old.placement:
        yield from _place_changes(old.placement if old else None, new)


def _misplaced_changes(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[Replace]:
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            rows = [{"name": name, "value": new[name]}] if name in new else []
            yield Replace(store.settings, {"name": name}, rows)


def _misplaced_rows(topic: Topic | None) -> dict[str, int]:
    """{name of a setting: micro-messages/s}. No name of a topic or broker has a space in it."""
    if topic is None:
        return {}
    return {
        f"{_MISPLACED}{topic.name} {broker} {home}": round(rate * MICRO)
        for broker, homes in topic.misplaced.items()
        for home, rate in homes.items()
    }


def misplaced_in(settings: Mapping[str, int]) -> dict[str, dict[str, dict[str, float]]]:
    """{topic: {broker: {home: msg/s}}}"""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, value in settings.items():
        if name.startswith(_MISPLACED):
            topic, broker, home = name.removeprefix(_MISPLACED).split(" ")
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
        "spec": text(spec),
        "brokers": text(topic.placement.brokers),
        "channels": text(topic.channels),
        "reasons": text(topic.reasons),
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


def _place_changes(old: Placement | None, new: Topic) -> Iterator[Replace]:
    at = new.placement.at
    if old is None or old.publishers is not new.placement.publishers:
        yield Replace(store.publishers, {"topic": new.name}, _publisher_rows(new))
        yield Replace(store.places, {"topic": new.name}, [_place_row(new.name, part, at) for part in _chunks(len(at))])
        return
    for part in _chunks(len(at)):
        if not np.array_equal(at[part], old.at[part]):
            row = _place_row(new.name, part, at)
            yield Replace(store.places, {"topic": new.name, "chunk": row["chunk"]}, [row])


def _publisher_rows(topic: Topic) -> list[Row]:
    rows = topic.spec.publishers.rows("")
    columns: list[Sequence[Any]] = [rows.ids, rows.rates, rows.groups, rows.processes, rows.batches]
    places: list[Sequence[float | None]] = [*coordinates(rows.points).values()] or [(), ()]
    # Earlier versions read the first five. The others are empty where nobody has a place, or a contract.
    columns += [*places, rows.contracts]
    return [
        _chunk_row(topic.name, part, "columns", [list(column[part]) for column in columns])
        for part in _chunks(len(rows.ids))
    ]


def _place_row(topic: str, part: slice, at: Ints) -> Row:
    return _chunk_row(topic, part, "at", at[part].tolist())


def _chunk_row(topic: str, part: slice, column: str, values: object) -> Row:
    return {"topic": topic, "chunk": part.start // _CHUNK, column: msgspec.msgpack.encode(values)}


def _chunks(length: int) -> list[slice]:
    return [slice(start, start + _CHUNK) for start in range(0, length, _CHUNK)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopicRows:
    """The rows of one topic."""

    topic: Row
    shares: Sequence[Row]
    publishers: Sequence[Row]  # chunks
    places: Sequence[Row]  # chunks


def topic_from(
    rows: TopicRows,
    misplaced: Misplaced,
    known_spec: TopicSpec | None,
    known_placement: Placement | None,
) -> Topic:
    """The topic of ``rows``. A part that is known to be what is stored is not made again."""
    row = rows.topic
    spec = known_spec or _spec(row, rows.publishers)
    return Topic(
        spec=spec,
        version=row["version"],
        placement=known_placement or _placement(row, spec, rows.places),
        assignment_version=row["assignment_version"],
        leases=_leases(row, rows.shares, spec.lease_ms),
        reasons=tuple(msgspec.json.decode(row["reasons"])),
        channels=tuple(msgspec.json.decode(row["channels"])),
        removed=row["removed"],
        purged=row["purged"],
        misplaced=misplaced,
    )


def _spec(row: Row, chunks: Sequence[Row]) -> TopicSpec:
    columns = [msgspec.msgpack.decode(chunk["columns"]) for chunk in chunks]
    names = ("ids", "rates", "groups", "process", "batch", "latitudes", "longitudes", "contract")
    values = {
        name: [value for chunk in columns for column in chunk[at : at + 1] for value in column]
        for at, name in enumerate(names)
    }
    block = {name: column for name, column in values.items() if column}  # an earlier version wrote five columns
    document = _adopted(msgspec.json.decode(row["spec"]))
    parsed = parse_topic_json({**document, "name": "stored", "publishers": [block] if block.get("ids") else []})
    return dataclasses.replace(parsed, name=document["name"])  # older stores have names that no new topic gets


def _adopted(document: dict[str, Any]) -> dict[str, Any]:
    """A stored ``document`` in the words of this version.

    Older stores have promises that no broker can measure, and their "auto" is the rule that is called "paper" now: the
    topic keeps its burst until it is submitted again.
    """
    if document["burst"] == "auto" and "max_burst_s" not in document:
        document = {**document, "burst": "paper"}
    latency_ms = min(max(document["slo"]["latency_ms"], LEAST_LATENCY_MS), LONGEST_LATENCY_MS)
    return {**document, "slo": {**document["slo"], "latency_ms": latency_ms}}


def _placement(row: Row, spec: TopicSpec, chunks: Sequence[Row]) -> Placement:
    at = [broker for chunk in chunks for broker in msgspec.msgpack.decode(chunk["at"])]
    brokers = tuple(_broker_name(entry) for entry in msgspec.json.decode(row["brokers"]))
    return Placement(publishers=spec.publishers, brokers=brokers, at=np.array(at, dtype=np.int64))


def _broker_name(entry: str | list[str | int]) -> str:
    """The name in one entry of the column ``brokers``. Older versions also wrote ``[name, rate, burst]``."""
    return entry if isinstance(entry, str) else str(entry[0])


def _leases(row: Row, shares: Sequence[Row], lease_ms: int | None) -> Leases:
    targets = {share["broker"]: Amount(share["target_rate"], share["target_burst"]) for share in shares}
    return Leases(
        envelope=Amount(row["envelope_rate"], row["envelope_burst"]),
        granted=row["granted"],
        pool=row["pool"],
        recalling=row["recalling"],
        lease_ms=lease_ms,
        target={broker: target for broker, target in targets.items() if target != NOTHING},
        holdings={share["broker"]: _holding(share) for share in shares if share["version"]},
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


def text(value: object) -> str:
    """JSON."""
    return msgspec.json.encode(value).decode()
