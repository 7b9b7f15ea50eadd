"""A bucket policy as numbers, and what a decision says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from srtm.errors import BadInput
from srtm.token_bucket.bucket import TOKEN, UNITS_PER_MICRO

Subject = bytes  # 16 bytes: a keyed hash
Key = tuple[Subject, int]  # a subject, and the number of its policy
SliceKey = tuple[Subject, int, int]  # a subject, the number of its policy of kind window, the number of a slice


@dataclass(frozen=True, kw_only=True)
class Refill:
    """A bucket policy: ``rate_micro`` micro-tokens/s up to ``burst_micro`` micro-tokens (``srtm.units``).

    Raises BadInput for a negative rate, and for a burst below one token.
    """

    rate_micro: int
    burst_micro: int

    def __post_init__(self) -> None:
        if self.rate_micro < 0:
            raise BadInput("rate", self.rate_micro, "must not be negative")
        if self.units < TOKEN:
            raise BadInput("burst", self.burst_micro, "must be at least one token (1,000,000 micro-tokens)")

    @property
    def units(self) -> int:
        """The burst, in units."""
        return self.burst_micro * UNITS_PER_MICRO


@dataclass(frozen=True, slots=True)
class Verdict:
    """``wait_ns``: after a refusal, how long until the same request may pass, ns; None: never."""

    allowed: bool
    wait_ns: int | None = 0


ALLOWED = Verdict(allowed=True)
NEVER_NS = 1 << 62


def wait_of(verdict: Verdict) -> int:
    """The wait, ns; where there is none long enough NEVER_NS."""
    return NEVER_NS if verdict.wait_ns is None else verdict.wait_ns


class Left(Protocol):
    """What is left of a policy. ``left``: units; below 0 it owes; ``burst``: the most, units."""

    @property
    def left(self) -> int: ...

    @property
    def burst(self) -> int: ...

    def wait_ns(self, units: int) -> int | None:
        """How long until ``units`` are left. None: never."""

    def reset_ns(self) -> int | None:
        """How long until everything is left. None: never."""


class Look(NamedTuple):
    """What is left of a bucket. ``rate``: units/ns."""

    left: int
    rate: int
    burst: int

    def wait_ns(self, units: int) -> int | None:
        return None if units > self.burst else self._ns_until(units - self.left)

    def reset_ns(self) -> int | None:
        return self._ns_until(self.burst - self.left)

    def _ns_until(self, missing: int) -> int | None:
        if missing <= 0:
            return 0
        return None if self.rate == 0 else -(-missing // self.rate)


def units_of(cost: int) -> int:
    """The units of ``cost`` tokens. Raises BadInput for less than one."""
    if cost < 1:
        raise BadInput("cost", cost, "must be a whole number of tokens, at least 1")
    return cost * TOKEN


def refused(missing: int, rate: int, possible: bool) -> Verdict:
    """``missing``: units that must drain first, at ``rate`` units/ns."""
    if not possible or rate == 0:
        return Verdict(allowed=False, wait_ns=None)
    return Verdict(allowed=False, wait_ns=-(-missing // rate))
