"""A topic's DRL penalty as it was measured last, and how it is shown."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from srtm.analysis.penalty import RecordedPenalty


@dataclass(frozen=True, kw_only=True)
class MeasuredPenalty:
    """The penalty of one window."""

    penalty: RecordedPenalty
    wall_ns: int  # when it was worked out


def penalty_view(gauged: MeasuredPenalty | None) -> dict[str, Any] | None:
    """As JSON, ms. None: it is not known, or there is none."""
    if gauged is None:
        return None
    figures = {name: value for name, value in asdict(gauged.penalty).items() if name != "brokers"}
    return {"at": utc(gauged.wall_ns), **figures}


def utc(wall_ns: int) -> str:
    """A wall-clock time as ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_ns // 10**9))
