"""What a broker may report of a topic. Pure: a report that cannot be is no news, and must not reach any sum."""

from __future__ import annotations

from srtm.control import LatencyMs, TopicLatency, TopicReport
from srtm.wire import is_name

_LARGEST = 2**62  # of any figure: sums and differences of such stay finite as floats


def is_sound(report: TopicReport) -> bool:
    """Whether all figures of ``report`` are ones that a broker can have counted or measured, and all names some that it
    can have: channels are made on the other brokers, too."""
    figures: list[float] = [
        report.share_version,
        report.received,
        report.released,
        report.delayed,
        report.rejected,
        report.undeclared,
        report.backlog,
        report.rate,
        report.burst,
    ]
    periods = [report.last_60s, report.since_start, *([report.recent] if report.recent is not None else [])]
    return (
        all(map(is_name, (report.topic, *report.channels, *report.consumed)))
        and all(0 <= figure <= _LARGEST for figure in figures)
        and -_LARGEST <= report.largest_backlog <= _LARGEST
        and all(_is_sound_period(one) for one in periods)
    )


def _is_sound_period(period: TopicLatency) -> bool:
    return all(map(_is_sound_histogram, (period.access, period.processing, period.consumer_wait, period.total)))


def _is_sound_histogram(one: LatencyMs) -> bool:
    figures = (one.count, one.p50_ms, one.p95_ms, one.p99_ms, one.p999_ms, one.max_ms)
    return all(0 <= figure <= _LARGEST for figure in figures)
