"""The capacity of a broker of which nobody stated or measured any, and the service time behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from srtm.token_bucket.poisson import delayed_part
from srtm.topics.spec import Slo

SERVICE_NS = 15_000  # CPU a message of the engine on a plain machine (docs/performance.md)
MOST = 20_000.0  # msg/s: three tenths of what that service time allows, the rest is for consumers and the system
_ENOUGH = 64  # places in the queue: at three tenths of the load, fewer than 1e-30 of the messages find more
_HALVINGS = 40


def assumed_mcap(promises: Iterable[Slo]) -> float:
    """Return the largest rate, msg/s, at which M/D/1 keeps all ``promises``, at most ``MOST``.

    A promise shorter than one service time is kept at no rate; it does not count, and its prediction says so.
    """
    return min((_within(slo.percentile, slo.latency_ns) for slo in promises), default=MOST)


@lru_cache(maxsize=1024)
def _within(percentile: float, latency_ns: int) -> float:
    places = min(latency_ns // SERVICE_NS, _ENOUGH)  # U + 1 <= places: in time
    if places < 1:
        return MOST
    late = 1 - percentile / 100

    def keeps(rate: float) -> bool:
        return delayed_part(rate * SERVICE_NS / 1e9, places) <= late

    if keeps(MOST):
        return MOST
    least, most = 0.0, MOST
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if keeps(middle) else (least, middle)
    return math.floor(least * 1e3) / 1e3
