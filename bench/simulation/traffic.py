"""Traffic for the simulator: when the publishers of a fleet send, broker by broker. Seeded; instants in ns from 0.

Members of a group fire together, wherever they are placed; groups fire independently of each other. What is drawn are
the firings of groups, not of publishers: a group of 25 in batches of 10 is one draw for 250 messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """``count`` publishers of ``rate`` msg/s each, in batches. Neighbours form groups of ``group_size`` (1: everybody
    fires alone), whose firings are spread evenly over ``noise_ns``."""

    count: int
    rate: float = 10.0
    process: str = "poisson"  # or "periodic"
    batch: int = 1
    group_size: int = 1
    noise_ns: int = 0
    phase_seed: int = 1  # of the phases of periodic groups, which last as long as the fleet does

    @property
    def load(self) -> float:
        """msg/s"""
        return self.count * self.rate

    @property
    def firings(self) -> float:
        """A second, of one publisher."""
        return self.rate / self.batch

    @property
    def groups(self) -> Ints:
        """By publisher."""
        return np.arange(self.count, dtype=np.int64) // self.group_size

    def arrivals(self, placement: Ints, brokers: int, seconds: float, rng: np.random.Generator) -> list[Ints]:
        """What arrives at each broker within ``seconds``, in order. ``placement``: broker of each publisher, negative
        for none. What all together send does not depend on it."""
        if self.group_size > 1:
            return self._together(placement, brokers, seconds, rng)
        if self.process == "periodic":
            return [self._ticking(np.flatnonzero(placement == broker), seconds) for broker in range(brokers)]
        return self._alone(placement, brokers, seconds, rng)

    @property
    def _phases(self) -> npt.NDArray[np.float64]:
        """By group, as parts of a period."""
        return np.random.default_rng([self.phase_seed, 0xF]).random(-(-self.count // self.group_size))

    def _alone(self, placement: Ints, brokers: int, seconds: float, rng: np.random.Generator) -> list[Ints]:
        """Of Poisson publishers that know nothing of each other."""
        fired = rng.poisson(self.count * self.firings * seconds)
        times = np.sort(rng.integers(0, round(seconds * SECOND_NS), fired))
        at = placement[rng.integers(0, self.count, fired)]
        order = np.argsort(at, kind="stable")
        ends = np.searchsorted(at[order], np.arange(brokers + 1))
        return [np.repeat(times[order[ends[one] : ends[one + 1]]], self.batch) for one in range(brokers)]

    def _ticking(self, members: Ints, seconds: float) -> Ints:
        return np.repeat(self._ticks(np.sort(self._phases[members]), seconds), self.batch)

    def _ticks(self, phases: npt.NDArray[np.float64], seconds: float) -> Ints:
        """Of periodic publishers with ascending ``phases`` (parts of a period): in order, for all have one period."""
        period_ns = SECOND_NS / self.firings
        turns = np.arange(np.ceil(seconds * self.firings))
        times = ((turns[:, None] + phases[None, :]) * period_ns).astype(np.int64).ravel()
        return times[: np.searchsorted(times, round(seconds * SECOND_NS))]

    def _together(self, placement: Ints, brokers: int, seconds: float, rng: np.random.Generator) -> list[Ints]:
        first, fired = self._group_firings(seconds, rng)  # firings of group g: fired[first[g]:first[g + 1]]
        found = []
        for broker in range(brokers):
            members = np.flatnonzero(placement == broker)
            group = members // self.group_size
            counts = first[group + 1] - first[group]
            ends = np.cumsum(counts)
            index = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
            times = fired[np.repeat(first[group], counts) + index] + np.repeat(self._offsets(members), counts)
            found.append(np.repeat(np.sort(times), self.batch))
        return found

    def _group_firings(self, seconds: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
        if self.process == "periodic":
            turns = np.arange(np.floor(seconds * self.firings))
            times = (self._phases[:, None] + turns[None, :]) * (SECOND_NS / self.firings)
            return np.arange(len(times) + 1) * len(turns), times.astype(np.int64).ravel()
        counts = rng.poisson(self.firings * seconds, -(-self.count // self.group_size))
        times_ns = rng.integers(0, round(seconds * SECOND_NS), int(counts.sum()))
        return np.concatenate([[0], np.cumsum(counts)]), times_ns

    def _offsets(self, members: Ints) -> Ints:
        if not self.noise_ns or self.group_size == 1:
            return np.zeros(len(members), dtype=np.int64)
        return (members % self.group_size) * self.noise_ns // (self.group_size - 1)
