"""A topic's DRL penalty as it was measured last, and how it is shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from distributor.sync.wall import utc
from srtm.analysis.drl_penalty import RecordedPenalty


@dataclass(frozen=True, kw_only=True)
class Gauged:
    """The penalty of one window."""

    penalty: RecordedPenalty
    wall_ns: int  # when it was worked out


def penalty_view(gauged: Gauged | None) -> dict[str, Any] | None:
    """As JSON, ms. None: it is not known, or there is none."""
    if gauged is None:
        return None
    figures = {name: value for name, value in asdict(gauged.penalty).items() if name != "brokers"}
    return {"at": utc(gauged.wall_ns), **figures}
