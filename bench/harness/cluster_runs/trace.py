"""What a broker's ``GET /v1/topics/NAME/trace`` says about each message of a topic, as columns.

All times are ns of the host's monotonic clock, so traces of brokers on one host merge by sorting.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.harness.cluster_runs.broker_api import request
from srtm import control
from srtm.errors import PeerError

FETCH_WITHIN_S = 60.0
ANSWER_LIMIT_BYTES = 1 << 30

Column = NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """One topic on one broker. ``publisher`` holds names' indices."""

    publishers: list[str]
    publisher: Column
    arrival_ns: Column
    due_ns: Column
    released_ns: Column
    sent_ns: Column

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def access_ns(self) -> Column:
        return self.due_ns - self.arrival_ns

    @property
    def lateness_ns(self) -> Column:
        """How much later than due each message was let go."""
        return self.released_ns - self.due_ns

    def since(self, at_ns: int) -> Trace:
        """Only what arrived at ``at_ns`` or later."""
        keep = self.arrival_ns >= at_ns
        columns = (self.publisher, self.arrival_ns, self.due_ns, self.released_ns, self.sent_ns)
        return Trace(self.publishers, *(column[keep] for column in columns))


async def fetch_trace(http_address: str, topic: str) -> Trace:
    """Raises Unavailable, PeerError."""
    target = f"/v1/topics/{topic}/trace"
    return decode_trace(
        await request(http_address, "GET", target, within_s=FETCH_WITHIN_S, limit_bytes=ANSWER_LIMIT_BYTES)
    )


def decode_trace(body: bytes) -> Trace:
    """Raises PeerError."""
    try:
        answer = msgspec.json.decode(body, type=control.Trace)
    except msgspec.DecodeError as error:
        raise PeerError(f"no trace: {error}") from error
    numbers = (answer.publisher, answer.arrival_ns, answer.due_ns, answer.released_ns, answer.sent_ns)
    return Trace(answer.publishers, *(np.array(column, dtype=np.int64) for column in numbers))
