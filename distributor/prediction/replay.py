"""What would be, from what was recorded: the delays of any placement of the publishers that a trace holds. Pure.

A trace has the instant at which every message arrived, so publishers that fire together do so here too, named as a
group or not. The access delay of any subset under any share follows exactly (``srtm.token_bucket.replay``). The
processing delay is that of one server after the bucket that takes messages in the order in which they are let go
(Lindley's recursion, exact in integers): exact where the service time is known, as in a laboratory; with measured
ones, as good as the assumption that a message costs the same in other company. A bucket starts full, and the server
idle: what waited there before the first message is in no prediction. Nor is a machine that stood still, where service
times are known.

Arrivals that several brokers recorded must be on one clock before they are joined: members of a group that are apart
by the error of a clock no longer fire together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from srtm.token_bucket.replay import NEVER_NS, access_delays
from srtm.units import MICRO

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What arrived in a round, in order of arrival; columns of equal length."""

    publisher: Ints  # index in the topic's columns
    arrival_ns: Ints
    service_ns: Ints  # what the message took of the server

    def __len__(self) -> int:
        return len(self.publisher)

    def slower(self, times: float) -> Trace:
        """The same on a server that takes so many times as long."""
        if times == 1:
            return self
        return replace(self, service_ns=np.rint(self.service_ns * times).astype(np.int64))

    def of(self, chosen: npt.NDArray[np.bool_]) -> Trace:
        """The messages of the publishers that are true in ``chosen``, had no others come."""
        return self._part(np.flatnonzero(chosen[self.publisher]))

    def by_broker(self, placement: Ints, brokers: int) -> list[Trace]:
        """What would have arrived at each broker, had publisher i been on broker ``placement[i]`` (negative: none)."""
        at = placement[self.publisher]
        edges = np.cumsum(np.bincount(at + 1, minlength=brokers + 1))
        return [self._part(rows) for rows in np.split(np.argsort(at, kind="stable"), edges[:-1])[1:]]

    def _part(self, rows: Ints) -> Trace:
        return Trace(
            publisher=self.publisher[rows],
            arrival_ns=self.arrival_ns[rows],
            service_ns=self.service_ns[rows],
        )


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Of each message of a trace, ns. NEVER_NS: its share never lets it go."""

    access_ns: Ints
    processing_ns: Ints

    @property
    def total_ns(self) -> Ints:
        never = self.access_ns == NEVER_NS
        return np.where(never, NEVER_NS, self.access_ns) + np.where(never, 0, self.processing_ns)


@dataclass(frozen=True, kw_only=True)
class Latency:
    """The percentile of each delay over ``count`` messages, ns. The percentile of a sum is not the sum of them."""

    count: int = 0
    access_ns: int = 0
    processing_ns: int = 0
    total_ns: int = 0


def joined(traces: Sequence[Trace]) -> Trace:
    """One trace of what several brokers recorded at the same time on one clock."""
    arrival_ns = np.concatenate([trace.arrival_ns for trace in traces])
    order = np.argsort(arrival_ns, kind="stable")
    return Trace(
        publisher=np.concatenate([trace.publisher for trace in traces])[order],
        arrival_ns=arrival_ns[order],
        service_ns=np.concatenate([trace.service_ns for trace in traces])[order],
    )


def measured_service_ns(due_ns: Ints, sent_ns: Ints) -> Ints:
    """Lindley's recursion solved for the service: what each message took of the server, if one server took them in
    this order. Writes that carry several messages count for the first of them.

    The first message may have waited behind others that are not here. So it takes the mean of the others, at most.
    """
    free_ns = np.concatenate([due_ns[:1], np.maximum.accumulate(sent_ns)[:-1]])
    took_ns: Ints = np.maximum(sent_ns - np.maximum(due_ns, free_ns), 0)
    if len(took_ns) > 1:
        took_ns[0] = min(took_ns[0], round(took_ns[1:].mean()))
    return took_ns


def sojourn_ns(due_ns: Ints, service_ns: Ints, free_ns: int = 0) -> Ints:
    """From due to served, by one server that is free from ``free_ns`` on, first come first served; ``due_ns`` in
    order. Exact."""
    served = np.cumsum(service_ns)
    starts = np.maximum(np.maximum.accumulate(due_ns - (served - service_ns)), free_ns)
    sojourn: Ints = served + starts - due_ns
    return sojourn


def processing_ns(trace: Trace) -> Ints:
    """Of messages that wait for no token."""
    return sojourn_ns(trace.arrival_ns, trace.service_ns)


def delays(trace: Trace, share_micro: tuple[int, int]) -> Delays:
    """Of the whole trace on one broker under (r_l, b_l)."""
    access_ns = access_delays(trace.arrival_ns, *share_micro)
    passed = access_ns != NEVER_NS
    due_ns = trace.arrival_ns[passed] + access_ns[passed]
    took_ns = np.zeros(len(trace), dtype=np.int64)
    took_ns[passed] = sojourn_ns(due_ns, trace.service_ns[passed])
    return Delays(access_ns=access_ns, processing_ns=took_ns)


def latency(parts: Sequence[Delays], percentile: float) -> Latency:
    """Over all messages of ``parts`` together: the smallest delay that so many do not exceed."""
    access_ns = np.concatenate([part.access_ns for part in parts])
    if not len(access_ns):
        return Latency()
    return Latency(
        count=len(access_ns),
        access_ns=_at(access_ns, percentile),
        processing_ns=_at(np.concatenate([part.processing_ns for part in parts]), percentile),
        total_ns=_at(np.concatenate([part.total_ns for part in parts]), percentile),
    )


def _at(delays_ns: Ints, percentile: float) -> int:
    return int(np.percentile(delays_ns, percentile, method="inverted_cdf"))


def enough_burst_micro(traces: Sequence[Trace], rate_micro: int, percentile: float, target_ns: int) -> int:
    """The smallest b, in whole messages, under which the one bucket of the topic keeps the percentile of the access
    delay at the target; as many as the messages if nothing less does."""
    least, most = 1, max(1, *(len(trace) for trace in traces))
    while least < most:
        burst = (least + most) // 2
        access_ns = np.concatenate([access_delays(trace.arrival_ns, rate_micro, burst * MICRO) for trace in traces])
        if _at(access_ns, percentile) <= target_ns:
            most = burst
        else:
            least = burst + 1
    return least * MICRO
