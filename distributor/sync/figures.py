"""What jobs find out and views show: what the layout loops have done, and topics' DRL penalties."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from srtm.analysis.drl_penalty import RecordedPenalty


@dataclass
class LayoutFigures:
    """``moves``: publishers that got another broker, since the start; ``searches``: {outcome: searches that ended so};
    ``states``: {topic: what its loop is doing}."""

    moves: int = 0
    searches: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MeasuredPenalty:
    """A topic's penalty in one window."""

    penalty: RecordedPenalty
    wall_ns: int  # when it was computed


def utc(wall_ns: int) -> str:
    """A wall-clock time as ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_ns // 10**9))
