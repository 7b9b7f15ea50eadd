"""What other shares would have made of the last ten seconds on one broker: a replay from bins of 100 ms.

Under a share (r, b) a message waits while the unfinished work exceeds b. A bin tells how many messages came and the
largest work in it. Work follows Lindley's recursion from bin to bin; what the largest exceeds that by is a clump inside
the bin, which is there under every share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from adaptor.observations import BIN_S, Bin, Change, Shares
from adaptor.policies.rate_estimate import RateEstimate
from srtm.units import MICRO

_BINS = 100  # 10 s, the paper's window


class BrokerTraffic:
    """What came to one broker lately, and what it would have waited under other shares."""

    def __init__(self, dispersion: float = 1.0) -> None:
        self.estimate = RateEstimate(dispersion)
        self.waiting = 0  # messages, at the last word
        self._arrivals: deque[int] = deque(maxlen=_BINS)
        self._clumps: deque[float] = deque(maxlen=_BINS)
        self._largest: deque[float] = deque(maxlen=_BINS)  # work
        self._work = 0.0  # messages, at the end of the last bin

    @property
    def can_be_replayed(self) -> bool:
        """Whether anything is known of what came since the rate changed last."""
        return bool(self._arrivals)

    @property
    def largest_work(self) -> float:
        """Messages."""
        return max(self._largest, default=0.0)

    def add(self, one: Bin, share: tuple[int, int] | None) -> None:
        """Take the next bin. ``share``: in force then, micro; None: not known, and the bin cannot be replayed."""
        self.waiting = one.waiting
        if not self.estimate.add(one.arrivals) or share is None:
            return
        rate, burst = share[0] / MICRO, share[1] / MICRO
        before = max(self._work, one.waiting + burst) if one.waiting else self._work
        self._work = max(0.0, before + one.arrivals - rate * BIN_S)
        self._arrivals.append(one.arrivals)
        self._clumps.append(max(0.0, one.work - max(before, self._work)))
        self._largest.append(one.work)

    def begin_anew(self, change: Change) -> None:
        """The rate has changed: what came before says nothing about what comes."""
        kept = self.estimate.begin_anew(change)
        for column in (self._arrivals, self._clumps, self._largest):
            while len(column) > kept:
                column.popleft()
        self.waiting = change.waiting

    def delays_s(self, shares: Shares) -> Sequence[float]:
        """The root mean square of the delays under each of ``shares``, s. It weighs what is late and how late: a
        percentile of ten seconds is a single bin."""
        arrivals = np.array(self._arrivals, dtype=float)
        if not arrivals.any():
            return [0.0] * len(shares)
        rate, burst = np.array(shares, dtype=float).T[:, :, None] / MICRO
        served = np.cumsum(arrivals - rate * BIN_S, axis=1)
        ends = served - np.minimum(np.minimum.accumulate(served, axis=1), 0)
        begins = np.concatenate([np.zeros((len(shares), 1)), ends[:, :-1]], axis=1)
        late_s = np.maximum(0, np.maximum(begins, ends) + np.array(self._clumps) - burst) / rate
        found: list[float] = np.sqrt((late_s**2 * arrivals).sum(axis=1) / arrivals.sum()).tolist()
        return found
