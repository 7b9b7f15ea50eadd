"""A topic's DRL penalty as it was measured last, and times of day for people."""

from __future__ import annotations

import time
from dataclasses import dataclass

from srtm.analysis.drl_penalty import RecordedPenalty


@dataclass(frozen=True, kw_only=True)
class MeasuredPenalty:
    """The penalty of one window."""

    penalty: RecordedPenalty
    wall_ns: int  # when it was computed


def utc(wall_ns: int) -> str:
    """A wall-clock time as ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_ns // 10**9))
