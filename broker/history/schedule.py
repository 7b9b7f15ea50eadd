"""Decides which bins of which topics a broker reports, and when. Pure.

A topic reports once a second. If its rate of arrivals changes it reports at once, and then four times a second for
three seconds; so it does while messages wait for tokens, and for a second afterwards. A topic without messages is left
out once the end of its traffic was reported. A report that was lost is replaced by one of the present state
(``reports_lost``).

A topic that may report seldom says once that its traffic is steady, and then only renews this (``steadiness``). If few
messages arrive, it is not polled meanwhile: the engine watches it (``polling``) and tells of changes, drift and waiting
messages. If many arrive, the bins tell drift (``drift``) and waiting messages. Where messages wait another split may be
better: such traffic is not steady. Nor is it where a share has changed: whoever moved it goes by what comes there.
"""

from __future__ import annotations

from collections.abc import Collection

from broker.events import RateChanged
from broker.history.bins import Columns, EngineBins, EngineHistories
from broker.history.drift import Drift
from broker.history.phase import TRANSITIONS, Event, Phase
from broker.history.polling import CATCH_UP_BINS, PERIOD_NS, RARE_BINS, Pace, Poll, Polling
from broker.history.steadiness import Steadiness, next_turn_ns
from srtm.control import RateChange, TopicHistory

_PERIOD_NS = 1_000_000_000  # between reports
_CHANGE_PERIOD_NS = 250_000_000  # between reports after a change
_RENEWAL_RETRY_NS = 5_000_000_000  # after renewals were lost
_STEADY_BINS = 10  # in a report of steady traffic; ``RARE_BINS`` if messages are rare
# Messages in those bins. With as many, the topic is polled often: the engine notices an end of traffic only when it is
# polled. With fewer, it takes longer anyway to tell an end from chance.
_FREQUENT_MESSAGES = 20
_CHANGE_BINS = 30  # after a change, reported at the shorter period
_ENGINE_BINS = 128  # kept by the engine: a longer gap means that the broker stood still
_LATE_BINS = 10  # after one in which messages waited, likewise (bench figures split-study)


class _TopicSchedule:
    """One topic: its bins since the latest report, and what the distributor knows of it."""

    def __init__(self, known_until: int, steadiness: Steadiness | None) -> None:
        self.phase = Phase.ACTIVE
        self.version = 0  # of the share in force
        self.known_until = known_until  # number of the first bin that was not added; 0: it was never polled
        self.is_frequent = False  # while it is steady: many messages arrive
        self._steadiness = steadiness  # None: it reports every second
        self._bins = Columns()
        self._drift = Drift()
        self._change_until = 0  # number of a bin
        self._reported_ns = 0

    def add(self, bins: EngineBins) -> None:
        if bins.first != self.known_until:  # the engine does not have the bins between
            self._bins.clear()
        self._bins.add(bins)
        self.version = bins.version
        self.known_until = bins.first + len(bins.arrivals)
        for at, waiting in enumerate(bins.waiting):
            if waiting or bins.delay_ns[at]:
                self._change_until = max(self._change_until, bins.first + at + _LATE_BINS)
                self.disturb(bins.first + at)

    def add_empty(self, until: int) -> None:
        """Add bins without messages for the missing ones before ``until``."""
        bins = until - self.known_until
        if bins <= 0:
            return
        if bins > _ENGINE_BINS:
            self._bins.clear()
            self.known_until = until
            return
        zeros = [0] * bins
        self.add(
            EngineBins(
                topic="",
                version=self.version,
                first=self.known_until,
                arrivals=zeros,
                waiting=zeros,
                unfinished=[0.0] * bins,
                delay_ns=zeros,
                supply=[],
            )
        )

    def add_pause(self, first: int) -> None:
        """Messages arrive again in bin ``first``. The length of the pause tells how rare they are."""
        if self.is_steady(first):
            self.known_until = max(self.known_until, first - RARE_BINS)
            self.add_empty(first)

    def expect(self, first: int) -> None:
        """The topic was polled from bin ``first`` on: earlier bins that are not here are lost."""
        if not (self._bins.arrivals and self._bins.first <= first <= self.known_until):
            self._bins.clear()
            self._bins.first = self.known_until = first

    # Steadiness

    @property
    def may_be_seldom(self) -> bool:
        """Whether it need not report steady traffic."""
        return self._steadiness is not None

    def use(self, steadiness: Steadiness | None) -> None:
        """It may report seldom from now on, or (None) it may not."""
        self._steadiness = steadiness
        self._enter(Event.DISTURBED)

    def update_steadiness(self, until: int) -> None:
        """Judge the bins, which are complete up to ``until``."""
        steadiness, bins = self._steadiness, self._bins
        if steadiness is None:
            return
        if (at := next((at for at, count in enumerate(bins.arrivals) if count), None)) is not None:
            steadiness.begin(bins.first + at)
        if steadiness.is_steady(until) and len(bins.arrivals) >= _STEADY_BINS:
            self.is_frequent = sum(bins.arrivals[-_STEADY_BINS:]) >= _FREQUENT_MESSAGES
            bins.drop(max(len(bins.arrivals) - self._steady_bins, 0))
            if self.phase is Phase.STEADY and self._drift.note(bins.arrivals[-_STEADY_BINS:]):
                self.disturb(until)

    def disturb(self, bin_number: int) -> None:
        """Traffic is not steady in this bin."""
        if self._steadiness is not None:
            self._steadiness.disturb(bin_number)
        self._enter(Event.DISTURBED)

    def is_steady(self, until: int) -> bool:
        return self._steadiness is not None and self._steadiness.is_steady(until)

    def needs_no_report(self, until: int) -> bool:
        """The distributor knows that traffic is steady, and nothing says otherwise."""
        return self.phase is Phase.STEADY and self._change_until <= until

    @property
    def _steady_bins(self) -> int:
        return _STEADY_BINS if self.is_frequent else RARE_BINS

    def renew(self, now_ns: int) -> bool:
        """Whether a renewal is due; it counts as sent."""
        steadiness = self._steadiness
        if steadiness is None or self.phase is not Phase.STEADY or not steadiness.is_renewal_due(now_ns):
            return False
        steadiness.note_sent(now_ns)
        return True

    def renewal_lost(self) -> None:
        if self._steadiness is not None and self.phase is Phase.STEADY:
            self._steadiness.note_renewal_lost()

    # Reports

    def rate_changed(self, version: int, until: int) -> None:
        """The rate changed in a bin not before ``until``, under the share of ``version``."""
        self.version = version
        self.known_until = max(self.known_until, until)  # it may not have been polled
        self._bins.first = self._bins.first if self._bins.arrivals else self.known_until
        self._change_until = until + _CHANGE_BINS
        self.disturb(until)

    def is_due(self, until: int, now_ns: int) -> bool:
        if self.is_steady(until):
            return len(self._bins.arrivals) >= self._steady_bins and self.phase is not Phase.STEADY
        if not self._bins.arrivals:
            return False
        is_changing = until < self._change_until
        return now_ns - self._reported_ns >= (_CHANGE_PERIOD_NS if is_changing else _PERIOD_NS)

    def report(
        self,
        topic: str,
        bin_ns: int,
        wall_offset_ns: int,
        now_ns: int,
        *,
        steady: bool = False,
        change: RateChange | None = None,
    ) -> TopicHistory | None:
        """The report of the bins, which are then removed. None: it says nothing that the distributor does not know."""
        bins = self._bins
        report = TopicHistory(
            topic=topic,
            share_version=self.version,
            first_ns=bins.first * bin_ns + wall_offset_ns,
            arrivals=bins.arrivals,
            waiting=bins.waiting,
            unfinished=bins.unfinished,
            delay_ns=bins.delay_ns if any(bins.delay_ns) else [],
            supply=bins.supply(),
            bin_ns=bin_ns,
            change=change,
            steady=steady,
        )
        bins.clear()
        self._reported_ns = now_ns
        is_empty = not (change or any(report.arrivals) or any(report.waiting) or any(report.unfinished))
        if is_empty and (steady or self.phase is Phase.IDLE):
            return None
        self._enter(_sent(report, is_empty))
        if steady and self._steadiness is not None:
            self._steadiness.note_sent(now_ns)
            self._drift = Drift()
        return report

    def report_lost(self) -> None:
        self._enter(Event.LOST)

    def _enter(self, event: Event) -> None:
        self.phase = TRANSITIONS[event][self.phase]


def _sent(report: TopicHistory, is_empty: bool) -> Event:
    if is_empty:
        return Event.SENT_END
    if report.steady:
        return Event.SENT_STEADY
    goes_on = report.change is not None or report.arrivals[-1] + report.waiting[-1] > 0
    return Event.SENT_TRAFFIC if goes_on else Event.SENT_END


class HistorySchedule:
    """All topics whose histories are reported. ``polling`` says what the engine is asked for."""

    def __init__(self) -> None:
        self.polling = Polling()
        self._wall_offset_ns: int | None = None
        self._bin_ns = PERIOD_NS
        self._topics: dict[str, _TopicSchedule] = {}
        self._renewed_ns = self._renewals_due_ns = 0  # the latest renewals, the next
        self._judged_until = 0  # number of a bin: all active topics were judged
        self._active: dict[str, None] = {}  # topics with something to report, in order

    @property
    def names(self) -> list[str]:
        return list(self._topics)

    def follow(self, topics: Collection[str], seldom: Collection[str] = ()) -> None:
        """Report ``topics`` from now on, and no others. Those in ``seldom`` need not report steady traffic."""
        for gone in self._topics.keys() - set(topics):
            del self._topics[gone]
            self._active.pop(gone, None)
            self.polling.remove(gone)
        seldom_names = set(seldom)
        for name in topics:
            topic, may_be_seldom = self._topics.get(name), name in seldom_names
            if topic is not None and topic.may_be_seldom == may_be_seldom:
                continue
            steadiness = Steadiness(name) if may_be_seldom else None
            if topic is None:
                self._topics[name] = _TopicSchedule(self.polling.until, steadiness)
            else:
                topic.use(steadiness)
                if self.polling.is_watched(name):
                    topic.known_until = 0  # it was not polled
            self._active[name] = None
            self._place(name)

    def due_reports(self, histories: EngineHistories, now_ns: int, poll: Poll | None = None) -> list[TopicHistory]:
        """Take the answer to ``poll`` (None: to one for all topics) and return the reports that are due at ``now_ns``,
        of any clock that does not go back."""
        poll = poll or Poll(self.names, self.polling.until)
        offset_ns = self.add(histories, poll)
        if poll.since > histories.until:
            return []
        reports = []
        judges_all = histories.until >= self._judged_until + CATCH_UP_BINS
        if judges_all:
            self._judged_until = histories.until
        for name in [name for name in poll.topics if name in self._active]:
            topic = self._topics[name]
            if topic.needs_no_report(histories.until) and topic.is_frequent and not judges_all:
                continue
            topic.add_empty(histories.until)  # nothing where the answer has bins
            topic.update_steadiness(histories.until)
            if topic.is_due(histories.until, now_ns):
                steady = topic.is_steady(histories.until)
                report = topic.report(name, histories.bin_ns, offset_ns, now_ns, steady=steady)
                if report is None:
                    del self._active[name]
                else:
                    reports.append(report)
            self._place(name)
        return reports

    def add(self, histories: EngineHistories, poll: Poll) -> int:
        """Take the answer to ``poll`` without reporting. Returns the offset of the wall clock, ns."""
        self.polling.until, self._bin_ns = histories.until, histories.bin_ns
        offset_ns = self._steady_offset(histories)
        if poll.since > histories.until:
            return offset_ns
        for name in poll.topics:
            if self.polling.is_watched(name):
                self._topics[name].expect(poll.since)
        for bins in histories.topics:
            self._add(bins)
        for topic in self._topics.values() if not poll.since else ():
            topic.known_until = topic.known_until or histories.until
        return offset_ns

    def rate_changed(self, event: RateChanged, now_ns: int) -> TopicHistory | None:
        """The report of a change, to be sent at once; None: the topic is not followed. Answer ``polling.catch_up`` of
        the topic before."""
        topic = self._topics.get(event.topic)
        if topic is None or self._wall_offset_ns is None:
            return None
        if event.topic in self._active:
            topic.add_empty(self.polling.until)  # it is not judged at every poll while it is steady
        self._active[event.topic] = None
        topic.rate_changed(event.version, self.polling.until)
        self._place(event.topic)
        change = RateChange(
            since_ns=event.since_ns + self._wall_offset_ns,
            span_ns=event.span_ns,
            arrivals=event.arrivals,
            waiting=event.waiting,
        )
        return topic.report(event.topic, self._bin_ns, self._wall_offset_ns, now_ns, change=change)

    def unsteady(self, name: str) -> None:
        """The engine tells that a watched topic drifts, or that messages wait; or its share has changed. Answer
        ``polling.catch_up`` of the topic before."""
        topic = self._topics.get(name)
        if topic is None or not topic.may_be_seldom:
            return
        self._active[name] = None
        topic.disturb(self.polling.until)
        self._place(name)

    def renewals(self, now_ns: int) -> list[str]:
        """Topics to be renewed at ``now_ns``, of the clock of ``due_reports``."""
        if now_ns < self._renewals_due_ns:
            return []
        self._renewed_ns, self._renewals_due_ns = now_ns, next_turn_ns(now_ns)
        return [name for name, topic in self._topics.items() if topic.renew(now_ns)]

    def renewals_lost(self, topics: Collection[str]) -> None:
        """The renewals of ``topics`` were not taken: they are due again."""
        if topics:
            self._renewals_due_ns = min(self._renewals_due_ns, self._renewed_ns + _RENEWAL_RETRY_NS)
        for name in topics:
            if (topic := self._topics.get(name)) is not None:
                topic.renewal_lost()

    def reports_lost(self, topics: Collection[str]) -> None:
        """The latest reports of ``topics`` were not taken, or are forgotten there: report their present state."""
        for name in topics:
            if (topic := self._topics.get(name)) is not None:
                topic.report_lost()
                self._active[name] = None  # its pace follows with the next answer, which has no gap
        self.polling.poll_watched()

    def _add(self, bins: EngineBins) -> None:
        topic = self._topics.get(bins.topic)
        if topic is None:
            return
        if bins.topic not in self._active:
            self._active[bins.topic] = None
            topic.add_pause(bins.first)
        elif topic.known_until:
            topic.add_empty(bins.first)
            bins = bins.from_bin(topic.known_until)
        if bins.arrivals:
            topic.add(bins)

    def _place(self, name: str) -> None:
        topic = self._topics[name]
        if not topic.may_be_seldom:
            pace = Pace.OFTEN
        elif name not in self._active:
            pace = Pace.SELDOM
        else:
            is_quiet = topic.needs_no_report(self.polling.until) and not topic.is_frequent
            pace = Pace.WATCHED if is_quiet else Pace.OFTEN
        self.polling.place(name, pace)

    def _steady_offset(self, histories: EngineHistories) -> int:
        """The offset of the wall clock, the same until that clock is set: so the bins of two reports follow one another
        to the nanosecond."""
        told_ns, known_ns = histories.wall_offset_ns, self._wall_offset_ns
        if known_ns is None or abs(told_ns - known_ns) > histories.bin_ns // 2:
            self._wall_offset_ns = known_ns = told_ns
        return known_ns
