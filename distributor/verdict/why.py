"""Why a topic is late: the cause, one sentence with its figures, and what to do.

The first finding is the answer; the others stand beside it. Order: brokers that are away, the delay that breaks the
promise (tokens, broker or network), publishers that did not move or have no broker, consumers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from distributor.verdict.kept import Judged, PromiseVerdict, Verdict, latest
from srtm.control import ChannelQueue, LatencyMs, Throttling, TopicReport
from srtm.text import figure, plural
from srtm.topics.spec import Slo

Cause = Literal["bucket", "broker", "consumer", "network", "placement", "nothing"]
Figures = dict[str, float | str | None]

_ADVISED_RATE = 1.1  # r over the traffic: what operators are advised to submit
_BUSY = 0.9  # of what a broker can process
_MIN_FRACTION = 0.005  # of processor time: less is noise
_MIN_MISPLACED = 0.01  # of the traffic at a broker
_NAMES_SHOWN = 5


class BrokerPart(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a topic on one broker. Rates in msg/s, bursts in messages."""

    broker: str
    state: str = "live"  # as ``BrokerView.state``
    is_away: bool = False  # known not to run, or not heard from
    publishers: int = 0  # that belong there
    rate_assigned: float = 0.0  # declared for them
    rate: float = 0.0  # of the share in force
    burst: float = 0.0
    least_rate: float | None = None  # of its shares over the last 60 s; None: not known
    arrival_rate: float | None = None  # that came in the last second told; None: not known
    misplaced_rate: float = 0.0  # of publishers that belong elsewhere
    misplaced: Sequence[str] = ()  # their ids, as far as they are known
    pinned: Sequence[str] = ()  # ids of publishers that stay there although they were told to move
    allocated: float = 0.0  # of all topics on the broker
    mcap: float = 0.0  # that the broker can process
    throttling: Throttling | None = None
    report: TopicReport | None = None

    @property
    def traffic(self) -> float:
        """Msg/s that come, or where that is not known, that are declared."""
        return self.rate_assigned + self.misplaced_rate if self.arrival_rate is None else self.arrival_rate


class TopicFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a topic."""

    name: str
    rate: float  # r, msg/s
    burst: float  # b, messages
    slo: Slo
    mode: str = "static"
    missing_rate: float = 0.0  # msg/s of publishers without a broker
    promise: PromiseVerdict
    parts: Sequence[BrokerPart] = ()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cause."""

    cause: Cause
    sentence: str
    remedy: str  # what to do; "": nothing
    broker: str | None = None  # where it is; null: not at one broker
    figures: Figures = {}


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a topic is late: the finding that counts most, and the others."""

    topic: str
    promise: Verdict
    cause: Cause
    sentence: str
    remedy: str
    broker: str | None
    figures: Figures
    also: list[Finding]


def why(topic: TopicFigures) -> Why:
    """Why ``topic`` is late, or that nothing is to be found."""
    first, *others = [*_findings(topic)] or [_nothing(topic)]
    return Why(
        topic=topic.name,
        promise=topic.promise.verdict,
        cause=first.cause,
        sentence=first.sentence,
        remedy=first.remedy,
        broker=first.broker,
        figures=first.figures,
        also=others,
    )


def _findings(topic: TopicFigures) -> Iterator[Finding]:
    yield from _away(topic)
    judged = topic.promise.decides
    # What came over a link waited for tokens at its own broker.
    part = next((part for part in topic.parts if part.broker == (judged.origin or judged.broker)), None)
    if judged.late and judged.origin is not None and (judged.largest != "access" or part is None):
        yield _link(topic, judged)
    elif part is not None and judged.late:
        match judged.largest:
            case "network":
                yield _network(topic, part, judged)
            case "processing":
                yield _broker(topic, part, judged)
            case _:
                yield _tokens(topic, part, judged)
    if judged.late:
        yield from (_pinned(topic, part) for part in topic.parts if part.pinned)
    if topic.missing_rate > 0:
        yield Finding(
            cause="placement",
            sentence=f"publishers of {figure(topic.missing_rate)} msg/s have no broker: none has room for them",
            remedy="add a broker, or raise --mcap of those that can process more",
            figures={"missing_rate": topic.missing_rate},
        )
    for part in topic.parts:
        if part.report is not None and not part.is_away:
            yield from _consumers(topic, part, part.report)


def _nothing(topic: TopicFigures) -> Finding:
    word = "the promise is kept" if topic.promise.verdict == "kept" else "whether the promise is kept is not known"
    return Finding(cause="nothing", sentence=f"{word}: {topic.promise.reason}", remedy="")


# Publishers


def _away(topic: TopicFigures) -> Iterator[Finding]:
    """Brokers that do not run and to which publishers belong."""
    for part in topic.parts:
        if not (part.is_away and part.publishers):
            continue
        whose = f"{part.publishers:,} {plural(part.publishers, 'publisher')}"
        yield Finding(
            cause="placement",
            broker=part.broker,
            sentence=f"{part.broker} is {part.state}, and {whose} belong there: what they send has no broker",
            remedy=f"start {part.broker} again; if it is gone for good: `srtm brokers dead {part.broker}`, then "
            f"`srtm brokers forget {part.broker}`",
            figures={"publishers": part.publishers, "rate": part.rate_assigned},
        )


def _pinned(topic: TopicFigures, part: BrokerPart) -> Finding:
    """They count as placed there, so no layout takes them elsewhere."""
    whose = f"{len(part.pinned):,} {plural(len(part.pinned), 'publisher')}"
    stay = "stays" if len(part.pinned) == 1 else "stay"
    return Finding(
        cause="placement",
        broker=part.broker,
        sentence=f"{whose} did not move when told, and {stay} at {part.broker}{_listed(part.pinned)}",
        remedy=f"connect them anew where `srtm topic publishers {topic.name}` says: whoever reconnects is asked again",
        figures={"pinned": len(part.pinned)},
    )


def _listed(ids: Sequence[str]) -> str:
    names, more = ", ".join(ids[:_NAMES_SHOWN]), len(ids) - _NAMES_SHOWN
    return f" ({names}{f' and {more:,} more' if more > 0 else ''})" if names else ""


# Tokens


def _tokens(topic: TopicFigures, part: BrokerPart, judged: Judged) -> Finding:
    """Messages wait for tokens: too few for the topic, too few at one broker, or too few at once."""
    late = f"messages wait {_ms(judged.access_ms)} for tokens at {part.broker}"
    whole = _topic_traffic(topic)
    known: Figures = {
        "access_ms": judged.access_ms,
        "share_rate": part.rate,
        "share_burst": part.burst,
        "traffic": part.traffic,
        "topic_rate": topic.rate,
        "topic_traffic": whole,
        "backlog": part.report.backlog if part.report else None,
    }
    verb = "come" if part.arrival_rate is not None else "are declared"
    if whole > topic.rate:
        enough = _ADVISED_RATE * whole
        return Finding(
            cause="bucket",
            broker=part.broker,
            sentence=f"{late}: {figure(whole)} msg/s {verb} to all brokers, and r is {figure(topic.rate)} msg/s",
            remedy=f"raise rate to {figure(enough)} msg/s, or let publishers send less",
            figures={**known, "enough_rate": enough},
        )
    if part.traffic > part.rate:
        if part.misplaced_rate > _MIN_MISPLACED * part.traffic:
            return _misplaced(topic, part, late, known)
        return Finding(
            cause="bucket",
            broker=part.broker,
            sentence=f"{late}: {figure(part.traffic)} msg/s {verb} there, and its share is {figure(part.rate)} of "
            f"{figure(topic.rate)} msg/s",
            remedy=_share_remedy(topic),
            figures={**known, "enough_share_rate": _ADVISED_RATE * part.traffic},
        )
    if part.least_rate is not None and part.least_rate < min(part.rate, _traffic_within_the_minute(part)):
        return _catching_up(part, late, known)
    return _bursts(topic, part, late, known)


def _traffic_within_the_minute(part: BrokerPart) -> float:
    """Msg/s: the last second's, or the mean of the last 60 s where that is more, for instance once all have stopped."""
    let_go = part.report.last_60s.access.count / 60.0 if part.report else 0.0
    return max(part.traffic, let_go)


def _topic_traffic(topic: TopicFigures) -> float:
    """Msg/s that come to all brokers; where no broker tells, that are declared. One that tells of none has none."""
    told = [part.arrival_rate for part in topic.parts if part.arrival_rate is not None]
    return sum(told) if told else sum(part.rate_assigned for part in topic.parts)


def _catching_up(part: BrokerPart, late: str, known: Figures) -> Finding:
    """The share was too small and is not any more."""
    waiting, spare = part.report.backlog if part.report else 0, part.rate - part.traffic
    drained_s = waiting / spare if spare > 0 else None
    gone = "" if not waiting or drained_s is None else f"; {waiting:,} messages still wait, for {figure(drained_s)} s"
    is_misplaced = part.misplaced_rate > _MIN_MISPLACED * part.traffic
    who = f"; {_who(part)}" if is_misplaced else ""
    return Finding(
        cause="placement" if is_misplaced else "bucket",
        broker=part.broker,
        sentence=f"{late}: its share was {figure(part.least_rate or 0.0)} msg/s within the last 60 s, less than came; "
        f"it is {figure(part.rate)} msg/s now{gone}{who}",
        remedy="nothing now: ask again in a minute",
        figures={**known, "least_share_rate": part.least_rate, "drained_in_s": drained_s},
    )


def _bursts(topic: TopicFigures, part: BrokerPart, late: str, known: Figures) -> Finding:
    """The rate suffices; what comes at once does not fit.

    The unfinished work U = b - tokens + waiting of the last 60 s does not depend on b. A message waits (U - b) / r, so
    the promise is kept with b >= U - r * latency.
    """
    largest = part.report.largest_backlog if part.report else 0.0
    enough = max(part.burst, largest - part.rate * topic.slo.latency_ms / 1e3)
    figures = {**known, "largest_backlog": largest, "enough_share_burst": enough}
    if enough <= part.burst:
        return Finding(
            cause="bucket",
            broker=part.broker,
            sentence=f"{late}, but rate and burst sufficed over the last 60 s: what waited came before",
            remedy="ask again after a minute of traffic",
            figures=figures,
        )
    enough_of_topic = topic.burst - part.burst + enough
    return Finding(
        cause="bucket",
        broker=part.broker,
        sentence=f"{late}: up to {figure(largest)} messages more came there than r let go, and its burst is "
        f"{figure(part.burst)}",
        remedy=f"raise burst to {figure(enough_of_topic)}; `srtm topic plan FILE` says what that does",
        figures={**figures, "enough_burst": enough_of_topic},
    )


def _misplaced(topic: TopicFigures, part: BrokerPart, late: str, known: Figures) -> Finding:
    return Finding(
        cause="placement",
        broker=part.broker,
        sentence=f"{late}: {_who(part)}, and its share is {figure(part.rate)} of {figure(topic.rate)} msg/s",
        remedy=f"connect them where `srtm topic publishers {topic.name}` says; else {_share_remedy(topic)}",
        figures={**known, "misplaced_rate": part.misplaced_rate, "misplaced": len(part.misplaced)},
    )


def _who(part: BrokerPart) -> str:
    listed = _listed(part.misplaced)
    return f"{figure(part.misplaced_rate)} msg/s come there from publishers that belong elsewhere{listed}"


def _share_remedy(topic: TopicFigures) -> str:
    if topic.mode == "static":
        return f"let shares follow the traffic: `srtm topic set {topic.name} --mode fitted`"
    return f"mode {topic.mode} is to move tokens there: `srtm topic show {topic.name}` has its latest changes"


# Brokers and the network


def _broker(topic: TopicFigures, part: BrokerPart, judged: Judged) -> Finding:
    late = f"processing takes {_ms(judged.processing_ms)} at {part.broker}"
    machine = part.throttling or Throttling()
    known: Figures = {
        "processing_ms": judged.processing_ms,
        "allocated": part.allocated,
        "mcap": part.mcap,
        "throttled_share": machine.throttled_share,
        "steal_share": machine.steal_share,
    }
    now = latest(topic.slo, {part.broker: part.report}) if part.report is not None else None
    if machine.throttled_share >= _MIN_FRACTION:
        quota = "a quota" if machine.quota_cores is None else f"a quota of {machine.quota_cores:g} cores"
        told = f"{quota} holds its process back in {machine.throttled_share:.0%} of its periods"
        remedy = "raise the CPU quota of its control group"
    elif machine.steal_share >= _MIN_FRACTION:
        told = f"its host gives {machine.steal_share:.0%} of the processor time to other virtual machines"
        remedy = "move the broker to another host"
    elif now is not None and now.processing_ms is not None and not now.late:
        told = f"it took {_ms(now.processing_ms)} over the last 5 to 10 s, and what waited there is gone"
        remedy = "nothing now: ask again in a minute"
    elif part.mcap and part.allocated >= _BUSY * part.mcap:
        told = f"it carries {figure(part.allocated)} of {figure(part.mcap)} msg/s"
        remedy = "add a broker, or drain this one"
    else:
        told = f"it carries {figure(part.allocated)} of {figure(part.mcap)} msg/s, and nothing holds its process back"
        remedy = f"measure what it can process: `srtm capacity bench {part.broker} --slo {_slo(topic.slo)}`"
    return Finding(cause="broker", broker=part.broker, sentence=f"{late}: {told}", remedy=remedy, figures=known)


def _network(topic: TopicFigures, part: BrokerPart, judged: Judged) -> Finding:
    return Finding(
        cause="network",
        broker=part.broker,
        sentence=f"the network to and from {part.broker} takes {_ms(judged.network_ms)} of the "
        f"{topic.slo.latency_ms:g} ms promised",
        remedy="place brokers nearer to publishers and consumers, or promise more",
        figures={"network_ms": judged.network_ms, "access_ms": judged.access_ms, "processing_ms": judged.processing_ms},
    )


def _link(topic: TopicFigures, judged: Judged) -> Finding:
    """MQTT's subscribers at another broker get messages late."""
    way = f"from {judged.origin} to subscribers at {judged.broker}"
    known: Figures = {
        "origin": judged.origin,
        "network_ms": judged.network_ms,
        "access_ms": judged.access_ms,
        "processing_ms": judged.processing_ms,
    }
    if judged.largest == "network":
        return Finding(
            cause="network",
            broker=judged.broker,
            sentence=f"the link {way} takes {_ms(judged.network_ms)} of the {topic.slo.latency_ms:g} ms promised",
            remedy=f"have subscribers connect to {judged.origin}, or promise more",
            figures=known,
        )
    return Finding(
        cause="broker",
        broker=judged.broker,
        sentence=f"processing takes {_ms(judged.processing_ms)} {way}, at both brokers and while their link was away",
        remedy=f"see `a link has ended` in the log of {judged.broker}; have subscribers connect to {judged.origin}",
        figures=known,
    )


# Consumers


def _consumers(topic: TopicFigures, part: BrokerPart, report: TopicReport) -> Iterator[Finding]:
    if report.depth:
        yield _unread(part.broker, report)
    for queue in report.queues:
        if queue.depth:
            found = _queue(topic, part.broker, queue, report.last_60s.consumer_wait)
            if found is not None:
                yield found


def _messages_wait(count: int) -> str:
    return "1 message waits" if count == 1 else f"{count:,} messages wait"


def _unread(broker: str, report: TopicReport) -> Finding:
    """Messages that the bucket let go and that no channel has."""
    waits = f"{_messages_wait(report.depth)} at {broker}"
    if report.channels:
        sentence, remedy = f"{waits}: the topic is paused there", f"POST /topic/unpause?topic={report.topic} there"
    else:
        sentence, remedy = f"{waits}: nobody ever subscribed, no channel exists", "start a consumer"
    return Finding(cause="consumer", broker=broker, sentence=sentence, remedy=remedy, figures={"depth": report.depth})


def _queue(topic: TopicFigures, broker: str, queue: ChannelQueue, wait: LatencyMs) -> Finding | None:
    """None: its consumers keep up."""
    waits = f"{_messages_wait(queue.depth)} in channel {queue.channel} at {broker}"
    figures: Figures = {
        "channel": queue.channel,
        "depth": queue.depth,
        "in_flight": queue.in_flight,
        "consumers": queue.consumers,
        "consumer_wait_p99_ms": wait.p99_ms if wait.count else None,
    }
    if queue.paused:
        told = "the channel is paused"
        remedy = f"POST /channel/unpause?topic={topic.name}&channel={queue.channel} there"
    elif not queue.consumers:
        told, remedy = "no consumer is connected", "start its consumer, or delete the channel"
    elif not queue.in_flight:
        told = f"{queue.consumers:,} {plural(queue.consumers, 'consumer')} gave this broker no credit (RDY 0)"
        remedy = "raise max_in_flight to at least the number of brokers"
    elif wait.count and wait.p99_ms > topic.slo.latency_ms:
        told = f"{queue.consumers:,} {plural(queue.consumers, 'consumer')} did not keep up: p99 {_ms(wait.p99_ms)}"
        remedy = "add consumers, or raise max_in_flight"
    else:
        return None
    return Finding(cause="consumer", broker=broker, sentence=f"{waits}: {told}", remedy=remedy, figures=figures)


def _ms(value: float | None) -> str:
    return "without end" if value is None else f"{figure(value)} ms"


def _slo(slo: Slo) -> str:
    return f"p{slo.percentile:g}:{slo.latency_ms:g}ms"
