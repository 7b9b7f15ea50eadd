"""What nodes say to each other. No message holds an instant: what counts is when it comes, by the receiver's clock.
Windows alone name slices of the wall clock.

An incarnation of a node has an ``epoch``; it grows with each restart. ``to_epoch`` is the receiver's, as the sender
knows it: what was meant for an earlier incarnation is not for this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from limiting.replication.open_counts import OpenCount, Writer
from limiting.replication.refill import Key, SliceKey, Subject, Verdict

Entry = tuple[Key | SliceKey, int]  # units of a bucket, tokens of a window's slice
OpenEntry = tuple[Key, OpenCount]  # of the sender's own slot


@dataclass(frozen=True, slots=True)
class Increments:
    """What ``origin`` itself took, and what is open there. ``seq``: the number of this frame on its link, from 1."""

    origin: int
    epoch: int
    to_epoch: int
    seq: int
    entries: tuple[Entry, ...]
    opened: tuple[OpenEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Ack:
    """``origin`` has applied the receiver's frames up to ``seq``. It counts once the receiver has applied ``origin``'s
    own frames up to ``after``: so news goes before the acknowledgement, whatever order the network delivers in."""

    origin: int
    epoch: int
    to_epoch: int
    seq: int
    after: int


@dataclass(frozen=True, slots=True)
class Hello:
    """``origin`` begins ``epoch``; ``knows``: the receiver's epoch, 0 if unknown."""

    origin: int
    epoch: int
    knows: int


@dataclass(frozen=True, slots=True)
class SnapshotAsk:
    """``origin`` has started and knows no levels."""

    origin: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Levels of all live subjects at the sender, what the slices of their windows have, and what is open anywhere."""

    origin: int
    to_epoch: int
    entries: tuple[Entry, ...]
    opened: tuple[tuple[Key, Writer, OpenCount], ...] = ()


@dataclass(frozen=True, slots=True)
class Close:
    """An operator ends all open requests of ``subject``. It is said once: where it does not come, they expire."""

    origin: int
    subject: Subject


@dataclass(frozen=True, slots=True)
class Ask:
    """``origin`` asks the subject's owner for ``cost`` tokens. ``ticket``: the number of the question."""

    origin: int
    epoch: int
    ticket: int
    subject: Subject
    cost: int


@dataclass(frozen=True, slots=True)
class Answer:
    """To an ``Ask`` of the incarnation ``to_epoch``."""

    origin: int
    to_epoch: int
    ticket: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Correction:
    """``origin`` asks the node that decided to replace the cost of a sealed grant, 48 bytes, by ``cost``."""

    origin: int
    ticket: int
    grant: bytes
    cost: int


@dataclass(frozen=True, slots=True)
class Release:
    """``origin`` asks the node that decided to end the open request of a sealed grant, 48 bytes."""

    origin: int
    ticket: int
    grant: bytes


@dataclass(frozen=True, slots=True)
class Corrected:
    """To a ``Correction`` or ``Release``. ``outcome``: of ``limiting.replication.node_grants``."""

    origin: int
    ticket: int
    outcome: int


Frame = Increments | Ack | Hello | SnapshotAsk | Snapshot | Ask | Answer | Close
