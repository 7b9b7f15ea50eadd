"""Computes the access delays of columns of arrivals under a share (r_l, b_l), exact to the nanosecond.

The delays follow from the r-server of appendix A (Eq. 2): a message waits while the part of U + 1 above b is served.
No message is simulated on its own, and no float is used. A test holds the results equal to those of
``srtm.token_bucket.bucket``.

Exactness in 64 bits: with V_i = a_i - i / r, serving the work found by message i takes max_{j <= i} V_j - V_i. V_i is
stored as whole nanoseconds and a rest in [0, r), which counts r-ths. The running maximum is taken over the whole parts,
then over the rests of equal whole parts. The columns are processed in chunks in which no product exceeds 63 bits.
Between chunks the work is a Python int.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from srtm.errors import BadInput
from srtm.token_bucket.bucket import TOKEN, UNITS_PER_MICRO

Ints = npt.NDArray[np.int64]

NEVER_NS = int(np.iinfo(np.int64).max)  # due instant and delay of a message that never gets a token
_ROOM = 1 << 61  # limit of all products


class Server:
    """The r-server of appendix A (G/D/1): it tells the work that each arrival finds. Feed arrivals in order of time."""

    def __init__(self, rate_micro: int, at_ns: int, work_units: int = 0) -> None:
        """Start at ``at_ns`` with the unfinished work ``work_units`` (b - fill of a bucket). ``rate_micro`` > 0."""
        self._rate = rate_micro
        self._at_ns = at_ns
        self._work = work_units
        self._chunk = max(1, _ROOM // max(rate_micro, TOKEN // rate_micro + 1))

    def found(self, arrival_ns: Ints) -> tuple[Ints, Ints]:
        """Return the time to serve the work that each arrival finds, without its own: whole ns, and r-ths of a ns.

        r is ``rate_micro``. Raises OverflowError if the time exceeds 73 years.
        """
        chunks = [self._found(arrival_ns[at : at + self._chunk]) for at in range(0, len(arrival_ns), self._chunk)]
        if len(chunks) == 1:
            return chunks[0]
        empty = np.zeros(0, dtype=np.int64)
        return np.concatenate([empty, *(c[0] for c in chunks)]), np.concatenate([empty, *(c[1] for c in chunks)])

    def _found(self, arrival_ns: Ints) -> tuple[Ints, Ints]:
        first_ns, last_ns = int(arrival_ns[0]), int(arrival_ns[-1])
        work = max(0, self._work - self._rate * (first_ns - self._at_ns))
        if work // self._rate >= _ROOM:
            raise OverflowError(f"{work / TOKEN:.3g} messages wait at {self._rate} micro-messages/s: over 73 years")
        whole, rest = self._less_served(arrival_ns - first_ns)
        top_whole, top_rest = whole.copy(), rest.copy()
        top_whole[0], top_rest[0] = divmod(work, self._rate)
        top_whole, top_rest = self._running_max(top_whole, top_rest)
        whole, rest = top_whole - whole, top_rest - rest
        borrow = rest < 0
        whole -= borrow
        rest += self._rate * borrow
        self._at_ns, self._work = last_ns, self._rate * int(whole[-1]) + int(rest[-1]) + TOKEN
        return whole, rest

    def _less_served(self, since_ns: Ints) -> tuple[Ints, Ints]:
        """Return V_i of the module's docstring, relative to the first."""
        index = np.arange(len(since_ns), dtype=np.int64)
        ns_a_token, rest_a_token = divmod(TOKEN, self._rate)
        carried, rest = np.divmod(index * rest_a_token, self._rate)
        return since_ns - index * ns_a_token - carried - (rest > 0), np.where(rest > 0, self._rate - rest, 0)

    def _running_max(self, whole: Ints, rest: Ints) -> tuple[Ints, Ints]:
        top = np.maximum.accumulate(whole)
        plateau = np.zeros(len(top), dtype=np.int64)
        np.cumsum(top[1:] != top[:-1], out=plateau[1:])
        plateau *= self._rate
        top_rest = np.maximum.accumulate(plateau + np.where(whole == top, rest, 0)) - plateau
        return top, top_rest


def due_instants(arrival_ns: Ints, rate_micro: int, burst_micro: int, fill_units: int | None = None) -> Ints:
    """Return the release instant d_i of each arrival, in the order of decision.

    An arrival older than the one before it counts at that one's instant. ``fill_units``: fill at the first arrival;
    None: full. A message that never gets a token (rate 0, or a burst below 1) has NEVER_NS.
    """
    burst = burst_micro * UNITS_PER_MICRO
    fill = burst if fill_units is None else min(fill_units, burst)
    counted_ns = np.maximum.accumulate(arrival_ns)
    if burst < TOKEN or rate_micro == 0:
        there = max(0, fill // TOKEN) if burst >= TOKEN else 0
        return np.where(np.arange(len(counted_ns)) < there, counted_ns, NEVER_NS)
    if not len(counted_ns):
        return counted_ns
    whole, rest = Server(rate_micro, int(counted_ns[0]), burst - fill).found(counted_ns)
    free_whole, free_rest = divmod(burst - TOKEN, rate_micro)  # the work that an arrival may find without waiting
    delay = whole - min(free_whole, _ROOM << 1) + (rest > free_rest)
    return counted_ns + np.maximum(delay, 0)


def access_delays(arrival_ns: Ints, rate_micro: int, burst_micro: int, fill_units: int | None = None) -> Ints:
    """Return the access delays d_i - a_i, ns, or NEVER_NS. The parameters are those of ``due_instants``."""
    due_ns = due_instants(arrival_ns, rate_micro, burst_micro, fill_units)
    return np.where(due_ns == NEVER_NS, NEVER_NS, due_ns - arrival_ns)


@dataclass(frozen=True)
class Access:
    """The access delays of a run."""

    count: int  # messages
    sum_ns: int
    p99_ns: int  # the smallest delay that 99 % of the messages do not exceed

    @property
    def mean_ns(self) -> float:
        return self.sum_ns / self.count if self.count else 0.0


@dataclass(frozen=True)
class Penalty:
    """The DRL penalty (section 2.1 of the main paper): the delays of the split minus those of one bucket.

    The sum is never negative if the shares sum to the whole (Proposition 1); the p99 may be negative.
    """

    split: Access
    one: Access

    @property
    def sum_ns(self) -> int:
        return self.split.sum_ns - self.one.sum_ns

    @property
    def mean_ns(self) -> float:
        return self.split.mean_ns - self.one.mean_ns

    @property
    def p99_ns(self) -> int:
        return self.split.p99_ns - self.one.p99_ns


def penalty(
    arrivals_ns: Sequence[Ints], shares_micro: Sequence[tuple[int, int]], rate_micro: int, burst_micro: int
) -> Penalty:
    """Compute the DRL penalty from the arrivals and the share of each broker. All buckets start full.

    Raises BadInput if messages arrive at a share that never releases them.
    """
    split = [access_delays(arrival_ns, *share) for arrival_ns, share in zip(arrivals_ns, shares_micro, strict=True)]
    one = access_delays(np.sort(np.concatenate(arrivals_ns)), rate_micro, burst_micro)
    for delays, share in zip([*split, one], [*shares_micro, (rate_micro, burst_micro)], strict=True):
        if (delays == NEVER_NS).any():
            raise BadInput("share", share, "must gain tokens where messages arrive")
    return Penalty(_access(np.concatenate(split)), _access(one))


def _access(delays_ns: Ints) -> Access:
    if not len(delays_ns):
        return Access(0, 0, 0)
    p99_ns = np.percentile(delays_ns, 99, method="inverted_cdf")
    return Access(len(delays_ns), int(delays_ns.sum()), int(p99_ns))
