"""Histories as a broker sends them: which bins of which topics are due, and when that is at once. Pure.

Every topic that is followed reports once a second; at once when its rate of arrivals has changed, and four times a
second from then on for some seconds, as also while messages wait for tokens at the beginning of every bin. A topic to
which nothing was since its last report is left out. A topic that may be told seldom says when its traffic has become
steady, and then no more (``steadiness``).
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from broker.steadiness import Steadiness
from srtm.change import ChangeDetector
from srtm.control import TopicHistory

PERIOD_NS = 100_000_000  # how often the engine is asked; also the length of its bins
_SELDOM_NS = 1_000_000_000
_OFTEN_NS = 250_000_000
_STEADY_BINS = 10  # that a report of steady traffic has
_LOOK_BINS = 10  # between two looks at steady traffic, unless it changes
_MOVING_BINS = 30  # how long a change is followed closely
_LONGEST_SLEEP_BINS = 200  # after so many a rate of nothing is well known
_LONGEST_GAP_BINS = 128  # so many the engine keeps: more is a broker that stood still
_QUEUE_BINS = 3  # in so many bins in a row something waited at the beginning: it is no passing burst


class EngineBins(msgspec.Struct, frozen=True, kw_only=True):
    """Bins of one topic, ``first`` and those that follow it, up to the one that is not over."""

    topic: str
    version: int  # of the share in force
    first: int
    arrivals: list[int]
    waiting: list[int]
    unfinished: list[float]


class EngineHistories(msgspec.Struct, frozen=True, kw_only=True):
    """What ``Engine.histories`` gives: topics to which nothing was are left out. ``until``: the first bin that is not
    over."""

    until: int
    bin_ns: int
    wall_offset_ns: int
    topics: list[EngineBins]


class _Followed:
    """One topic: its bins since the last report."""

    def __init__(self, known_until: int, steadiness: Steadiness | None) -> None:
        self.steadiness = steadiness  # None: it is told every second
        self.detector = ChangeDetector()
        self.first = 0
        self.arrivals: list[int] = []
        self.waiting: list[int] = []
        self.unfinished: list[float] = []
        self.version = 0
        self.changed = False
        self.moving_until = 0  # number of a bin
        self.reported_ns = 0
        self.known_until = known_until  # number of the first bin that was not added; 0: nobody asked yet
        self._queued = 0  # bins in a row that began with something waiting

    def add(self, bins: EngineBins) -> None:
        if bins.first != self.known_until:  # what the engine keeps does not go back as far
            self._forget()
        if not self.arrivals:
            self.first = bins.first
        self.version = bins.version
        self.known_until = bins.first + len(bins.arrivals)
        self.arrivals += bins.arrivals
        self.waiting += bins.waiting
        self.unfinished += bins.unfinished
        for at, (count, waiting) in enumerate(zip(bins.arrivals, bins.waiting, strict=True)):
            self._queued = self._queued + 1 if waiting else 0
            if self.detector.note(count):
                self.changed = True
            if self.changed or self._queued >= _QUEUE_BINS:
                self.moving_until = bins.first + at + _MOVING_BINS

    def look_at_steadiness(self, until: int) -> None:
        """After all bins before ``until`` were added."""
        if self.steadiness is None:
            return
        self.steadiness.begin(self.first)
        if self.moving_until > until:
            self.steadiness.disturb(self.moving_until - _MOVING_BINS)
        elif self.steadiness.is_steady(until) and len(self.arrivals) > _STEADY_BINS:
            left_out = len(self.arrivals) - _STEADY_BINS
            self.first += left_out
            for column in (self.arrivals, self.waiting, self.unfinished):
                del column[:left_out]

    def is_resting(self, until: int) -> bool:
        """It is known to be steady, and nothing says otherwise."""
        return self.steadiness is not None and self.steadiness.is_known and self.moving_until <= until

    def is_steady(self, until: int) -> bool:
        return self.steadiness is not None and self.steadiness.is_steady(until)

    def add_nothing(self, until: int) -> None:
        """Up to bin ``until``, where bins are missing."""
        bins = until - self.known_until
        if bins <= 0:
            return
        if bins > _LONGEST_GAP_BINS:
            self._forget()
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
            )
        )

    def _forget(self) -> None:
        self.arrivals, self.waiting, self.unfinished = [], [], []

    def sleep_until(self, first: int) -> None:
        """Nothing came up to bin ``first``; nobody has to be told, but nothing is a rate, too."""
        for _ in range(min(first - self.known_until, _LONGEST_SLEEP_BINS) if self.known_until else 0):
            self.detector.note(0)

    def is_due(self, until: int, now_ns: int) -> bool:
        if self.steadiness is not None and self.steadiness.is_steady(until):
            is_told, is_whole = self.steadiness.is_told(now_ns), len(self.arrivals) >= _STEADY_BINS
            return self.changed or (is_whole and not is_told)
        often = until < self.moving_until
        return self.changed or now_ns - self.reported_ns >= (_OFTEN_NS if often else _SELDOM_NS)

    def report(self, topic: str, bin_ns: int, wall_offset_ns: int, now_ns: int, *, steady: bool) -> TopicHistory | None:
        """None: nothing was."""
        said = TopicHistory(
            topic=topic,
            share_version=self.version,
            first_ns=self.first * bin_ns + wall_offset_ns,
            arrivals=self.arrivals,
            waiting=self.waiting,
            unfinished=self.unfinished,
            bin_ns=bin_ns,
            changed=self.changed,
            steady=steady,
        )
        self._forget()
        self.changed, self.reported_ns = False, now_ns
        if not (said.changed or any(said.arrivals) or any(said.waiting) or any(said.unfinished)):
            return None
        if steady and self.steadiness is not None:
            self.steadiness.tell(now_ns)
        return said


class Followed:
    """All topics that are followed. ``next``: the bin from which on the engine is asked."""

    def __init__(self) -> None:
        self.next = 0
        self._wall_offset_ns: int | None = None
        self._topics: dict[str, _Followed] = {}
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
        told_seldom = set(seldom)
        for name in topics:
            if name not in self._topics:
                self._topics[name] = _Followed(self.next, Steadiness(name) if name in told_seldom else None)
            elif (self._topics[name].steadiness is not None) != (name in told_seldom):
                self._topics[name].steadiness = Steadiness(name) if name in told_seldom else None

    def take(self, histories: EngineHistories, now_ns: int) -> list[TopicHistory]:
        """The answer to a question from ``next`` on; gives what is due at ``now_ns`` (of any clock)."""
        since, self.next = self.next, histories.until
        offset_ns = self._steady_offset(histories)
        for bins in histories.topics:
            self._add(bins)
        for topic in self._topics.values() if not since else ():
            topic.known_until = topic.known_until or histories.until
        reports = []
        is_to_look_at_all = histories.until >= self._looked_until + _LOOK_BINS
        if is_to_look_at_all:
            self._looked_until = histories.until
        for name in list(self._awake):
            topic = self._topics[name]
            if topic.is_resting(histories.until) and not is_to_look_at_all:
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
        return reports

    def _add(self, bins: EngineBins) -> None:
        topic = self._topics.get(bins.topic)
        if topic is None:
            return
        if bins.topic not in self._awake:
            self._awake[bins.topic] = None
            topic.sleep_until(bins.first)
        elif topic.known_until:
            topic.add_nothing(bins.first)
        topic.add(bins)

    def _steady_offset(self, histories: EngineHistories) -> int:
        """The same until the wall clock is set, so that bins of two reports follow one another to the nanosecond."""
        told_ns, known_ns = histories.wall_offset_ns, self._wall_offset_ns
        if known_ns is None or abs(told_ns - known_ns) > histories.bin_ns // 2:
            self._wall_offset_ns = known_ns = told_ns
        return known_ns
