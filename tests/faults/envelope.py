"""Whether all brokers of a topic together kept its envelope (r, b), from their merged traces. Pure.

This checker shares nothing with the engine, nor with ``srtm.token_bucket.bucket``: a fault in one of them does not hide
in both. The law: over every closed interval of length dt at most b + r dt messages are let go, by due instants. Let the
instants be sorted, t_0 <= t_1 <= ... Then for all i <= j

    (j - i + 1) - r (t_j - t_i) <= b

The worst interval that ends at t_j begins where i - r t_i is least, so one running minimum finds the worst of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.int64]

# Of counting in floats, messages: up to 1e9 of them, a float is exact to 1.2e-7.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Envelope:
    """``rate`` r in msg/s, ``burst`` b in messages."""

    rate: float
    burst: float


@dataclass(frozen=True)
class Interval:
    """``released`` messages were let go in [``from_ns``, ``to_ns``]; the law allows ``allowed``."""

    from_ns: int
    to_ns: int
    released: int
    allowed: float

    @property
    def is_excess(self) -> bool:
        return self.released > self.allowed + _TOLERANCE

    def __str__(self) -> str:
        seconds = (self.to_ns - self.from_ns) / 1e9
        return f"{self.released} messages within {seconds:.6f} s from {self.from_ns} ns, allowed {self.allowed:.3f}"


def worst_interval(due_ns: Iterable[Column], envelope: Envelope) -> Interval | None:
    """Return the interval in which the most was let go beyond the law, or the least short of it.

    ``due_ns``: a column for each trace, each in any order. None: nothing was let go. Due instants are rounded up to
    whole nanoseconds, so that each interval may be up to 1 ns longer.
    """
    merged = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *due_ns]))
    if not len(merged):
        return None
    rate_ns = envelope.rate / 1e9
    index = np.arange(len(merged))
    ahead = index - rate_ns * (merged - merged[0])  # of a flow of exactly r, messages
    used = ahead - np.minimum.accumulate(ahead)
    last = int(np.argmax(used))
    first = int(np.argmin(ahead[: last + 1]))
    from_ns, to_ns = int(merged[first]), int(merged[last])
    return Interval(from_ns, to_ns, last - first + 1, envelope.burst + rate_ns * (to_ns - from_ns + 1))


def excess(due_ns: Iterable[Column], envelope: Envelope) -> Interval | None:
    """Return the worst interval if it breaks the law; None: the law holds."""
    worst = worst_interval(due_ns, envelope)
    return worst if worst is not None and worst.is_excess else None
