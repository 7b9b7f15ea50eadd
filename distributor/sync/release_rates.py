"""How fast brokers let messages go, topic by topic, from the counts in their reports. Pure: time is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distributor.sync.report_checks import Reported
from srtm.control import TopicReport

_WINDOW_S = 4.0  # short enough to follow traffic within seconds; over one second a slow topic's rate says nothing


@dataclass(frozen=True, kw_only=True)
class Released:
    """In one window: {topic: msg/s}, of those that let anything go."""

    rates: Mapping[str, float]
    span_s: float


@dataclass
class _Window:
    incarnation: str
    began_s: float
    at_first: Mapping[str, TopicReport]
    changed: set[str] = field(default_factory=set)  # topics of which there was a report since


class Releases:
    """One window after the other, for each broker."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def note(self, broker: str, now: Reported, at_s: float) -> Released | None:
        """What ``broker`` has reported by ``at_s``. None: the window is not over, or another incarnation began it."""
        window = self._windows.get(broker)
        if window is None or window.incarnation != now.incarnation:
            self._windows[broker] = _Window(now.incarnation, at_s, now.topics)
            return None
        window.changed.update(now.changed)
        span_s = at_s - window.began_s
        if span_s < _WINDOW_S:
            return None
        counts = {name: _count(now.topics, name) - _count(window.at_first, name) for name in window.changed}
        self._windows[broker] = _Window(now.incarnation, at_s, now.topics)
        return Released(rates={name: count / span_s for name, count in counts.items() if count > 0}, span_s=span_s)

    def forget(self, broker: str) -> None:
        self._windows.pop(broker, None)


def _count(reports: Mapping[str, TopicReport], name: str) -> int:
    """Messages; below its last value where the topic was made anew, and then that says nothing."""
    return reports[name].released if name in reports else 0
