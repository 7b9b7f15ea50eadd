"""What a change of traffic did to a topic, from what each broker recorded: how soon the backlog was gone, how soon
delays were as before. Pure; instants are ns of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.harness.results.intervals import percentile_ms

Ints = npt.NDArray[np.int64]

SECOND_NS = 10**9
STEP_NS = 10_000_000  # between the instants at which is looked
TRAILING_NS = SECOND_NS
_EVERY_NS = 100_000_000  # trailing percentiles
BEFORE_NS = 5 * SECOND_NS  # what "before" is


@dataclass(frozen=True)
class Aftermath:
    """Of a change at ``at_ns``, watched until ``ends_ns``. Columns: one for each broker, in order of arrival."""

    arrival_ns: list[Ints]
    due_ns: list[Ints]
    at_ns: int
    ends_ns: int
    before_ns: int = BEFORE_NS  # how long before the change counts as before
    calm_until_ns: int | None = None  # where that ends; None: at the change

    def drained_s(self) -> float:
        """From the change until as few messages wait, after most did, as did at most before it.
        Infinite: never."""
        before = self._waiting(self._calm_ns - self.before_ns, self._calm_ns).max()
        after = self._waiting(self.at_ns, self.ends_ns)
        peak = int(after.argmax())
        gone = np.flatnonzero(after[peak:] <= before)
        return (peak + int(gone[0])) * STEP_NS / SECOND_NS if len(gone) else float("inf")

    def back_s(self) -> float:
        """From the change until the p99 access delay of the trailing second is back at or under its largest value
        before, on all brokers together. Infinite: never."""
        arrival, delay = self._merged()
        before = self._before_p99_ms(arrival, delay)
        for end in range(self.at_ns + TRAILING_NS, self.ends_ns + 1, _EVERY_NS):
            if _p99_ms(arrival, delay, end) <= before:
                return (end - self.at_ns) / SECOND_NS
        return float("inf")

    def before_p99_ms(self) -> float:
        """The largest p99 access delay of a trailing second before, on all brokers together."""
        return self._before_p99_ms(*self._merged())

    def _before_p99_ms(self, arrival: Ints, delay: Ints) -> float:
        first = self._calm_ns - self.before_ns + TRAILING_NS
        return max(_p99_ms(arrival, delay, end) for end in range(first, self._calm_ns + 1, _EVERY_NS))

    def worst_p99_ms(self, from_ns: int) -> float:
        """The worst broker's p99 access delay of what came after ``from_ns``."""
        return max(
            percentile_ms((due - arrival)[(arrival >= from_ns) & (arrival < self.ends_ns)], 99)
            for arrival, due in zip(self.arrival_ns, self.due_ns, strict=True)
        )

    @property
    def _calm_ns(self) -> int:
        return self.at_ns if self.calm_until_ns is None else self.calm_until_ns

    def _waiting(self, from_ns: int, to_ns: int) -> Ints:
        """Messages that wait on all brokers, at instants one step apart."""
        at_ns = np.arange(from_ns, to_ns, STEP_NS)
        return sum(
            (
                np.searchsorted(arrival, at_ns, side="right") - np.searchsorted(due, at_ns, side="right")
                for arrival, due in zip(self.arrival_ns, self.due_ns, strict=True)
            ),
            start=np.zeros(len(at_ns), dtype=np.int64),
        )

    def _merged(self) -> tuple[Ints, Ints]:
        arrival = np.concatenate(self.arrival_ns)
        order = np.argsort(arrival, kind="stable")
        return arrival[order], (np.concatenate(self.due_ns) - arrival)[order]


def _p99_ms(arrival_ns: Ints, delay_ns: Ints, end_ns: int) -> float:
    """Of the messages that came in the second before ``end_ns``."""
    first, last = np.searchsorted(arrival_ns, [end_ns - TRAILING_NS, end_ns])
    return percentile_ms(delay_ns[first:last], 99)
