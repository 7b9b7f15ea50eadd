"""The algorithms of an article, "Distributed Rate-Limiting Algorithms" (J. B. Muscat, Criteo R&D Blog), for one caller
at one node: windows that count, the log that is exact, and two kinds of bucket. Instants are in ns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from bench.limiting.request_sets import SECOND
from limiting.replication.levels import Levels
from limiting.replication.refill import Refill
from limiting.replication.windows import WindowLook, slice_ns
from limiting.replication.windows import Windows as Kept
from srtm.contracts.policy import Window
from srtm.token_bucket.bucket import TOKEN
from srtm.units import MICRO

LIMIT, WINDOW_S, LENGTH_S = 100, 60, 3_600
WINDOW_NS = WINDOW_S * SECOND
COUNTER_B = 4  # of one slice
KEY = (bytes(16), 0)


class Limiter(Protocol):
    def released_ns(self, at_ns: int) -> int | None:
        """When a call of this instant goes on; None: it is refused."""


class Windows:
    """A window of ``slices``; ``weighted``: the slice that leaves the window counts in part."""

    def __init__(self, slices: int, *, weighted: bool) -> None:
        self._window = Window(
            name="calls", quota=LIMIT, window_ns=WINDOW_NS, slices=slices, weighted=weighted, aligned=True
        )
        self._windows = Kept({0: self._window}, 0, assumed=False)

    def counted(self, at_ns: int) -> float:
        """A call comes. Return how many the window holds by this algorithm, the call included."""
        self._add(at_ns)
        return self._look(at_ns).used / slice_ns(self._window)

    def released_ns(self, at_ns: int) -> int | None:
        if self._look(at_ns).left < TOKEN:
            return None
        self._add(at_ns)
        return at_ns

    def _look(self, at_ns: int) -> WindowLook:
        return self._windows.look(KEY[0], 0, at_ns)

    def _add(self, at_ns: int) -> None:
        self._windows.take(KEY[0], 0, 1, at_ns)


class Log:
    """The instants of all calls that passed within the window: exact."""

    def __init__(self) -> None:
        self._passed: deque[int] = deque()

    def released_ns(self, at_ns: int) -> int | None:
        while self._passed and self._passed[0] <= at_ns - WINDOW_NS:
            self._passed.popleft()
        if len(self._passed) >= LIMIT:
            return None
        self._passed.append(at_ns)
        return at_ns


class TokenBucket:
    """``burst`` tokens at most, ``a_window`` more in each window."""

    def __init__(self, burst: int, a_window: int) -> None:
        self._levels = Levels([Refill(rate_micro=-(-a_window * MICRO // WINDOW_S), burst_micro=burst * MICRO)], [0], 0)

    def released_ns(self, at_ns: int) -> int | None:
        if self._levels.ask(KEY, at_ns) + TOKEN > self._levels.bursts[0]:
            return None
        self._levels.add(KEY, TOKEN, at_ns)
        return at_ns


class LeakyBucket:
    """Calls go on one after the other, ``LIMIT`` in a window; ``queue`` of them may wait."""

    def __init__(self, queue: int) -> None:
        self._gap_ns = WINDOW_NS // LIMIT
        self._queue = queue
        self._next_ns = 0

    def released_ns(self, at_ns: int) -> int | None:
        goes_ns = max(at_ns, self._next_ns)
        if goes_ns - at_ns > self._queue * self._gap_ns:
            return None
        self._next_ns = goes_ns + self._gap_ns
        return goes_ns


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """``slices``: 0 where it has none; ``bytes``: of one caller, without its name."""

    name: str
    make: Callable[[], Limiter]
    bytes: int
    slices: int = 0
    weighted: bool = False


def _weighted(slices: int) -> Algorithm:
    return Algorithm(
        name=f"weighted, {slices} x {WINDOW_S / slices:g} s",
        make=lambda: Windows(slices, weighted=True),
        bytes=COUNTER_B * (slices + 1),
        slices=slices,
        weighted=True,
    )


FIXED = "fixed window"
SLICES = (1, 2, 4, 6, 15, 60)
ALGORITHMS = [
    Algorithm(name=FIXED, make=lambda: Windows(1, weighted=False), bytes=COUNTER_B, slices=1),
    *map(_weighted, SLICES),
    Algorithm(name="log", make=Log, bytes=8 * LIMIT),
    Algorithm(name="bucket, b = 100", make=lambda: TokenBucket(LIMIT, LIMIT), bytes=16),
    Algorithm(name="bucket, b = 50, r = 50/min", make=lambda: TokenBucket(LIMIT // 2, LIMIT // 2), bytes=16),
    Algorithm(name="leaky, no queue", make=lambda: LeakyBucket(0), bytes=16),
    Algorithm(name="leaky, 100 wait", make=lambda: LeakyBucket(LIMIT), bytes=16),
]


def random_calls(chance: Random) -> list[int]:
    """Stretches of 5 to 30 s, each with its rate, 100 a minute on average."""
    at_s, instants = 0.0, []
    while at_s < LENGTH_S:
        length_s, a_second = chance.uniform(5, 30), 3 * chance.random() ** 2 * LIMIT / WINDOW_S
        instants += [at_s + chance.uniform(0, length_s) for _ in range(round(a_second * length_s))]
        at_s += length_s
    return _in_order(instants)


def poisson_calls(chance: Random) -> list[int]:
    """One and a half times the limit."""
    at_s, instants = 0.0, []
    while (at_s := at_s + chance.expovariate(1.5 * LIMIT / WINDOW_S)) < LENGTH_S:
        instants.append(at_s)
    return _in_order(instants)


def constant_calls(chance: Random) -> list[int]:
    """A twentieth above the limit, evenly."""
    gap_s = WINDOW_S / (1.05 * LIMIT)
    shift = chance.uniform(0, gap_s)
    return _in_order([shift + number * gap_s for number in range(int(LENGTH_S / gap_s))])


def boundary_calls(chance: Random) -> list[int]:
    """A full limit in the last 5 s of every other minute, and one in the first 5 s of the next."""
    instants = []
    for minute in range(2, LENGTH_S // WINDOW_S, 2):
        edge_s = minute * WINDOW_S
        instants += [edge_s + chance.uniform(-5, 0) for _ in range(LIMIT)]
        instants += [edge_s + chance.uniform(0, 5) for _ in range(LIMIT)]
    return _in_order(instants)


TRAFFIC: dict[str, Callable[[Random], list[int]]] = {
    "random": random_calls,
    "Poisson, 1.5 times the limit": poisson_calls,
    "constant, 1.05 times the limit": constant_calls,
    "bursts at the minute's edge": boundary_calls,
}


def exact_counts(instants: Sequence[int]) -> list[int]:
    """At each call, how many came within the last window, the call included."""
    return [number + 1 - bisect_right(instants, at_ns - WINDOW_NS) for number, at_ns in enumerate(instants)]


def most_in_a_window(instants: Sequence[int]) -> int:
    """The most of ``instants`` that are within one window, wherever it begins."""
    return max(exact_counts(sorted(instants)), default=0)


def _in_order(instants_s: Sequence[float]) -> list[int]:
    return sorted(round(at_s * SECOND) for at_s in instants_s if 0 <= at_s < LENGTH_S)
