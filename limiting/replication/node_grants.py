"""Grants of checks that one node of several decided: what they carry, and which were used.

A grant carries what was taken, so nothing is kept for the many that are never corrected. The node that decided alone
remembers which were, until they are too old. So there is no instant at which two nodes could take one twice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from limiting.replication.refill import Subject

CORRECT_WITHIN_US = 60_000_000  # of the check, as in ``limiting/core/src/grant.rs``
MOST_REMEMBERED = 1_000_000  # as there


class Grant(NamedTuple):
    """``node``: the number of the one that decided. ``group``: the tag of its contract, 8 bytes.

    ``at_us``: when, by that node's clock. No two grants of one node have the same.
    """

    node: int
    group: bytes
    subject: Subject
    cost: int
    at_us: int


class Outcome(IntEnum):
    """What became of a correction."""

    TAKEN = 0
    USED = 1
    OLD = 2
    FORGOTTEN = 3  # of an earlier start of the node
    FULL = 4  # no room to remember it
    ENDED = 5  # the request is not open: it was released before, or has expired


class Grants:
    """The grants of one start of a node.

    ``at_ns`` is by its monotonic clock, ``wall_ns`` by the other: it must not be behind what it showed in an earlier
    start, or grants of that start may count again.
    """

    def __init__(self, node: int, at_ns: int, wall_ns: int) -> None:
        self._node = node
        self._wall_ahead_us = (wall_ns - at_ns) // 1_000
        self._first_us = self._now_us(at_ns, 0)
        self._last_us = self._first_us - 1
        self._used: dict[int, int] = {}  # {at_us of a grant: until when it is remembered, us}, in order of corrections

    def _now_us(self, at_ns: int, least: int) -> int:
        return max(least, at_ns // 1_000 + self._wall_ahead_us)

    def made(self, group: bytes, subject: Subject, cost: int, at_ns: int) -> Grant:
        """The grant of a take."""
        self._last_us = self._now_us(at_ns, self._last_us + 1)
        return Grant(self._node, group, subject, cost, self._last_us)

    def is_known(self, grant: Grant) -> bool:
        """A grant of this node is of this start."""
        return self._first_us <= grant.at_us <= self._last_us

    def use(self, grant: Grant, at_ns: int) -> Outcome:
        """Note that a grant of this node is corrected now. Only where TAKEN is the answer may it be."""
        now_us = self._now_us(at_ns, self._last_us)
        if not self.is_known(grant):
            return Outcome.FORGOTTEN
        if now_us - grant.at_us > CORRECT_WITHIN_US:
            return Outcome.OLD
        while self._used and self._used[oldest := next(iter(self._used))] < now_us:
            del self._used[oldest]
        if grant.at_us in self._used:
            return Outcome.USED
        if len(self._used) >= MOST_REMEMBERED:
            return Outcome.FULL
        self._used[grant.at_us] = now_us + CORRECT_WITHIN_US
        return Outcome.TAKEN
