"""Decides which bins of which topics a broker reports, and when. Pure.

A topic *moves* for twelve seconds after the engine told something of it: its rate has changed or drifts, or messages
wait. So it does where its share has changed, for whoever moved the share goes by what comes there. Moving topics are
polled ten times a second and report once a second, also that nothing comes. They report at once when the rate changes,
and then four times a second for three seconds; so they do while messages wait, and for a second afterwards.

Then a topic says that its traffic is steady, and the engine watches it. Nothing is polled or reported until the engine
tells something, but that all steady topics still are, every five minutes: the distributor drops what was not confirmed.
A report that was lost is replaced by one of the present state (``reports_lost``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import msgspec

from broker.events import RateChanged
from broker.history.bins import Columns, EngineBins, EngineHistories
from srtm.control import RateChange, TopicHistory

POLL_NS = 100_000_000  # between polls of moving topics; also the length of a bin
_PERIOD_NS = 1_000_000_000  # between reports
_QUICK_PERIOD_NS = 250_000_000  # after a change, or where messages wait
_QUICK_BINS = 30  # after a change
_LATE_BINS = 10  # after one in which messages waited, likewise (bench figures split-study)
_MOVING_BINS = 120  # no estimate of the adaptor rests on more
_WHOLE_BINS = 100  # told of a topic that was not polled; the engine keeps 128
_RENEWAL_NS = 300_000_000_000
_RENEWAL_RETRY_NS = 5_000_000_000  # after renewals were lost


class Poll(msgspec.Struct, frozen=True):
    """A request for the bins of ``topics`` from number ``since`` on; 0: all bins that are kept."""

    topics: Sequence[str]
    since: int


class WatchChange(msgspec.Struct, frozen=True):
    """Topics that the engine is to watch from now on, and topics that it is not to watch any more."""

    added: list[str]
    removed: list[str]


class _TopicSchedule:
    """One topic, and its bins since the latest report."""

    def __init__(self, until: int, *, may_be_seldom: bool) -> None:
        self.may_be_seldom = may_be_seldom  # it need not report steady traffic
        self.is_steady = False  # as told last
        self._version = 0  # of the share in force
        self._known_until = until  # number of the first bin that was not added
        self._moving_until = -math.inf  # number of a bin, as is the next; it was not polled yet
        self._quick_until = 0
        self._bins = Columns()
        self._reported_ns = -_PERIOD_NS

    def disturb(self, bin_number: int | None = None) -> None:
        """Traffic is not steady in this bin; None: in the one that is open."""
        number = self._known_until if bin_number is None else bin_number
        self._moving_until = max(self._moving_until, number + _MOVING_BINS) if self.may_be_seldom else math.inf
        self.is_steady = False

    def add(self, bins: EngineBins | None, until: int) -> None:
        """Add the bins up to number ``until``. None: nothing came, nor waited."""
        if bins is not None and bins.arrivals:
            bins = bins.from_bin(self._known_until)
            self._add_empty(bins.first)
            self._add(bins)
        self._add_empty(until)
        if self._moving_until < 0:
            self.disturb()

    def add_whole(self, bins: EngineBins | None, until: int) -> None:
        """The same after a time in which it was not polled."""
        self._bins.clear()
        self._known_until = max(until - _WHOLE_BINS, 0)
        self.add(bins, until)

    def _add_empty(self, until: int) -> None:
        missing = until - self._known_until
        if missing > _WHOLE_BINS:  # the broker stood still
            self._bins.clear()
            self._known_until = until
        elif missing > 0:
            zeros = [0] * missing
            nothing = [0.0] * missing
            self._add(
                EngineBins(
                    topic="",
                    version=self._version,
                    first=self._known_until,
                    arrivals=zeros,
                    waiting=zeros,
                    unfinished=nothing,
                    delay_ns=zeros,
                    supply=[],
                )
            )

    def _add(self, bins: EngineBins) -> None:
        self._bins.add(bins)
        self._version = bins.version
        self._known_until = bins.first + len(bins.arrivals)
        for at, (waiting, delay_ns) in enumerate(zip(bins.waiting, bins.delay_ns, strict=True), bins.first):
            if waiting or delay_ns:
                self._quick_until = max(self._quick_until, at + _LATE_BINS)
                self.disturb(at)

    def change(self, version: int) -> None:
        """The rate has changed under the share of ``version``."""
        self._version = version
        self._quick_until = self._known_until + _QUICK_BINS
        self.disturb()

    @property
    def may_rest(self) -> bool:
        """Nothing was told of it for so long that its traffic is steady."""
        return self._known_until >= self._moving_until

    def is_due(self, now_ns: int) -> bool:
        period_ns = _QUICK_PERIOD_NS if self._known_until < self._quick_until else _PERIOD_NS
        return bool(self._bins.arrivals) and now_ns - self._reported_ns >= period_ns

    def report(
        self,
        topic: str,
        wall_offset_ns: int,
        now_ns: int,
        *,
        steady: bool = False,
        change: RateChange | None = None,
    ) -> TopicHistory:
        """The report of the bins, which are then removed."""
        bins = self._bins
        first = bins.first if bins.arrivals else self._known_until
        report = TopicHistory(
            topic=topic,
            share_version=self._version,
            first_ns=first * POLL_NS + wall_offset_ns,
            arrivals=bins.arrivals,
            waiting=bins.waiting,
            unfinished=bins.unfinished,
            delay_ns=bins.delay_ns if any(bins.delay_ns) else [],
            supply=bins.supply(),
            bin_ns=POLL_NS,
            change=change,
            steady=steady,
        )
        bins.clear()
        self._reported_ns = now_ns
        self.is_steady = steady
        return report


class HistorySchedule:
    """All topics whose histories are reported. Ask the engine for ``poll`` and give the answer to ``due_reports``, ten
    times a second while topics ``are_moving``; then for the ``whole`` ones and ``whole_reports``."""

    def __init__(self) -> None:
        self._topics: dict[str, _TopicSchedule] = {}
        self._moving: dict[str, None] = {}  # in order
        self._whole: dict[str, None] = {}  # steady topics to be told from what the engine keeps
        self._watched: set[str] = set()  # as the engine was told last
        self._watch_changed = False
        self._until = 0  # the bin that was open at the latest poll
        self._wall_offset_ns: int | None = None
        self._renewals_due_ns = -1  # not set

    @property
    def names(self) -> list[str]:
        return list(self._topics)

    @property
    def are_moving(self) -> bool:
        """Whether any topic has to be polled."""
        return bool(self._moving or self._whole)

    def follow(self, topics: Collection[str], seldom: Collection[str] = ()) -> None:
        """Report ``topics`` from now on, and no others. Those in ``seldom`` need not report steady traffic."""
        for gone in self._topics.keys() - set(topics):
            for known in (self._topics, self._moving, self._whole):
                known.pop(gone, None)
        self._watch_changed = True
        seldom_names = set(seldom)
        for name in topics:
            topic, may_be_seldom = self._topics.get(name), name in seldom_names
            if topic is None or topic.may_be_seldom != may_be_seldom:
                self._topics[name] = _TopicSchedule(self._until, may_be_seldom=may_be_seldom)
                self._moving[name] = None
                self._whole.pop(name, None)

    def take_watch_change(self) -> WatchChange | None:
        """The change since the last call; None: there is none."""
        if not self._watch_changed:
            return None
        self._watch_changed = False
        before, self._watched = self._watched, self._topics.keys() - self._moving.keys()
        return WatchChange(sorted(self._watched - before), sorted(before - self._watched))

    # What is due

    def poll(self) -> Poll:
        """Of the moving topics."""
        return Poll(list(self._moving), self._until)

    def due_reports(self, histories: EngineHistories, now_ns: int) -> list[TopicHistory]:
        """Take the answer to ``poll`` and return the reports that are due at ``now_ns``, of any clock that does not go
        back."""
        offset_ns = self._steady_offset(histories)
        found = {bins.topic: bins for bins in histories.topics}
        self._until = histories.until
        reports = []
        for name in list(self._moving):
            topic = self._topics[name]
            topic.add(found.get(name), histories.until)
            if topic.may_rest:
                del self._moving[name]
                self._whole[name] = None
                self._watch_changed = True
            elif topic.is_due(now_ns):
                reports.append(topic.report(name, offset_ns, now_ns))
        return reports

    def whole(self) -> Poll | None:
        """Of steady topics that have to be told from what the engine keeps; None: of none."""
        return Poll(list(self._whole), 0) if self._whole else None

    def whole_reports(self, histories: EngineHistories, now_ns: int) -> list[TopicHistory]:
        """Take the answer to ``whole`` and return the reports that those topics are steady."""
        names, self._whole = self._whole, {}
        self._add_whole(histories, names)
        offset_ns = self._steady_offset(histories)
        return [self._topics[name].report(name, offset_ns, now_ns, steady=True) for name in names]

    def renewals(self, now_ns: int) -> list[str]:
        """Topics that are to be named as still steady at ``now_ns``, of the clock of ``due_reports``."""
        if self._renewals_due_ns < 0:
            self._renewals_due_ns = now_ns + _RENEWAL_NS
        if now_ns < self._renewals_due_ns:
            return []
        self._renewals_due_ns = now_ns + _RENEWAL_NS
        return [name for name, topic in self._topics.items() if topic.is_steady]

    # What the engine tells

    def resting(self, topics: Collection[str]) -> Poll | None:
        """What to ask the engine for before those of ``topics`` are moved that rest; None: nothing."""
        names = [name for name in dict.fromkeys(topics) if name in self._topics and name not in self._moving]
        return Poll(names, 0) if names else None

    def move(self, histories: EngineHistories, topics: Sequence[str]) -> None:
        """``topics`` are not steady any more: take the answer to ``resting``."""
        self._steady_offset(histories)
        self._add_whole(histories, topics)
        for name in topics:
            self._whole.pop(name, None)
            self._moving[name] = None
            self._watch_changed = True
            self.disturb(name)

    def disturb(self, name: str) -> None:
        """Traffic of a topic is not steady now. ``move`` it before."""
        if (topic := self._topics.get(name)) is not None:
            topic.disturb()

    def rate_changed(self, event: RateChanged, now_ns: int) -> TopicHistory | None:
        """The report of a change, to be sent at once; None: the topic is not followed. ``move`` it before."""
        topic = self._topics.get(event.topic)
        if topic is None or self._wall_offset_ns is None:
            return None
        topic.change(event.version)
        change = RateChange(
            since_ns=event.since_ns + self._wall_offset_ns,
            span_ns=event.span_ns,
            arrivals=event.arrivals,
            waiting=event.waiting,
        )
        return topic.report(event.topic, self._wall_offset_ns, now_ns, change=change)

    # What was not taken

    def reports_lost(self, topics: Collection[str]) -> None:
        """The latest reports of ``topics`` were not taken, or are forgotten there: report their present state."""
        for name in topics:
            if (topic := self._topics.get(name)) is not None and topic.is_steady:
                self._whole[name] = None

    def renewals_lost(self, now_ns: int) -> None:
        """The latest renewals were not taken: they are due again."""
        self._renewals_due_ns = min(self._renewals_due_ns, now_ns + _RENEWAL_RETRY_NS)

    def _add_whole(self, histories: EngineHistories, names: Collection[str]) -> None:
        found = {bins.topic: bins for bins in histories.topics}
        for name in names:
            self._topics[name].add_whole(found.get(name), histories.until)

    def _steady_offset(self, histories: EngineHistories) -> int:
        """The offset of the wall clock, the same until that clock is set: so the bins of two reports follow one another
        to the nanosecond."""
        told_ns, known_ns = histories.wall_offset_ns, self._wall_offset_ns
        if known_ns is None or abs(told_ns - known_ns) > POLL_NS // 2:
            self._wall_offset_ns = known_ns = told_ns
        return known_ns
