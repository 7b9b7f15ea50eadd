"""Whether a topic's promise is kept: kept, broken, or unknown with the reason.

The promise is judged at each broker: access delay + processing + network. The worst broker with at least 1 % of the
messages decides. A broker reports percentiles of each delay, not of their sum. The sum of the percentiles stands for
it, and the percentile of the total bounds it: that holds the consumer wait too. MQTT's subscribers at another broker
get messages over a link: each way from a broker to another one is judged likewise, and the worst of all decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from srtm.control import LatencyMs, LinkLatency, TopicLatency, TopicReport
from srtm.text import figure
from srtm.topics.spec import Slo

Verdict = Literal["kept", "broken", "unknown"]
Delay = Literal["access", "processing", "network"]
Links = Mapping[str, Sequence[LinkLatency]]  # {broker: how a topic's messages came there over links}
_NO_LINKS: Links = {}

_LEAST_LATE = 5  # messages that may be late in a period that says something
_WINDOW_S = 60.0  # of ``last_60s``
_RECENT_S = 5.0  # of ``recent``, at least
_LEAST_PART = 0.01  # of a topic's messages: a broker with fewer does not decide
_GRAVITY: dict[Verdict, int] = {"kept": 0, "unknown": 1, "broken": 2}

# {percentile: the reported percentiles next to it, below and above}
_REPORTED = {
    50: ("p50_ms", "p50_ms"),
    90: ("p50_ms", "p95_ms"),
    95: ("p95_ms", "p95_ms"),
    99: ("p99_ms", "p99_ms"),
    99.9: ("p999_ms", "p999_ms"),
}


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one period, and the figures of the broker that decides, at the percentile of the promise."""

    verdict: Verdict
    reason: str
    messages: int  # let go by all brokers, and waiting for tokens now
    late: bool = False  # its latency is above the promise, also where messages are too few for a verdict
    broker: str | None = None  # null: none decides
    origin: str | None = None  # of messages that came from this broker over a link; null: of those let go at ``broker``
    latency_ms: float | None = None  # that the promise is about; null: not known, or without end
    access_ms: float | None = None
    processing_ms: float | None = None
    network_ms: float | None = None  # null: not known; it counts as 0
    consumer_wait_ms: float | None = None  # beside the promise
    largest: Delay | None = None  # part of ``latency_ms``


class PromiseVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The word on a promise. The last 60 s decide if they have enough messages, else the time since the start."""

    verdict: Verdict
    reason: str
    last_60s: Judged
    since_start: Judged

    @property
    def decides(self) -> Judged:
        """The period that ``verdict`` is about."""
        return self.since_start if self.last_60s.verdict == "unknown" != self.verdict else self.last_60s


def least_messages(slo: Slo) -> int:
    """How many messages a period must have for a verdict: five of them may be late."""
    return round(_LEAST_LATE * 100 / (100 - slo.percentile))


def promise_verdict(slo: Slo, reports: Mapping[str, TopicReport], links: Links = _NO_LINKS) -> PromiseVerdict:
    """The verdict on a topic. ``reports``: {broker: its latest}, of brokers that are heard."""
    ways = [(home, link) for home, each in links.items() for link in each]
    last = _judged(
        slo,
        [_at_broker(slo, name, report, report.last_60s, _WINDOW_S) for name, report in reports.items()],
        [_over_link(slo, home, link, link.last_60s) for home, link in ways],
    )
    whole = _judged(
        slo,
        [_at_broker(slo, name, report, report.since_start, math.inf) for name, report in reports.items()],
        [_over_link(slo, home, link, link.since_start) for home, link in ways],
    )
    if last.verdict == "unknown" != whole.verdict:
        reason = f"since the start: {whole.reason} (last 60 s: {last.reason})"
        return PromiseVerdict(verdict=whole.verdict, reason=reason, last_60s=last, since_start=whole)
    return PromiseVerdict(verdict=last.verdict, reason=f"last 60 s: {last.reason}", last_60s=last, since_start=whole)


def latest(slo: Slo, reports: Mapping[str, TopicReport], links: Links = _NO_LINKS) -> Judged:
    """The verdict on the last 5 to 10 s. ``reports``: {broker: its latest}; brokers without it do not count."""
    told = {name: (report, report.recent) for name, report in reports.items() if report.recent is not None}
    over_links = [(home, link, link.recent) for home, each in links.items() for link in each if link.recent is not None]
    return _judged(
        slo,
        [_at_broker(slo, name, report, recent, _RECENT_S) for name, (report, recent) in told.items()],
        [_over_link(slo, home, link, recent) for home, link, recent in over_links],
    )


def _judged(slo: Slo, brokers: Sequence[Judged], links: Sequence[Judged]) -> Judged:
    """The verdict of the worst broker or link, if there are enough messages. What came over a link was let go at its
    own broker: it counts once."""
    messages, enough = sum(broker.messages for broker in brokers), least_messages(slo)
    least = max(_LEAST_PART * messages, enough / _LEAST_LATE)  # of fewer the percentile is the maximum
    large = [each for each in (*brokers, *links) if each.messages >= least]
    candidates = large or [each for each in (*brokers, *links) if each.messages]
    if not candidates:
        reason = "no message came" if brokers else "no broker reports the topic"
        return Judged(verdict="unknown", reason=reason, messages=0)
    worst = max(candidates, key=_badness)
    if messages < enough or not large:
        few = f"{messages:,} messages are too few: {enough:,} are needed"
        few = few if messages < enough else f"no broker has {enough // _LEAST_LATE:,} messages"
        return msgspec.structs.replace(worst, verdict="unknown", reason=few, messages=messages)
    return msgspec.structs.replace(worst, messages=messages)


def _badness(broker: Judged) -> tuple[int, float]:
    latency_ms = math.inf if broker.latency_ms is None and broker.late else broker.latency_ms or 0.0
    return _GRAVITY[broker.verdict], latency_ms


class _Delays(NamedTuple):
    """One percentile of a period, ms."""

    access: float
    processing: float
    network: float
    promised: float  # their sum, as far as it is known


def _at_broker(slo: Slo, broker: str, report: TopicReport, period: TopicLatency, period_s: float) -> Judged:
    """The verdict on one broker, whatever number of messages it has."""
    below, above = (_delays(report, period, name) for name in _REPORTED[slo.percentile])
    has_consumer = period.processing.count > 0
    messages = (period.access.count or _unread(report, period_s)) + report.backlog
    wait_ms = _wait_ms(slo, report, messages)
    at = f"at {broker}"
    if wait_ms is not None and wait_ms > max(above.promised, slo.latency_ms):
        endless = math.isinf(wait_ms)
        tokens = "there are no tokens" if endless else f"tokens come at {figure(report.rate)} msg/s"
        return Judged(
            verdict="broken",
            reason=f"{report.backlog:,} messages wait {at}, where {tokens}",
            messages=messages,
            late=True,
            broker=broker,
            latency_ms=None if endless else wait_ms,
            access_ms=None if endless else wait_ms,
            processing_ms=above.processing if has_consumer else None,
            network_ms=report.network_ms,
            consumer_wait_ms=_consumer_wait_ms(slo, period),
            largest="access",
        )
    verdict, reason = _verdict(slo, below, above, at, has_consumer)
    return Judged(
        verdict=verdict,
        reason=reason,
        messages=messages,
        late=above.promised > slo.latency_ms,
        broker=broker,
        latency_ms=above.promised,
        access_ms=above.access,
        processing_ms=above.processing if has_consumer else None,
        network_ms=report.network_ms,
        consumer_wait_ms=_consumer_wait_ms(slo, period),
        largest=_largest(above),
    )


def _over_link(slo: Slo, home: str, link: LinkLatency, period: TopicLatency) -> Judged:
    """The verdict on messages of ``link.origin`` for subscribers at ``home``."""
    report = TopicReport(topic=link.topic, share_version=0, network_ms=link.network_ms)
    judged = _at_broker(slo, f"{home} of messages from {link.origin}", report, period, math.inf)
    return msgspec.structs.replace(judged, broker=home, origin=link.origin)


def _verdict(slo: Slo, below: _Delays, above: _Delays, at: str, has_consumer: bool) -> tuple[Verdict, str]:
    told = f"p{slo.percentile:g} {figure(above.promised)} ms {at}, promised {slo.latency_ms:g} ms"
    if below.promised > slo.latency_ms:
        return "broken", told
    if above.promised > slo.latency_ms:
        return (
            "unknown",
            f"p{slo.percentile:g} {at} is between {figure(below.promised)} and {figure(above.promised)} ms",
        )
    if not has_consumer:
        return "unknown", f"no consumer took what came {at}: processing is not known"
    return "kept", told


def _delays(report: TopicReport, period: TopicLatency, name: str) -> _Delays:
    access, processing, network = _at(period.access, name), _at(period.processing, name), report.network_ms or 0.0
    both = access + processing
    if period.total.count:
        both = min(both, max(access, processing, _at(period.total, name)))
    return _Delays(access, processing, network, both + network)


def _unread(report: TopicReport, period_s: float) -> int:
    """Messages that the bucket let go and nobody took, at most those that its rate lets go in the period: no histogram
    has them."""
    waiting = report.depth + max((queue.depth for queue in report.queues), default=0)
    return min(waiting, round(report.rate * period_s + report.burst)) if math.isfinite(period_s) else waiting


def _wait_ms(slo: Slo, report: TopicReport, messages: int) -> float | None:
    """How long the messages that wait for tokens now will have waited at the percentile, under the rate in force.

    None: no more wait than may be late.
    """
    beyond = report.backlog - messages * (100 - slo.percentile) / 100
    if beyond <= 0:
        return None
    return beyond / report.rate * 1000 if report.rate > 0 else math.inf


def _consumer_wait_ms(slo: Slo, period: TopicLatency) -> float | None:
    return _at(period.consumer_wait, _REPORTED[slo.percentile][1]) if period.consumer_wait.count else None


def _at(latency: LatencyMs, name: str) -> float:
    value: float = getattr(latency, name)
    return value


def _largest(delays: _Delays) -> Delay:
    if delays.network > max(delays.access, delays.processing):
        return "network"
    return "access" if delays.access >= delays.processing else "processing"
