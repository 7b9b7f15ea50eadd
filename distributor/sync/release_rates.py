"""How fast a broker releases the messages of each topic, computed from the counters in its reports. Pure: the caller
passes the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distributor.sync.report_checks import BrokerReports
from srtm.control import TopicReport

_WINDOW_S = 4.0  # short enough to follow traffic within seconds; over one second a slow topic's rate says nothing


@dataclass(frozen=True, kw_only=True)
class ReleaseRates:
    """What one window found."""

    rates: Mapping[str, float]  # {topic: msg/s}, of topics that released anything
    span_s: float


@dataclass(frozen=True)
class _Window:
    incarnation: str
    began_s: float
    at_first: Mapping[str, TopicReport]
    changed: set[str] = field(default_factory=set)  # topics reported since


class ReleaseWindow:
    """Consecutive windows over the reports of one broker."""

    def __init__(self) -> None:
        self._window: _Window | None = None

    def observe(self, reports: BrokerReports, now_s: float) -> ReleaseRates | None:
        """Take the reports known at ``now_s``. Returns None while the window is open, and for the first reports of an
        incarnation."""
        window = self._window
        if window is None or window.incarnation != reports.incarnation:
            self._window = _Window(reports.incarnation, now_s, reports.topics)
            return None
        window.changed.update(reports.changed)
        span_s = now_s - window.began_s
        if span_s < _WINDOW_S:
            return None
        counts = {name: _released(reports.topics, name) - _released(window.at_first, name) for name in window.changed}
        self._window = _Window(reports.incarnation, now_s, reports.topics)
        # A topic that was deleted and made again counts from 0: its difference is negative and says nothing.
        return ReleaseRates(rates={name: count / span_s for name, count in counts.items() if count > 0}, span_s=span_s)


def _released(reports: Mapping[str, TopicReport], name: str) -> int:
    return reports[name].released if name in reports else 0
