"""Whether a latency percentile is above or below its target, decided as soon as it is clear. Pure, no clock.

"p99 <= target" is a statement on a fraction: at most 1 % of the messages are late. A measurement comes as counts per
short interval, and is looked at again and again while it grows; a test made for one look would then be wrong far more
often than it says. So each side is a bet against it (Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting", 2024): capital that stays 1 on average while the hypothesis holds, so that it ever reaches
1 / alpha with a probability of at most alpha, however often it is looked at (Ville's inequality).

Messages of one burst share their fate, and so do bursts that meet in a queue. The bets are on blocks (batch means) of
one interval, or two where only two follow each other, doubled in length until the latency in one block tells nothing
about the next; at least 16 of them are asked for. How much is staked is a mixture: nobody has to know beforehand how
much is late.

Three things the stated confidence rests on: that the fraction of late messages does not depend on how
many others are in a block, beyond what the blocks so far have shown; that nothing changes more slowly than the series
is long, for that cannot be seen in it: hence a shortest time for a measurement; and that the whole machine does not
stop more often, or for longer, than it did meanwhile. What a stop makes late is in a block or two unless much piles
up, and takes at most ``_BOLDEST`` of what was gathered for "below" in each, however many messages that are; a verdict
before it stands; and what came while everything stood is stamped when the machine goes on. Where stops keep a verdict
from being clear, the fitting replays what arrived without them, and says so.

Where bursts are alike (their mean latencies differ by less than ``_ALIKE``), what little they differ by may well drift
while nothing is near the target: then blocks are doubled until how much of one is late tells nothing about the next.

The length of blocks is chosen anew at each look, so there is a bet for every length, of which one is shown. Each has
its own part of the error that is allowed (``_part_of_error``), nine tenths the shortest: together they are wrong no
more often than one alone would be (the union bound), whichever was shown when.

The price is known: without a single late message, 95 % sure of "below" takes about 350 of them for p99, 99 % about 510.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from srtm.errors import BadInput

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CONFIDENCE = 0.95  # asked for where nobody says otherwise
_BOLDEST = 0.98  # part of the capital that one block may take: at 1 a single bad block would end the bet
# (part of the most that a bettor stakes, part of the capital that he is dealt). On few late messages: most of it is
# dealt to who hopes for none. On many: small stakes, which what is left of the dependence between blocks hurts least.
_FOR_FEW = ((1.0, 0.6), (0.8, 0.1), (0.6, 0.1), (0.4, 0.1), (0.2, 0.1))
_FOR_MANY = ((0.1, 0.4), (0.04, 0.3), (0.015, 0.3))
_FEWEST_BLOCKS = 16  # below that nothing is said
_MOST_CORRELATED = 0.1  # of neighbouring blocks, beyond what chance gives
_ALIKE = 0.01  # of the mean latency: as its standard deviation
_SHORTEST = 0.9  # of the error that is allowed: for blocks of the first length; what is left is halved with each other


class Verdict(Enum):
    """Of a percentile against its target."""

    ABOVE = "above"
    BELOW = "below"  # or at it
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Messages by the interval in which they arrived, in order; columns of equal length. Intervals are about as long
    as the target latency, so that a burst is in one of them or in two; those without a message are left out."""

    at: Ints  # number of the interval
    count: Ints  # > 0
    late: Ints  # over the target
    latency_ns: Ints  # sum over the messages

    def __len__(self) -> int:
        return len(self.count)


_NONE = np.zeros(0, dtype=np.int64)
_NOTHING = Intervals(at=_NONE, count=_NONE, late=_NONE, latency_ns=_NONE)


def by_interval(arrival_ns: Ints, latency_ns: Ints, target_ns: int, width_ns: int) -> Intervals:
    """Samples, in any order, as intervals of ``width_ns``; empty ones are left out."""
    numbers, at = np.unique(arrival_ns // width_ns, return_inverse=True)
    count = np.bincount(at)
    late = np.bincount(at[latency_ns > target_ns], minlength=len(count))
    # Exact: 2^53 ns of latency in one interval are 104 days.
    total = np.bincount(at, weights=latency_ns.astype(np.float64)).astype(np.int64)
    return Intervals(at=numbers, count=count.astype(np.int64), late=late.astype(np.int64), latency_ns=total)


class SequentialTest:
    """Feed it with ``add``, ask ``verdict`` after any of them."""

    def __init__(self, percentile: float, confidence: float = CONFIDENCE) -> None:
        """``confidence``: probability with which a verdict is right, in (0.5, 1). Raises BadInput."""
        if not 0.5 < confidence < 1:
            raise BadInput("confidence", confidence, "must be between 0.5 and 1")
        if not 0 < percentile < 100:
            raise BadInput("percentile", percentile, "must be between 0 and 100")
        self._allowed = 1 - percentile / 100  # fraction that may be late
        self._error = 1 - confidence
        self._parts: list[Intervals] = []

    def add(self, more: Intervals) -> None:
        """What came since the last time."""
        if len(more):
            self._parts.append(more)

    @property
    def count(self) -> int:
        return sum(int(part.count.sum()) for part in self._parts)

    @property
    def late(self) -> int:
        return sum(int(part.late.sum()) for part in self._parts)

    @property
    def bursts(self) -> int:
        """The smallest blocks there are, whether or not they are independent."""
        return len(_starts(self.series.at)) if self._parts else 0

    @property
    def blocks(self) -> int:
        """About so many independent observations there were."""
        return len(_blocks_of(self.series).count) if self._parts else 0

    @property
    def verdict(self) -> Verdict:
        if not self._parts:
            return Verdict.UNDECIDED
        blocks = _blocks_of(self.series)
        if len(blocks.count) < _FEWEST_BLOCKS:
            return Verdict.UNDECIDED
        above = _best_capital(blocks.count, blocks.late, self._allowed, 1)
        below = _best_capital(blocks.count, blocks.late, self._allowed, -1)
        if max(above, below) < -math.log(self._error * _part_of_error(blocks.doublings)):
            return Verdict.UNDECIDED
        return Verdict.ABOVE if above > below else Verdict.BELOW

    @property
    def series(self) -> Intervals:
        """All that was added."""
        if len(self._parts) > 1:
            self._parts = [
                Intervals(
                    at=np.concatenate([part.at for part in self._parts]),
                    count=np.concatenate([part.count for part in self._parts]),
                    late=np.concatenate([part.late for part in self._parts]),
                    latency_ns=np.concatenate([part.latency_ns for part in self._parts]),
                )
            ]
        return self._parts[0] if self._parts else _NOTHING


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """Messages in each, and those of them that are late. ``doublings``: 2 to that power of the smallest make one."""

    count: Ints
    late: Ints
    doublings: int


def _part_of_error(doublings: int) -> float:
    """Of the error that is allowed, for bets on blocks of that length: 0.9, 0.05, 0.025, ...; all of them sum to 1."""
    return _SHORTEST if doublings == 0 else (1 - _SHORTEST) / 2**doublings


def _blocks_of(series: Intervals) -> _Blocks:
    starts = _starts(series.at)
    columns = [np.add.reduceat(column, starts) for column in (series.count, series.late, series.latency_ns)]
    alike = _are_alike(columns[2] / columns[0])
    doublings = 0
    while True:
        count, late, latency = (_in_blocks(column, 2**doublings) for column in columns)
        if len(count) < 2 * _FEWEST_BLOCKS or not _tells_the_next((late if alike else latency) / count):
            return _Blocks(count=count, late=late, doublings=doublings)
        doublings += 1


def _starts(at: Ints) -> Ints:
    """Where the smallest blocks begin: at every interval, but for two: the second half of one that a report has cut
    belongs to the first, and of two in a row without others beside them the second belongs to the first, for one burst
    may lie across their edge. Where more follow each other there is a burst or more to each of them: one across an edge
    is then in two blocks, which tells too much only where latency in the one tells of that in the other, and that is
    looked for."""
    same = np.diff(at, prepend=at[0] - 1) == 0
    first = np.flatnonzero(~same)
    numbers = at[first]
    after = np.diff(numbers, prepend=numbers[0] - 2) == 1  # follows the one before it at once
    next_after = np.append(after[1:], False)
    is_last_of_two = after & ~next_after & ~np.append(False, after[:-1])
    starts: Ints = first[~is_last_of_two]
    return starts


def _in_blocks(column: Ints, length: int) -> Ints:
    """Sums over ``length`` consecutive ones; a rest that fills no block is left out."""
    whole = len(column) // length
    sums: Ints = column[: whole * length].reshape(whole, length).sum(axis=1)
    return sums


def _are_alike(means: Floats) -> bool:
    return float(means.std()) <= _ALIKE * float(means.mean())


def _tells_the_next(means: Floats) -> bool:
    """Whether neighbours are correlated, more than by chance."""
    centred = means - means.mean()
    variance = float(centred @ centred)
    if variance <= 1e-12 * float(means @ means):  # all the same
        return False
    return float(centred[1:] @ centred[:-1]) / variance > _MOST_CORRELATED + 2 / math.sqrt(len(means))


def _largest_but_two(count: Ints) -> Ints:
    """Up to each entry, the third largest; 0 while there are fewer."""
    passed_on = count
    for _ in range(2):
        largest = np.maximum.accumulate(passed_on)
        passed_on = np.minimum(passed_on, np.append(0, largest[:-1]))
    third: Ints = np.maximum.accumulate(passed_on)
    return third


def _best_capital(count: Ints, late: Ints, allowed: float, side: int) -> float:
    """Log of the largest capital that a bet on ``side`` (1: more is late than ``allowed``; -1: less) ever had.

    What a block brings is counted in messages, so that crowded ones weigh more, against the mean block so far. How
    much is best staked depends on how much is late, which nobody knows: so the capital is dealt out to bettors of
    whom each stakes a part of his own that never changes, and their sum is close to the best of them, whichever that
    turns out to be (a universal portfolio). The most that can be staked is capped by the largest blocks up to this one,
    so that no block can take more than there is: how many messages a block has is known before it is asked how many of
    them are late. But for two blocks that were larger than all others, which are capped by themselves alone: where two
    bursts have met once, nobody need stake half as much ever after.
    """
    index = np.arange(1, len(count) + 1)
    mean_count = np.cumsum(count) / index
    crowded = np.maximum(count, _largest_but_two(count)) / mean_count
    gain = side * (late - allowed * count) / mean_count
    worst = crowded * ((1 - allowed) if side < 0 else allowed)  # what one block may lose of a stake of 1
    most = np.minimum(_BOLDEST / worst, _BOLDEST if side < 0 else _BOLDEST / (2 * allowed))
    bettors = _FOR_FEW if side < 0 else _FOR_MANY
    capitals = [math.log(dealt) + np.cumsum(np.log1p(part * most * gain)) for part, dealt in bettors]
    return float(np.logaddexp.reduce(capitals).max())
