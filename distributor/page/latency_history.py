"""Latency and load of topics over the last 15 minutes, in steps of 5 s. In memory, bounded. Pure.

Longer series are for Prometheus.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

STEP_S = 5
STEPS = 15 * 60 // STEP_S
MOST_BYTES = 64 << 20
FIGURES = ("access_ms", "processing_ms", "network_ms", "consumer_wait_ms", "demand", "rate_in_force", "backlog")
_BYTES = STEPS * len(FIGURES) * 4
MOST_TOPICS = MOST_BYTES // (_BYTES + 512)  # 512: an array and its key


class HistoryView(msgspec.Struct, kw_only=True):
    """The history of a topic in columns, oldest first; null: not known. Delays at the percentile of the promise, at
    the broker that is latest in a step; demand and rate in force in msg/s over all brokers."""

    step_s: int
    at_s: Sequence[float]  # end of each step, s since 1970
    columns: dict[str, list[float | None]]
    why_none: str | None  # why nothing is kept of this topic


class LatencyHistory:
    """A ring for each topic. All rings move on together."""

    def __init__(self, most_topics: int = MOST_TOPICS) -> None:
        self._most = most_topics
        self._rings: dict[str, npt.NDArray[np.float32]] = {}
        self._ends_s = np.full(STEPS, np.nan)
        self._at = 0

    def advance(self, wall_s: float, topics: Collection[str]) -> None:
        """Begin the next step, which ends at ``wall_s``. What is not of ``topics`` is forgotten."""
        self._at = (self._at + 1) % STEPS
        self._ends_s[self._at] = wall_s
        for name in [name for name in self._rings if name not in topics]:
            del self._rings[name]
        for ring in self._rings.values():
            ring[self._at] = np.nan

    def record(self, topic: str, figures: Sequence[float | None]) -> None:
        """Take the step's ``figures``, as ``FIGURES``. A topic beyond the most is not kept."""
        ring = self._rings.get(topic)
        if ring is None:
            if len(self._rings) >= self._most:
                return
            ring = self._rings[topic] = np.full((STEPS, len(FIGURES)), np.nan, dtype=np.float32)
        ring[self._at] = [math.nan if figure is None else figure for figure in figures]

    def view(self, topic: str) -> HistoryView:
        """The history of ``topic``."""
        ring = self._rings.get(topic)
        order = np.roll(np.arange(STEPS), -self._at - 1)
        order = order[~np.isnan(self._ends_s[order])]
        if ring is None:
            why = None if len(self._rings) < self._most else f"histories of {self._most:,} topics are kept, not of all"
            return HistoryView(step_s=STEP_S, at_s=[], columns={name: [] for name in FIGURES}, why_none=why)
        columns = {name: _known(ring[order, column]) for column, name in enumerate(FIGURES)}
        return HistoryView(step_s=STEP_S, at_s=self._ends_s[order].tolist(), columns=columns, why_none=None)


def _known(column: npt.NDArray[np.float32]) -> list[float | None]:
    """Four digits are enough for a drawing."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in column.tolist()]
