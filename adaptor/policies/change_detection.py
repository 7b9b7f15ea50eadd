"""The rate of arrivals on one broker from its bins, told apart from what it was before it changed. No clock, no numpy.

A change is where the mean of the last w bins differs from that of the bins before by more than chance allows: with
counts of mean m and index of dispersion I, the difference of two means over w and n bins has the variance
I m (1 / w + 1 / n). Several w are tried, so that a leap shows in the first bin and a drift after a while.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, islice, pairwise

from adaptor.observations import BIN_S

EPISODE_S = 1.0  # changes within it are of one move of traffic

LONGEST = 100  # bins, the paper's window
_WINDOWS = (1, 2, 3, 5, 8, 13, 21, 34, 50)
_SIGMAS = 5.0  # one false alarm in weeks, for Poisson counts and ten bins a second
_SMOOTHING = 1 / 3000  # of the dispersion, per pair of bins, in the long run: what publishers are like, not do now
_DECLARED = 30  # pairs of bins that the declared dispersion counts for
_RECENT = round(EPISODE_S / BIN_S)  # bins since a change, in which others may tell of it, too
_LEAST_KEPT = 2  # bins, for a change that is told late
_LEAST_DISPERSION = 0.1  # periodic traffic; nobody is punctual to the bin
# {number of bins: each w that is tried, with 1 / w + 1 / n}
_TRIED = {bins: [(w, 1 / w + 1 / (bins - w)) for w in _WINDOWS if w < bins] for bins in range(LONGEST + 1)}


def clearest_change(counts: deque[int], total: int, dispersion: float) -> int:
    """How many of the last of ``counts`` (at most 100, which sum to ``total``) differ most clearly from those before;
    0: none do by more than chance. It is asked for every bin: everything is squared here, for want of a root."""
    if total * total <= _SIGMAS**2 * dispersion:  # even if all of them came in one bin
        return 0
    bins = len(counts)
    recent = list(accumulate(islice(reversed(counts), _WINDOWS[-1])))
    variance = dispersion * max(total / max(bins, 1), 1.0)
    best, since = _SIGMAS**2 * variance, 0
    for window, factor in _TRIED[bins]:
        came = recent[window - 1]
        apart = (came / window - (total - came) / (bins - window)) ** 2
        if apart > best * factor:
            best, since = apart / factor, window
    return since


class RateEstimate:
    """``rate`` in msg/s, since the last change that was detected; ``dispersion``: I, 1 for Poisson."""

    def __init__(self, dispersion: float = 1.0) -> None:
        self.dispersion = max(dispersion, _LEAST_DISPERSION)
        self._counts: deque[int] = deque(maxlen=LONGEST)  # since the last change
        self._sum = 0  # of them
        self._former: float | None = None  # msg/s before the last change, if these bins were the first to show it
        self._is_cut = False  # the first of them may be half of the old kind
        self._pairs = _DECLARED
        self._since = (0, 0.0)  # messages, bins: told of a change before there were bins after it
        self._mixed = 0  # bins to come that are part of the old kind

    @property
    def bins(self) -> int:
        """How many the rate is the mean of."""
        return len(self._counts)

    @property
    def rate(self) -> float:
        arrivals, bins = self._seen()
        return arrivals / bins / BIN_S if bins else 0.0

    @property
    def former(self) -> float:
        """Msg/s before a change that the last bins showed, where nobody has told of it; else ``rate``."""
        return self.rate if self._former is None or self.bins > _RECENT else self._former

    @property
    def deviation(self) -> float:
        """Standard deviation of ``rate``, msg/s; of no message that of one."""
        arrivals, bins = self._seen()
        return math.sqrt(self.dispersion * max(arrivals, 1)) / (bins or 1) / BIN_S

    @property
    def grain(self) -> float:
        """What one message, or one burst of I, makes of ``rate``, msg/s."""
        _, bins = self._seen()
        return self.dispersion / (bins or 1) / BIN_S

    def begin_anew(self, arrivals: int, span_s: float, mixed: int, known: int = 0) -> None:
        """The rate has changed: so many messages came in the ``span_s`` since. ``mixed`` bins to come began before;
        ``known`` bins that were added began after. Where these say more than ``span_s`` they are what is known."""
        kept = min(known, len(self._counts))
        self._is_cut, self._former = False, None
        if kept >= _LEAST_KEPT and kept * BIN_S >= span_s:
            self._since, self._mixed = (0, 0.0), 0
            self._keep(kept)
            return
        self._keep(0)
        self._since, self._mixed = (arrivals, span_s / BIN_S), mixed

    def is_mixed(self) -> bool:
        """Of the next bin, asked once: whether it began before a change that is known already."""
        self._mixed -= 1
        return self._mixed >= 0

    def add(self, arrivals: int) -> bool:
        """Of the next bin. True: a change is detected, and what came before it is forgotten."""
        former = self.former
        if self._counts:
            self._note_dispersion(self._counts[-1], arrivals)
        self._append(arrivals)
        since = clearest_change(self._counts, self._sum, self.dispersion)
        if since:
            self._keep(since)
            self._since = (0, 0.0)
            self._is_cut, self._former = True, former
        elif self._is_cut and len(self._counts) > 2:
            self._keep(len(self._counts) - 1)
            self._is_cut = False
        return since > 0

    def settle(self, arrivals: Sequence[int]) -> bool:
        """Of the next bins, in which nothing has changed: somebody who sees more than bins says so. True: they differ
        from those before, which are forgotten."""
        mixed, self._mixed = max(0, self._mixed), self._mixed - len(arrivals)
        arrivals = arrivals[mixed:]
        is_other = self._differs(arrivals)
        for before, after in pairwise([*islice(reversed(self._counts), 1), *arrivals]):
            if before or after:
                self._note_dispersion(before, after)
        if is_other:
            self._keep(0)
            self._since = (0, 0.0)
        elif self._is_cut:
            self._keep(max(0, len(self._counts) - 1))
        self._is_cut = False
        for count in arrivals[-LONGEST:]:
            self._append(count)
        return is_other

    def _differs(self, arrivals: Sequence[int]) -> bool:
        """From the bins that are known, by more than chance."""
        known, new = len(self._counts), len(arrivals)
        if not known or not new:
            return False
        came = sum(arrivals)
        variance = self.dispersion * max((self._sum + came) / (known + new), 1.0) * (1 / known + 1 / new)
        return (came / new - self._sum / known) ** 2 > _SIGMAS**2 * variance

    def _append(self, arrivals: int) -> None:
        if len(self._counts) == LONGEST:
            self._sum -= self._counts[0]
        self._counts.append(arrivals)
        self._sum += arrivals
        if len(self._counts) >= self._since[1]:
            self._since = (0, 0.0)

    def _keep(self, bins: int) -> None:
        """The last so many of those that are known."""
        while len(self._counts) > bins:
            self._sum -= self._counts.popleft()

    def _seen(self) -> tuple[int, float]:
        arrivals, bins = self._since
        return arrivals + self._sum, bins + len(self._counts)

    def _note_dispersion(self, before: int, arrivals: int) -> None:
        """From the difference to the bin before, which a slow change of the rate leaves as it is."""
        if before + arrivals == 0:
            return
        seen = (arrivals - before) ** 2 / (arrivals + before)
        seen = min(seen, 9 * self.dispersion)  # a leap of the rate says nothing about its noise
        self._pairs += 1
        step = max(_SMOOTHING, 1 / self._pairs)
        self.dispersion = max(_LEAST_DISPERSION, self.dispersion + step * (seen - self.dispersion))
