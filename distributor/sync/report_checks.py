"""The topic reports of a broker: received in full or as a delta, and checked. Pure.

A report that no broker can have made is ignored, so that it reaches no sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from srtm.control import ChannelQueue, LatencyMs, LinkLatency, SyncRequest, TopicLatency, TopicReport
from srtm.protocol import is_name

_LARGEST = 2**62  # of any figure: sums and differences of such stay finite as floats


@dataclass(frozen=True, kw_only=True)
class BrokerReports:
    """What one incarnation of a broker has reported up to the request with this ``number``."""

    incarnation: str
    number: int
    topics: Mapping[str, TopicReport] = field(default_factory=dict)
    changed: Collection[str] = ()  # topics whose report that request changed, added or removed
    rechanneled: Collection[str] = ()  # those of them whose report names other channels than before
    ignored: int = 0  # reports of that request that cannot be right


def merge_reports(before: BrokerReports | None, request: SyncRequest) -> BrokerReports | None:
    """The reports known after ``request``.

    Returns ``before`` itself if the request has no newer reports, and None if it is a delta to reports that are not
    known here: then the broker has to send all of them.
    """
    last = before if before is not None and before.incarnation == request.incarnation else None
    if last is not None and 0 < request.number <= last.number:
        return before
    if request.reports_since and (last is None or last.number < request.reports_since):
        return None
    known = before.topics if before is not None else {}
    sound = {report.topic: report for report in request.topics if known.get(report.topic) == report or is_sound(report)}
    if request.reports_since:
        named = {*request.gone, *(report.topic for report in request.topics)}
        topics = {name: report for name, report in known.items() if name not in named}
        topics.update(sound)
    else:
        named, topics = {*known, *sound}, sound
    changed = [name for name in sorted(named) if known.get(name) != topics.get(name)]
    return BrokerReports(
        incarnation=request.incarnation,
        number=request.number,
        topics=topics,
        changed=changed,
        rechanneled=[name for name in changed if _is_rechanneled(known.get(name), topics.get(name))],
        ignored=len(request.topics) - len(sound),
    )


def _is_rechanneled(before: TopicReport | None, now: TopicReport | None) -> bool:
    """Whether the channels changed. Most reports differ in counters and latencies only."""
    return before is None or now is None or before.channels != now.channels


def is_sound(report: TopicReport) -> bool:
    """Whether a broker can have counted or measured every figure of ``report``, and can have every name in it.

    Names matter because channels are created on the other brokers, too.
    """
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
        report.depth,
        report.network_ms or 0.0,
        *report.consumers,
        *report.mqtt_refused,
        *report.mqtt_dropped,
    ]
    periods = [report.last_60s, report.since_start, *([report.recent] if report.recent is not None else [])]
    return (
        all(map(is_name, (report.topic, *report.channels, *report.consumed)))
        and all(0 <= figure <= _LARGEST for figure in figures)
        and -_LARGEST <= report.largest_backlog <= _LARGEST
        and all(len(by_qos) in (0, 3) for by_qos in (report.mqtt_refused, report.mqtt_dropped))
        and all(map(_is_sound_period, periods))
        and all(map(_is_sound_queue, report.queues))
    )


def is_sound_link(link: LinkLatency) -> bool:
    """The same of what came over a link."""
    periods = [link.last_60s, link.since_start, *([link.recent] if link.recent is not None else [])]
    return is_name(link.topic) and 0 <= (link.network_ms or 0.0) <= _LARGEST and all(map(_is_sound_period, periods))


def is_sound_full(topic: str, full: Mapping[str, int]) -> bool:
    """The same of deliveries that were dropped where MQTT's sessions and groups were full."""
    return is_name(topic) and all(0 <= count <= _LARGEST for count in full.values())


def _is_sound_queue(queue: ChannelQueue) -> bool:
    return is_name(queue.channel) and all(0 <= n <= _LARGEST for n in (queue.depth, queue.in_flight, queue.consumers))


def _is_sound_period(period: TopicLatency) -> bool:
    return (
        _is_sound_histogram(period.access)
        and _is_sound_histogram(period.processing)
        and _is_sound_histogram(period.consumer_wait)
        and _is_sound_histogram(period.total)
    )


def _is_sound_histogram(latency: LatencyMs) -> bool:
    """Called a dozen times for every changed report: written out, because a loop over the fields is slower."""
    return (
        0 <= latency.count <= _LARGEST
        and 0 <= latency.p50_ms <= _LARGEST
        and 0 <= latency.p95_ms <= _LARGEST
        and 0 <= latency.p99_ms <= _LARGEST
        and 0 <= latency.p999_ms <= _LARGEST
        and 0 <= latency.max_ms <= _LARGEST
    )
