"""Computes the DRL penalty of recorded traffic: the access delay that its split adds (section 2.1 of the main paper).

The arrivals are replayed through the shares of their brokers and, merged, through the one bucket (r, b). All buckets
start full, so the sum is never negative (Proposition 1). The recorded delays are reported as well; they may be longer,
because a bucket may have been empty when the recording began.

Where shares change all the time, no share is in force for long. Then the delays that were recorded stand for those of
the shares. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import msgspec
import numpy as np

from srtm.analysis.arrivals import of_common_time
from srtm.errors import BadInput
from srtm.net.decode_errors import UNREADABLE
from srtm.token_bucket.replay import access_delays, penalty
from srtm.topics.publishers import Ints


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A broker's recording of a topic under one share, in order of arrival. All recordings of a topic use one clock."""

    broker: str
    arrival_ns: Ints
    waited_ns: Ints | None  # recorded access delay; None: not recorded
    share_micro: tuple[int, int] | None  # (r_l, b_l); None: it changed, ``waited_ns`` is what it made of the arrivals

    def between(self, first_ns: int, last_ns: int) -> Self:
        """Return the part from ``first_ns`` to ``last_ns``, both included."""
        start, end = np.searchsorted(self.arrival_ns, [first_ns, last_ns + 1]).tolist()
        waited_ns = None if self.waited_ns is None else self.waited_ns[start:end]
        return replace(self, arrival_ns=self.arrival_ns[start:end], waited_ns=waited_ns)


@dataclass(frozen=True, kw_only=True)
class BrokerDelay:
    """The p99 of the access delay on one broker, ms."""

    broker: str
    messages: int
    replayed_p99_ms: float | None  # None: the share changed meanwhile
    recorded_p99_ms: float | None


@dataclass(frozen=True, kw_only=True)
class RecordedPenalty:
    """The DRL penalty of ``messages`` in ``seconds``, ms."""

    messages: int
    seconds: float
    sum_ms: float  # over all messages; never negative
    mean_ms: float  # a message
    p99_ms: float  # difference of the two percentiles; it may be negative
    one_mean_ms: float  # delay of one bucket
    one_p99_ms: float
    brokers: tuple[BrokerDelay, ...]


def recorded_penalty(recordings: Sequence[Recording], rate_micro: int, burst_micro: int) -> RecordedPenalty:
    """Compute the DRL penalty for the time that all non-empty recordings cover.

    ``rate_micro``, ``burst_micro``: the one bucket. Raises BadInput if the recordings have no time in common.
    """
    parts = of_common_time(recordings)
    if not parts:
        return RecordedPenalty(
            messages=0, seconds=0.0, sum_ms=0.0, mean_ms=0.0, p99_ms=0.0, one_mean_ms=0.0, one_p99_ms=0.0, brokers=()
        )
    arrival_ns = np.sort(np.concatenate([part.arrival_ns for part in parts]))
    seconds, brokers = float(arrival_ns[-1] - arrival_ns[0]) / 1e9, tuple(map(_broker_delay, parts))
    shares = [part.share_micro for part in parts if part.share_micro is not None]
    if len(shares) < len(parts):
        waited_ns = np.concatenate([part.waited_ns for part in parts if part.waited_ns is not None])
        one_ns = access_delays(arrival_ns, rate_micro, burst_micro)
        return RecordedPenalty(
            messages=len(arrival_ns),
            seconds=seconds,
            sum_ms=float(waited_ns.sum() - one_ns.sum()) / 1e6,
            mean_ms=float(waited_ns.mean() - one_ns.mean()) / 1e6,
            p99_ms=_p99_ms(waited_ns) - _p99_ms(one_ns),
            one_mean_ms=float(one_ns.mean()) / 1e6,
            one_p99_ms=_p99_ms(one_ns),
            brokers=brokers,
        )
    cost = penalty([part.arrival_ns for part in parts], shares, rate_micro, burst_micro)
    return RecordedPenalty(
        messages=cost.one.count,
        seconds=seconds,
        sum_ms=cost.sum_ns / 1e6,
        mean_ms=cost.mean_ns / 1e6,
        p99_ms=cost.p99_ns / 1e6,
        one_mean_ms=cost.one.mean_ns / 1e6,
        one_p99_ms=cost.one.p99_ns / 1e6,
        brokers=brokers,
    )


def _broker_delay(part: Recording) -> BrokerDelay:
    share = part.share_micro
    return BrokerDelay(
        broker=part.broker,
        messages=len(part.arrival_ns),
        replayed_p99_ms=None if share is None else _p99_ms(access_delays(part.arrival_ns, *share)),
        recorded_p99_ms=None if part.waited_ns is None else _p99_ms(part.waited_ns),
    )


def _p99_ms(delays_ns: Ints) -> float:
    return float(np.percentile(delays_ns, 99, method="inverted_cdf")) / 1e6 if len(delays_ns) else 0.0


class _Columns(msgspec.Struct):
    arrival_ns: list[int]
    due_ns: list[int]
    share_version: list[int]


def recording_of(body: bytes, broker: str, version: int, share_micro: tuple[int, int]) -> Recording:
    """Read a broker's ``GET /v1/topics/NAME/trace``: the messages since share ``version`` came into force.

    Raises BadInput.
    """
    arrival_ns, due_ns, versions = _columns(body, broker)
    earlier = np.flatnonzero((versions != version) & (versions != 0))  # 0: the message still waits
    start = int(earlier[-1]) + 1 if len(earlier) else 0
    counted_ns = np.maximum.accumulate(arrival_ns)[start:]  # an older arrival counts at the instant before it
    return Recording(
        broker=broker,
        arrival_ns=counted_ns,
        waited_ns=np.maximum(due_ns[start:] - counted_ns, 0),
        share_micro=share_micro,
    )


def window_of(body: bytes, broker: str, window_s: float) -> Recording:
    """Read the same trace: the last ``window_s`` seconds of messages that were let go, under whichever shares.

    Raises BadInput.
    """
    arrival_ns, due_ns, versions = _columns(body, broker)
    waiting = np.flatnonzero(versions == 0)
    end = int(waiting[0]) if len(waiting) else len(versions)
    counted_ns = np.maximum.accumulate(arrival_ns)[:end]
    start = int(np.searchsorted(counted_ns, counted_ns[-1] - round(window_s * 1e9))) if end else 0
    return Recording(
        broker=broker,
        arrival_ns=counted_ns[start:],
        waited_ns=np.maximum(due_ns[start:end] - counted_ns[start:], 0),
        share_micro=None,
    )


def _columns(body: bytes, broker: str) -> tuple[Ints, Ints, Ints]:
    """Arrival and due instants, ns, and share versions. Raises BadInput."""
    try:
        columns = msgspec.json.decode(body, type=_Columns)
    except UNREADABLE as error:
        raise BadInput("trace", broker, f"must be a broker's trace: {error}") from error
    arrival_ns, due_ns, versions = (
        np.array(column, dtype=np.int64) for column in (columns.arrival_ns, columns.due_ns, columns.share_version)
    )
    if not len(arrival_ns) == len(due_ns) == len(versions):
        raise BadInput("trace", broker, "columns must be of equal length")
    return arrival_ns, due_ns, versions
