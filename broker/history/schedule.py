"""Histories as a broker sends them: which bins of which topics are due. Pure.

Every topic that is followed reports once a second; at once when the engine says that its rate of arrivals has changed,
with what came since, before the bin is over; and four times a second from then on for some seconds, as also while
messages wait for tokens at the beginning of every bin. A topic to which nothing was since its last report is left out,
once that its traffic ended was told; and what was not taken is told anew (``untell``), as it is then.
A topic that may be told seldom says when its traffic has become steady, and then only that it still is, without bins
(``steadiness``); if little
comes its bins are not looked at then (``asking``), and all is left to the engine's word: that traffic has changed, or
that it drifts, or that messages wait. Where much comes the bins say the latter two (``drift``).
"""

from __future__ import annotations

from collections.abc import Collection

from broker.events import Moved
from broker.history.bins import Columns, EngineBins, EngineHistories
from broker.history.drift import Drift
from broker.history.polling import FAR_BINS, LOOK_BINS, PERIOD_NS, Asking, Pace, Question
from broker.history.steadiness import Steadiness, next_turn_ns
from srtm.control import RateChange, TopicHistory

_SELDOM_NS = 1_000_000_000
_OFTEN_NS = 250_000_000
_RENEWALS_NS = 5_000_000_000  # until another look for topics to be named as still steady, where that came to nobody
_STEADY_BINS = 10  # that a report of steady traffic has; where little comes ``FAR_BINS``
# Messages in those. With as many their end is looked for often: an engine to which nothing comes sees only when it is
# asked that nothing comes. With fewer it takes longer anyway until that can be told from chance.
_MUCH = 20
_MOVING_BINS = 30  # how long a change is followed closely
_LONGEST_GAP_BINS = 128  # so many the engine keeps: more is a broker that stood still
_QUEUE_BINS = 3  # in so many bins in a row something waited at the beginning: it is no passing burst


class _Followed:
    """One topic: its bins since the last report."""

    def __init__(self, known_until: int, steadiness: Steadiness | None) -> None:
        self._bins = Columns()
        self.steadiness = steadiness  # None: it is told every second
        self.version = 0
        self.moving_until = 0  # number of a bin
        self.reported_ns = 0
        self.known_until = known_until  # number of the first bin that was not added; 0: nobody asked yet
        self.has_much = False  # while it is steady
        self._drift = Drift()
        self.owes_end = True  # nobody was told yet that nothing comes
        self._queued = 0  # bins in a row that began with something waiting

    def add(self, bins: EngineBins) -> None:
        if bins.first != self.known_until:  # what the engine keeps does not go back as far
            self._bins.clear()
        self._bins.add(bins)
        self.version = bins.version
        self.known_until = bins.first + len(bins.arrivals)
        for at, waiting in enumerate(bins.waiting):
            self._queued = self._queued + 1 if waiting else 0
            if self._queued >= _QUEUE_BINS:
                self.moving_until = bins.first + at + _MOVING_BINS

    def look_at_steadiness(self, until: int) -> None:
        """After all bins before ``until`` were added."""
        if self.steadiness is None:
            return
        if (at := next((at for at, count in enumerate(self._bins.arrivals) if count), None)) is not None:
            self.steadiness.begin(self._bins.first + at)
        if self.moving_until > until:
            self.steadiness.disturb(self.moving_until - _MOVING_BINS)
        elif self.steadiness.is_steady(until) and len(self._bins.arrivals) >= _STEADY_BINS:
            self.has_much = sum(self._bins.arrivals[-_STEADY_BINS:]) >= _MUCH
            self._bins.drop(max(len(self._bins.arrivals) - self._told_bins, 0))
            if self.steadiness.is_known and self._drift.note(self._bins.arrivals[-_STEADY_BINS:]):
                self.steadiness.disturb(until)

    @property
    def _told_bins(self) -> int:
        return _STEADY_BINS if self.has_much else FAR_BINS

    def is_resting(self, until: int) -> bool:
        """It is known to be steady, and nothing says otherwise."""
        return self.steadiness is not None and self.steadiness.is_known and self.moving_until <= until

    def begin_at(self, first: int) -> None:
        """Bins from that one on were asked for, and none before unless they are here."""
        if not (self._bins.arrivals and self._bins.first <= first <= self.known_until):
            self._bins.clear()
            self._bins.first = self.known_until = first

    def wake(self, first: int) -> None:
        """After some time in which nothing came; how long that was says how rare messages are."""
        if self.is_steady(first):
            self.known_until = max(self.known_until, first - FAR_BINS)
            self.add_nothing(first)

    def is_steady(self, until: int) -> bool:
        return self.steadiness is not None and self.steadiness.is_steady(until)

    def add_nothing(self, until: int) -> None:
        """Up to bin ``until``, where bins are missing."""
        bins = until - self.known_until
        if bins <= 0:
            return
        if bins > _LONGEST_GAP_BINS:
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

    def renew(self, now_ns: int) -> bool:
        """Whether it is to be named as still steady now; it counts as named then."""
        if self.steadiness is None or not self.steadiness.is_to_renew(now_ns):
            return False
        self.steadiness.tell(now_ns)
        return True

    def move(self, version: int, until: int) -> None:
        """Its rate has changed, in a bin that is not before ``until``, under the share of ``version``."""
        self.version = version
        self.known_until = max(self.known_until, until)  # it slept
        self._bins.first = self._bins.first if self._bins.arrivals else self.known_until
        self.moving_until = until + _MOVING_BINS
        if self.steadiness is not None:
            self.steadiness.disturb(until)

    def is_due(self, until: int, now_ns: int) -> bool:
        if self.steadiness is not None and self.steadiness.is_steady(until):
            return len(self._bins.arrivals) >= self._told_bins and not self.steadiness.is_known
        if not self._bins.arrivals:
            return False
        often = until < self.moving_until
        return now_ns - self.reported_ns >= (_OFTEN_NS if often else _SELDOM_NS)

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
        """None: nothing was, and that is known."""
        bins = self._bins
        said = TopicHistory(
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
        self._bins.clear()
        self.reported_ns = now_ns
        is_empty = not (change or any(said.arrivals) or any(said.waiting) or any(said.unfinished))
        if is_empty and (steady or not self.owes_end):
            return None
        self.owes_end = not is_empty and (change is not None or steady or said.arrivals[-1] + said.waiting[-1] > 0)
        if steady and self.steadiness is not None:
            self.steadiness.tell(now_ns)
            self._drift = Drift()
        return said


class Followed:
    """All topics that are followed. ``asking``: what the engine is to be asked."""

    def __init__(self) -> None:
        self.asking = Asking()
        self._wall_offset_ns: int | None = None
        self._bin_ns = PERIOD_NS
        self._topics: dict[str, _Followed] = {}
        self._renewed_ns = self._renewals_due_ns = 0  # the latest look, the next
        self._looked_until = 0  # number of a bin: at all that are awake
        self._awake: dict[str, None] = {}  # those that have anything to say, in order

    @property
    def names(self) -> list[str]:
        return list(self._topics)

    def follow(self, topics: Collection[str], seldom: Collection[str] = ()) -> None:
        """``seldom``: those of ``topics`` that need not be told while their traffic is steady."""
        for gone in self._topics.keys() - set(topics):
            del self._topics[gone]
            self._awake.pop(gone, None)
            self.asking.remove(gone)
        told_seldom = set(seldom)
        for name in topics:
            if name not in self._topics:
                self._topics[name] = _Followed(self.asking.until, Steadiness(name) if name in told_seldom else None)
            elif (self._topics[name].steadiness is not None) != (name in told_seldom):
                self._topics[name].steadiness = Steadiness(name) if name in told_seldom else None
                if self.asking.is_resting(name):
                    self._topics[name].known_until = 0  # nobody asked what came since it rests
            else:
                continue
            self._awake[name] = None
            self._place(name)

    def take(self, histories: EngineHistories, now_ns: int, asked: Question | None = None) -> list[TopicHistory]:
        """The answer to ``asked`` (None: to a question for all, each time); gives what is due at ``now_ns`` (of any
        clock)."""
        asked = asked or Question(self.names, self.asking.until)
        offset_ns = self.note(histories, asked)
        if asked.since > histories.until:
            return []
        reports = []
        is_to_look_at_all = histories.until >= self._looked_until + LOOK_BINS
        if is_to_look_at_all:
            self._looked_until = histories.until
        for name in [name for name in asked.topics if name in self._awake]:
            topic = self._topics[name]
            if topic.is_resting(histories.until) and topic.has_much and not is_to_look_at_all:
                continue
            topic.add_nothing(histories.until)  # unless there was something
            topic.look_at_steadiness(histories.until)
            if topic.is_due(histories.until, now_ns):
                steady = topic.is_steady(histories.until)
                report = topic.report(name, histories.bin_ns, offset_ns, now_ns, steady=steady)
                if report is None:
                    del self._awake[name]
                else:
                    reports.append(report)
            self._place(name)
        return reports

    def note(self, histories: EngineHistories, asked: Question) -> int:
        """The answer to ``asked``, of which nothing is due yet; gives the wall clock's offset."""
        self.asking.until, self._bin_ns = histories.until, histories.bin_ns
        offset_ns = self._steady_offset(histories)
        if asked.since > histories.until:
            return offset_ns
        for name in asked.topics:
            if self.asking.is_resting(name):
                self._topics[name].begin_at(asked.since)
        for bins in histories.topics:
            self._add(bins)
        for topic in self._topics.values() if not asked.since else ():
            topic.known_until = topic.known_until or histories.until
        return offset_ns

    def move(self, moved: Moved, now_ns: int) -> TopicHistory | None:
        """What is to be told of a change at once; None: nothing, it is of a topic that is not followed. Topics that
        sleep (``asking.of_sleepers``) are to be asked for before."""
        topic = self._topics.get(moved.topic)
        if topic is None or self._wall_offset_ns is None:
            return None
        if moved.topic in self._awake:
            topic.add_nothing(self.asking.until)  # it may have been left alone while it was steady
        self._awake[moved.topic] = None
        topic.move(moved.version, self.asking.until)
        self._place(moved.topic)
        change = RateChange(
            since_ns=moved.since_ns + self._wall_offset_ns,
            span_ns=moved.span_ns,
            arrivals=moved.arrivals,
            waiting=moved.waiting,
        )
        return topic.report(moved.topic, self._bin_ns, self._wall_offset_ns, now_ns, change=change)

    def disturb(self, name: str) -> None:
        """The engine says that a topic which it watches does not rest: its rate has drifted, or messages wait. It is to
        be asked for before (``asking.of_sleepers``)."""
        topic = self._topics.get(name)
        if topic is None or topic.steadiness is None:
            return
        self._awake[name] = None
        topic.steadiness.disturb(self.asking.until)
        self._place(name)

    def renewals(self, now_ns: int) -> list[str]:
        """Topics of which it is time to say that they are still steady, at ``now_ns`` (of the same clock as above)."""
        if now_ns < self._renewals_due_ns:
            return []
        self._renewed_ns, self._renewals_due_ns = now_ns, next_turn_ns(now_ns)
        return [name for name, topic in self._topics.items() if topic.renew(now_ns)]

    def renew_again(self, topics: Collection[str]) -> None:
        """That these are still steady has come to nobody."""
        if topics:
            self._renewals_due_ns = min(self._renewals_due_ns, self._renewed_ns + _RENEWALS_NS)
        for name in topics:
            if (topic := self._topics.get(name)) is not None and topic.steadiness is not None:
                topic.steadiness.renew_again()

    def untell(self, topics: Collection[str]) -> None:
        """What was told of these has not come to anybody, or is forgotten there: they are due again, as they are."""
        for name in topics:
            topic = self._topics.get(name)
            if topic is None:
                continue
            if topic.steadiness is not None:
                topic.steadiness.untell()
            topic.owes_end = True
            self._awake[name] = None  # its pace follows with the next answer, which has no gap
        self.asking.look_far()

    def _add(self, bins: EngineBins) -> None:
        topic = self._topics.get(bins.topic)
        if topic is None:
            return
        if bins.topic not in self._awake:
            self._awake[bins.topic] = None
            topic.wake(bins.first)
        elif topic.known_until:
            topic.add_nothing(bins.first)
            bins = bins.from_bin(topic.known_until)
        if bins.arrivals:
            topic.add(bins)

    def _place(self, name: str) -> None:
        topic = self._topics[name]
        if topic.steadiness is None:
            self.asking.place(name, Pace.OFTEN)
        elif name not in self._awake:
            self.asking.place(name, Pace.SELDOM)
        else:
            rests = topic.is_resting(self.asking.until) and not topic.has_much
            self.asking.place(name, Pace.RESTING if rests else Pace.OFTEN)

    def _steady_offset(self, histories: EngineHistories) -> int:
        """The same until the wall clock is set, so that bins of two reports follow one another to the nanosecond."""
        told_ns, known_ns = histories.wall_offset_ns, self._wall_offset_ns
        if known_ns is None or abs(told_ns - known_ns) > histories.bin_ns // 2:
            self._wall_offset_ns = known_ns = told_ns
        return known_ns
