"""Computes the DRL penalty of recorded traffic: the access delay that its split adds (section 2.1 of the main paper).

The arrivals are replayed through the shares of their brokers and, merged, through the one bucket (r, b). All buckets
start full, so the sum is never negative (Proposition 1). The recorded delays are reported as well; they may be longer,
because a bucket may have been empty when the recording began. Pure.
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
    share_micro: tuple[int, int]  # (r_l, b_l)

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
    replayed_p99_ms: float
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
    cost = penalty([part.arrival_ns for part in parts], [part.share_micro for part in parts], rate_micro, burst_micro)
    recorded = [part.arrival_ns for part in parts if len(part.arrival_ns)]
    return RecordedPenalty(
        messages=cost.one.count,
        seconds=float(max(arrival_ns[-1] for arrival_ns in recorded) - min(arrival_ns[0] for arrival_ns in recorded))
        / 1e9,
        sum_ms=cost.sum_ns / 1e6,
        mean_ms=cost.mean_ns / 1e6,
        p99_ms=cost.p99_ns / 1e6,
        one_mean_ms=cost.one.mean_ns / 1e6,
        one_p99_ms=cost.one.p99_ns / 1e6,
        brokers=tuple(
            BrokerDelay(
                broker=part.broker,
                messages=len(part.arrival_ns),
                replayed_p99_ms=_p99_ms(access_delays(part.arrival_ns, *part.share_micro)),
                recorded_p99_ms=None if part.waited_ns is None else _p99_ms(part.waited_ns),
            )
            for part in parts
        ),
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
    try:
        columns = msgspec.json.decode(body, type=_Columns)
    except UNREADABLE as error:
        raise BadInput("trace", broker, f"must be a broker's trace: {error}") from error
    arrival_ns, due_ns, versions = (
        np.array(column, dtype=np.int64) for column in (columns.arrival_ns, columns.due_ns, columns.share_version)
    )
    if not len(arrival_ns) == len(due_ns) == len(versions):
        raise BadInput("trace", broker, "columns must be of equal length")
    earlier = np.flatnonzero((versions != version) & (versions != 0))  # 0: the message still waits
    start = int(earlier[-1]) + 1 if len(earlier) else 0
    counted_ns = np.maximum.accumulate(arrival_ns)[start:]  # an older arrival counts at the instant before it
    return Recording(
        broker=broker,
        arrival_ns=counted_ns,
        waited_ns=np.maximum(due_ns[start:] - counted_ns, 0),
        share_micro=share_micro,
    )
