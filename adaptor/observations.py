"""What a policy sees of a topic: its brokers, their bins and shares. Values only; a policy makes shares of them.

Shares are (r_l, b_l) in micro-messages/s and micro-messages (``srtm.units``), in the order of the
members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

Shares = list[tuple[int, int]]

BIN_S = 0.1


class Bin(NamedTuple):
    """One bin of a topic on one broker, messages."""

    arrivals: int
    waiting: int = 0  # for tokens, at its start
    work: float = 0.0  # largest unfinished work U = b - tokens + waiting in it

    @property
    def demand(self) -> int:
        return self.arrivals + self.waiting


@dataclass(frozen=True, slots=True)
class Change:
    """Of the rate of arrivals on one broker: what came since, up to now."""

    arrivals: int
    span_s: float
    waiting: int = 0  # for tokens, now
    mixed: int = 1  # bins to come that began before it
    known: int = 0  # bins told before that began after it


@dataclass(frozen=True, kw_only=True)
class Member:
    """A broker that has a part in the topic."""

    name: str
    share: tuple[int, int] = (0, 0)  # in force, or on its way
    capacity: float = float("inf")  # msg/s that it can process for this topic
    batch: int = 1  # the largest that one of its publishers sends at once, messages
    dispersion: float = 1.0  # I_l as declared
    declared: float = 0.0  # msg/s, of its publishers
    bins: Sequence[Bin] = ()  # oldest first


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """(r, b) of a topic, and what was promised."""

    rate_micro: int
    burst_micro: int
    percentile: float = 99.0
