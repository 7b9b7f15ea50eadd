"""What a broker has reported of topics: all of it or as differences, and what it may report. Pure: a report that cannot
be is no news, and must not reach any sum."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from srtm.control import LatencyMs, SyncRequest, TopicLatency, TopicReport
from srtm.protocol import is_name

_LARGEST = 2**62  # of any figure: sums and differences of such stay finite as floats


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What one incarnation of a broker has reported up to its request of that ``number``."""

    incarnation: str
    number: int
    topics: Mapping[str, TopicReport] = field(default_factory=dict)
    changed: Collection[str] = ()  # by that request: topics whose report is another one, or new, or no more
    rechanneled: Collection[str] = ()  # of these: the report names other channels than before, or there was or is none
    ignored: int = 0  # reports of that request that cannot be


def reported(before: Reported | None, request: SyncRequest) -> Reported | None:
    """What is known after ``request``; ``before`` itself if that has no newer reports. None: it has differences from
    what is not known here."""
    last = before if before is not None and before.incarnation == request.incarnation else None
    if last is not None and 0 < request.number <= last.number:
        return before
    if request.reports_since and (last is None or last.number < request.reports_since):
        return None
    known = before.topics if before is not None else {}
    sound = {one.topic: one for one in request.topics if known.get(one.topic) == one or is_sound(one)}
    if request.reports_since:
        told = {*request.gone, *(report.topic for report in request.topics)}
        topics = dict(known)
        for name in told:
            topics.pop(name, None)
        topics.update(sound)
    else:
        told, topics = {*known, *sound}, sound
    changed = [name for name in sorted(told) if known.get(name) != topics.get(name)]
    return Reported(
        incarnation=request.incarnation,
        number=request.number,
        topics=topics,
        changed=changed,
        rechanneled=[name for name in changed if _is_rechanneled(known.get(name), topics.get(name))],
        ignored=len(request.topics) - len(sound),
    )


def _is_rechanneled(before: TopicReport | None, now: TopicReport | None) -> bool:
    """Most reports differ in counts and delays alone."""
    return before is None or now is None or before.channels != now.channels


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
    return (
        _is_sound_histogram(period.access)
        and _is_sound_histogram(period.processing)
        and _is_sound_histogram(period.consumer_wait)
        and _is_sound_histogram(period.total)
    )


def _is_sound_histogram(one: LatencyMs) -> bool:
    """Asked a dozen times of every report that has changed: not as a loop."""
    return (
        0 <= one.count <= _LARGEST
        and 0 <= one.p50_ms <= _LARGEST
        and 0 <= one.p95_ms <= _LARGEST
        and 0 <= one.p99_ms <= _LARGEST
        and 0 <= one.p999_ms <= _LARGEST
        and 0 <= one.max_ms <= _LARGEST
    )
