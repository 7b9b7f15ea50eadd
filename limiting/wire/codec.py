"""Frames of ``limiting.replication`` as bytes: a byte for the kind, then its fields in order.

Frames that name slices of windows are kinds of their own, and so are those with open requests: what has none has the
bytes that it always had.

The origin is not in the bytes: who sent them is known from the session, so that no node can speak for another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from limiting.replication.auto import Confirmed, Demand, Part, Shares
from limiting.replication.gossiped.counter import CounterBucket
from limiting.replication.gossiped.gossip import Delta
from limiting.replication.messages import (
    Ack,
    Answer,
    Ask,
    Close,
    Corrected,
    Correction,
    Entry,
    Hello,
    Increments,
    OpenEntry,
    Release,
    Snapshot,
    SnapshotAsk,
)
from limiting.replication.open_counts import OpenCount
from limiting.replication.open_counts import Writer as OpenWriter
from limiting.replication.refill import Key, Subject, Verdict
from limiting.wire.bits import Reader, Writer
from limiting.wire.sealed_grants import GRANT_BYTES
from srtm.errors import PeerError

SUBJECT_BYTES = 16


class _Field(NamedTuple):
    """How a field is written and read."""

    write: Callable[[Writer, Any], None]
    read: Callable[[Reader], Any]


class _Kind(NamedTuple):
    """A frame: its class, and its fields after ``origin``."""

    made: type
    fields: tuple[tuple[str, _Field], ...]


def encode(frame: object) -> bytes:
    """Return a frame as bytes, without its origin."""
    number = _number_of(frame)
    writer = Writer()
    writer.uint(number)
    for name, field in _KINDS[number].fields:
        field.write(writer, getattr(frame, name))
    return bytes(writer.data)


def decode(data: bytes, origin: int) -> Any:
    """Return the frame of ``data`` that the node ``origin`` sent. Raises PeerError."""
    reader = Reader(data)
    number = reader.uint()
    kind = _KINDS.get(number)
    if kind is None:
        raise PeerError(f"a frame is of kind {number}, which there is not")
    values = [field.read(reader) for _, field in kind.fields]
    reader.end()
    return kind.made(origin, *values)


def _number_of(frame: object) -> int:
    if isinstance(frame, Delta):
        states = iter(frame.users.values())
        return _COUNTERS if isinstance(next(states, None), CounterBucket) else _QUEUES
    if isinstance(frame, Increments | Snapshot) and frame.opened:
        return _INCREMENTS_OF_OPEN if isinstance(frame, Increments) else _SNAPSHOT_OF_OPEN
    if isinstance(frame, Increments | Snapshot) and any(len(key) == 3 for key, _ in frame.entries):
        return _INCREMENTS_OF_SLICES if isinstance(frame, Increments) else _SNAPSHOT_OF_SLICES
    return _NUMBERS[type(frame)]


# fields


def _write_subject(writer: Writer, subject: Subject) -> None:
    writer.raw(subject)


def _read_subject(reader: Reader) -> Subject:
    return reader.raw(SUBJECT_BYTES)


def _write_entries(writer: Writer, entries: tuple[Entry, ...]) -> None:
    writer.uint(len(entries))
    for key, units in entries:
        writer.raw(key[0])
        writer.uint(key[1])
        writer.sint(units)


def _read_entries(reader: Reader) -> tuple[Entry, ...]:
    return tuple(
        ((reader.raw(SUBJECT_BYTES), reader.uint()), reader.sint()) for _ in range(reader.count(SUBJECT_BYTES + 2))
    )


def _write_sliced(writer: Writer, entries: tuple[Entry, ...]) -> None:
    writer.uint(len(entries))
    for key, units in entries:
        writer.raw(key[0])
        writer.uint(key[1])
        _write_optional(writer, key[2] if len(key) == 3 else None)
        writer.sint(units)


def _read_sliced(reader: Reader) -> tuple[Entry, ...]:
    return tuple(_read_sliced_entry(reader) for _ in range(reader.count(SUBJECT_BYTES + 3)))


def _read_sliced_entry(reader: Reader) -> Entry:
    subject, policy, at = reader.raw(SUBJECT_BYTES), reader.uint(), _read_optional(reader)
    return (subject, policy) if at is None else (subject, policy, at), reader.sint()


def _write_optional(writer: Writer, value: int | None) -> None:
    writer.uint(0 if value is None else value + 1)


def _read_optional(reader: Reader) -> int | None:
    value = reader.uint()
    return None if value == 0 else value - 1


def _write_open(writer: Writer, key: Key, count: OpenCount) -> None:
    writer.raw(key[0])
    for number in (key[1], *count):
        writer.uint(number)


def _read_open(reader: Reader) -> OpenEntry:
    return (reader.raw(SUBJECT_BYTES), reader.uint()), OpenCount(reader.uint(), reader.uint())


def _write_opened(writer: Writer, opened: tuple[OpenEntry, ...]) -> None:
    writer.uint(len(opened))
    for key, count in opened:
        _write_open(writer, key, count)


def _read_opened(reader: Reader) -> tuple[OpenEntry, ...]:
    return tuple(_read_open(reader) for _ in range(reader.count(SUBJECT_BYTES + 3)))


def _write_opened_at(writer: Writer, opened: tuple[tuple[Key, OpenWriter, OpenCount], ...]) -> None:
    writer.uint(len(opened))
    for key, at, count in opened:
        for number in at:
            writer.uint(number)
        _write_open(writer, key, count)


def _read_opened_at(reader: Reader) -> tuple[tuple[Key, OpenWriter, OpenCount], ...]:
    found = []
    for _ in range(reader.count(SUBJECT_BYTES + 5)):
        at = reader.uint(), reader.uint()
        key, count = _read_open(reader)
        found.append((key, at, count))
    return tuple(found)


def _write_verdict(writer: Writer, verdict: Verdict) -> None:
    writer.uint(verdict.allowed)
    _write_optional(writer, verdict.wait_ns)


def _read_verdict(reader: Reader) -> Verdict:
    allowed = reader.uint()
    if allowed > 1:
        raise PeerError(f"a verdict is {allowed}: it must be 0 or 1")
    return Verdict(allowed == 1, _read_optional(reader))


def _write_demand(writer: Writer, asked: tuple[tuple[Subject, int], ...]) -> None:
    writer.uint(len(asked))
    for subject, tokens in asked:
        writer.raw(subject)
        writer.uint(tokens)


def _read_demand(reader: Reader) -> tuple[tuple[Subject, int], ...]:
    return tuple((reader.raw(SUBJECT_BYTES), reader.uint()) for _ in range(reader.count(SUBJECT_BYTES + 1)))


def _write_parts(writer: Writer, parts: tuple[Part, ...]) -> None:
    writer.uint(len(parts))
    for part in parts:
        writer.uint(part[0])
        writer.uint(part[1])


def _read_parts(reader: Reader) -> tuple[Part, ...]:
    return tuple((reader.uint(), reader.uint()) for _ in range(reader.count(2)))


def _write_counters(writer: Writer, users: dict[Subject, CounterBucket]) -> None:
    writer.uint(len(users))
    for subject, bucket in users.items():
        writer.raw(subject)
        writer.uint(len(bucket.counts))
        for node, count in bucket.counts.items():
            writer.uint(node)
            writer.uint(count)
        writer.uint(bucket.limit)
        writer.uint(bucket.refilled_ns)


def _read_counters(reader: Reader) -> dict[Subject, CounterBucket]:
    users = {}
    for _ in range(reader.count(SUBJECT_BYTES + 3)):
        subject = reader.raw(SUBJECT_BYTES)
        counts = {reader.uint(): reader.uint() for _ in range(reader.count(2))}
        users[subject] = CounterBucket(counts, sum(counts.values()), reader.uint(), reader.uint())
    return users


def _write_queues(writer: Writer, users: dict[Subject, list[tuple[int, int]]]) -> None:
    writer.uint(len(users))
    for subject, queue in users.items():
        writer.raw(subject)
        writer.uint(len(queue))
        for birth, death in queue:
            writer.uint(birth)
            writer.uint(death)


def _read_queues(reader: Reader) -> dict[Subject, list[tuple[int, int]]]:
    users = {}
    for _ in range(reader.count(SUBJECT_BYTES + 1)):
        subject = reader.raw(SUBJECT_BYTES)
        users[subject] = [(reader.uint(), reader.uint()) for _ in range(reader.count(2))]
    return users


_UINT = _Field(Writer.uint, Reader.uint)
_SUBJECT = _Field(_write_subject, _read_subject)
_ENTRIES = _Field(_write_entries, _read_entries)
_GRANT = _Field(Writer.raw, lambda reader: reader.raw(GRANT_BYTES))
_SLICED = _Field(_write_sliced, _read_sliced)
_VERDICT = _Field(_write_verdict, _read_verdict)
_COUNTERS, _QUEUES = 11, 12
_OPENED = _Field(_write_opened, _read_opened)
_OPENED_AT = _Field(_write_opened_at, _read_opened_at)
_INCREMENTS_OF_SLICES, _SNAPSHOT_OF_SLICES = 15, 16
_INCREMENTS_OF_OPEN, _SNAPSHOT_OF_OPEN = 17, 18


def _numbers(*names: str) -> tuple[tuple[str, _Field], ...]:
    return tuple((name, _UINT) for name in names)


_KINDS = {
    1: _Kind(Increments, (*_numbers("epoch", "to_epoch", "seq"), ("entries", _ENTRIES))),
    2: _Kind(Ack, _numbers("epoch", "to_epoch", "seq", "after")),
    3: _Kind(Hello, _numbers("epoch", "knows")),
    4: _Kind(SnapshotAsk, _numbers("epoch")),
    5: _Kind(Snapshot, (*_numbers("to_epoch"), ("entries", _ENTRIES))),
    6: _Kind(Ask, (*_numbers("epoch", "ticket"), ("subject", _SUBJECT), *_numbers("cost"))),
    7: _Kind(Answer, (*_numbers("to_epoch", "ticket"), ("verdict", _VERDICT))),
    8: _Kind(Demand, (("asked", _Field(_write_demand, _read_demand)),)),
    9: _Kind(Shares, (("subject", _SUBJECT), *_numbers("version"), ("parts", _Field(_write_parts, _read_parts)))),
    10: _Kind(Confirmed, (("subject", _SUBJECT), *_numbers("version"))),
    _COUNTERS: _Kind(Delta, (("users", _Field(_write_counters, _read_counters)),)),
    _QUEUES: _Kind(Delta, (("users", _Field(_write_queues, _read_queues)),)),
    13: _Kind(Correction, (*_numbers("ticket"), ("grant", _GRANT), *_numbers("cost"))),
    14: _Kind(Corrected, _numbers("ticket", "outcome")),
    _INCREMENTS_OF_SLICES: _Kind(Increments, (*_numbers("epoch", "to_epoch", "seq"), ("entries", _SLICED))),
    _SNAPSHOT_OF_SLICES: _Kind(Snapshot, (*_numbers("to_epoch"), ("entries", _SLICED))),
    _INCREMENTS_OF_OPEN: _Kind(
        Increments, (*_numbers("epoch", "to_epoch", "seq"), ("entries", _SLICED), ("opened", _OPENED))
    ),
    _SNAPSHOT_OF_OPEN: _Kind(Snapshot, (*_numbers("to_epoch"), ("entries", _SLICED), ("opened", _OPENED_AT))),
    19: _Kind(Release, (*_numbers("ticket"), ("grant", _GRANT))),
    20: _Kind(Close, (("subject", _SUBJECT),)),
}
_NUMBERS = {kind.made: number for number, kind in reversed(_KINDS.items()) if kind.made is not Delta}
