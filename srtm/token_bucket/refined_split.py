"""The split that would have been best for traffic that was recorded: the smallest worst broker's access delay.

The unfinished work U that a message finds depends on its broker's rate, not on its burst (appendix A). So for given
rates the bursts that level the delay at a percentile follow at once (``fitted_split.shares_of``), with

    d = (sum of the brokers' U + 1 at the percentile - b) / r

and what is left to find is how to divide the slack so that this sum is smallest: one curve a broker, each from a few
passes over its arrivals, and an exchange of slack between those who gain most and those who lose least by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from srtm.token_bucket.bucket import TOKEN
from srtm.token_bucket.exact_split import MICRO, from_micro, split_bucket
from srtm.token_bucket.fitted_split import Shares, Traffic, fitted_bucket, shares_of
from srtm.token_bucket.replay import Ints, Server, access_delays

Floats = npt.NDArray[np.float64]
Curve = Callable[[Floats], Floats]

_COARSE = np.geomspace(0.002, 1.0, 18)  # parts of the slack at which a curve is known at first
_AROUND = np.geomspace(0.7, 1.4, 7)  # and then around what was found
_SMALLEST_STEP = 1 / 2048  # of the slack
_MOST_STEPS = 100_000


def worst_delay_ns(arrivals_ns: Sequence[Ints], shares: Sequence[tuple[int, int]], percentile: float = 99.0) -> int:
    """The largest, over brokers, of the access delay at ``percentile``, under shares that start full."""
    return max(
        (
            _at(access_delays(came, *share), percentile)
            for came, share in zip(arrivals_ns, shares, strict=True)
            if len(came)
        ),
        default=0,
    )


def refined_bucket(
    rate_micro: int,
    burst_micro: int,
    traffic: Sequence[Traffic],
    arrivals_ns: Sequence[Ints],
    percentile: float = 99.0,
) -> Shares:
    """Sub-token buckets (r_l, b_l), micro, sums exact, with the smallest ``worst_delay_ns`` found on what was recorded.

    ``arrivals_ns``: of each broker in ``traffic``, in order of time. Never worse there than the closed form or the
    proportional split. Raises BadInput as ``split_bucket`` does.
    """
    candidates = [
        split_bucket(rate_micro, burst_micro, [one.rate for one in traffic]),
        fitted_bucket(rate_micro, burst_micro, traffic, percentile),
    ]
    loads = np.array([one.rate for one in traffic])
    slack = from_micro(rate_micro) - float(loads.sum())
    if slack > 0 and sum(loads > 0) > 1:
        batches = [one.batch for one in traffic]
        works = [_Work(load, slack, came, percentile) for load, came in zip(loads.tolist(), arrivals_ns, strict=True)]
        parts = np.array([from_micro(rate) for rate, _ in candidates[1]]) - loads
        parts = np.clip(parts / slack, 0.0, 1.0)
        for _ in range(2):
            parts = _exchanged(parts, [work.curve() for work in works], loads > 0)
            candidates.append(
                shares_of(
                    rate_micro,
                    burst_micro,
                    (loads + slack * parts).tolist(),
                    [work.at(part) for work, part in zip(works, parts.tolist(), strict=True)],
                    batches,
                )
            )
    return min(candidates, key=lambda shares: worst_delay_ns(arrivals_ns, shares, percentile))


class _Work:
    """One broker's unfinished work at the percentile, messages, by its part of the slack."""

    def __init__(self, load: float, slack: float, arrival_ns: Ints, percentile: float) -> None:
        self._load, self._slack, self._percentile = load, slack, percentile
        self._arrival_ns = np.maximum.accumulate(arrival_ns)
        self._known = {float(part): self._measured(float(part)) for part in _COARSE}

    def at(self, part: float) -> float:
        if part not in self._known:
            for around in (part * _AROUND).tolist():
                self._known[around] = self._measured(around)
            self._known[part] = self._measured(part)
        return self._known[part]

    def curve(self) -> Curve:
        parts = np.array(sorted(self._known))
        work = np.array([self._known[part] for part in parts.tolist()])
        work = np.minimum.accumulate(work)  # more slack, less work
        return lambda wanted: np.interp(np.log(np.maximum(wanted, parts[0])), np.log(parts), work)

    def _measured(self, part: float) -> float:
        if not len(self._arrival_ns):
            return 0.0
        rate_micro = max(1, round((self._load + self._slack * part) * MICRO))
        whole_ns, rest = Server(rate_micro, int(self._arrival_ns[0])).found(self._arrival_ns)
        at = _order(len(whole_ns), self._percentile)
        whole = int(np.partition(whole_ns, at)[at])
        return (whole * rate_micro + int(rest[whole_ns == whole].max())) / TOKEN


def _exchanged(parts: Floats, curves: Sequence[Curve], active: npt.NDArray[np.bool_]) -> Floats:
    """Parts of the slack, sum unchanged, after all exchanges that lower the sum of the curves."""
    parts, step = np.where(active, parts, 0.0), 0.25
    parts /= parts.sum()

    def work(at: Floats) -> Floats:
        return np.array([float(curve(part)) for curve, part in zip(curves, at, strict=True)])

    for _ in range(_MOST_STEPS):
        now = work(parts)
        gain = np.where(active, now - work(parts + step), -np.inf)
        cost = np.where(active & (parts > step), work(np.maximum(parts - step, 0.0)) - now, np.inf)
        to, taken = int(np.argmax(gain)), int(np.argmin(cost))
        if to == taken or gain[to] <= cost[taken]:
            step /= 2
            if step < _SMALLEST_STEP:
                break
            continue
        parts[to] += step
        parts[taken] -= step
    return parts


def _order(count: int, percentile: float) -> int:
    """Index, in order of size, of the smallest that ``percentile`` per cent do not exceed."""
    return max(0, int(np.ceil(count * percentile / 100 - 1e-9)) - 1)


def _at(delays_ns: Ints, percentile: float) -> int:
    at = _order(len(delays_ns), percentile)
    return int(np.partition(delays_ns, at)[at])
