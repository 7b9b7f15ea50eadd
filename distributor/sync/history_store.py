"""What came to topics on their brokers, as these report it: kept for ten seconds, where traffic is steady until the
next report, or until the process that said so has ended; told to whoever follows (``GET /v1/history``), beside topics
for which other shares can be proposed than before. Nothing of it is stored.

A report comes from another process and is believed in nothing that it could get wrong: a history that cannot be
(negative, not finite, of columns that do not fit, from the future or from long ago) is ignored and counted, the others
of the same report are taken.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import trio

from distributor.model.change_log import Changes
from distributor.model.cluster import Topic
from distributor.model.leases import MICRO
from distributor.placement.planner import adaptable
from distributor.placement.proposals import may_be_told_seldom, shares_version, traits
from distributor.registry.registry import Registry
from distributor.sync.adaptor_changes import Shown
from srtm.control import BrokerHistory, HistoryAnswer, HistoryReport, Share, TopicHistories, TopicHistory
from srtm.errors import Conflict, NotLeader

_KEPT_S = 10.0
_STEADY_KEPT_S = 330.0  # brokers renew such a report every 300 s (``broker.history.steadiness``), or soon after
_GONE_KEPT_S = 600.0  # that a topic was removed: for an adaptor that could not ask for a while
_CLEAN_S = 60.0  # of what nobody is told any more
_LAST_BINS = 10  # by which demand is known
_LONGEST = 1_000  # bins in one report
_LONGEST_BIN_NS = 10_000_000_000
_LARGEST = 1 << 53
_FUTURE_NS = 5_000_000_000  # clocks of hosts are seldom further apart
_PAST_NS = 60_000_000_000


class _Kept(NamedTuple):
    version: int
    came_s: float  # trio time
    incarnation: str
    history: BrokerHistory


class _Bin(NamedTuple):
    came: int
    waited: int  # when it began
    delay_ns: int  # sum
    supply: float | None  # msg/s at its end; None: not known
    length_ns: int


class _Gone(NamedTuple):
    """A topic that was removed."""

    version: int
    at_s: float  # trio time


class Histories:
    """``ignored``: {broker: histories of it that could not be}, ``taken`` and ``bins``: {kind: histories that were
    taken, bins in them}, ``ignored_by_adaptors``: of those, what adaptors could make nothing of, by their word; all
    since the start. ``version``: of what came last."""

    def __init__(self, registry: Registry, *, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self.ignored: Counter[str] = Counter()
        self.ignored_by_adaptors = 0
        self.taken: Counter[str] = Counter()
        self.bins: Counter[str] = Counter()
        # Beyond all that an earlier leader may have given, so that nobody is told too little.
        self._first = wall_ns() // 1000
        self._changes = Changes(self._first)  # of topics for which proposals must be others; a report is a step
        self._registry = registry
        self._wall_ns = wall_ns
        self._recent: deque[_Kept] = deque()  # of all topics, oldest first
        self._kept: dict[str, deque[_Kept]] = {}  # {topic: those of them that are its own}
        self._steady: dict[str, dict[str, _Kept]] = {}  # {topic: {broker: its latest report, if that says so}}
        self._gone: dict[str, _Gone] = {}
        self._dropped = 0  # version of the latest report that was dropped
        self._cleaned_s = trio.current_time()
        self._shown = Shown(registry)
        self._news = trio.Event()

    @property
    def version(self) -> int:
        return self._changes.count

    def take(self, broker: str, report: HistoryReport) -> None:
        """Raises NotFound (an unknown broker), Conflict (another incarnation is the broker of that name)."""
        if self._registry.broker(broker).incarnation != report.incarnation:
            raise Conflict("incarnation", report.incarnation, f"another process is broker {broker}")
        now_ns, now_s = self._wall_ns(), trio.current_time()
        self._changes.step()
        for name in report.still_steady:  # before what may have changed since
            self._renew(name, broker, report.incarnation, now_s)
        for history in report.topics:
            if problem(history, now_ns) is not None:
                self.ignored[broker] += 1
            elif self._registry.managed_topic(history.topic) is not None:
                told = BrokerHistory(broker=broker, history=history)
                self._keep(_Kept(self.version, now_s, report.incarnation, told))
        self._drop_old(now_s)
        self._news.set()
        self._news = trio.Event()

    async def answer(self, since: int, wait_s: float) -> HistoryAnswer:
        """What came after ``since``; waits up to ``wait_s`` for something. Raises NotLeader: brokers report to that."""
        if not self._registry.leads:
            raise NotLeader(self._registry.leader_url)
        known = since if self._first <= since <= self.version else 0
        answer = self._look(known)
        with trio.move_on_after(wait_s):
            while not (answer.topics or answer.gone):
                await self._news.wait()
                answer = self._look(known)
        return answer  # what comes with the deadline is for the next question

    def demand(self, topic: str) -> dict[str, float]:
        """{broker: msg/s that came to ``topic`` there in the last second that was told, and what waited, which should
        be gone within one}. Steady traffic may have been told some minutes ago. Brokers of which nothing was told
        lately, or by a process that has ended, are left out."""
        return {broker: _demand(those) for broker, those in self._last_second(topic).items()}

    def access_delay_ms(self, topic: str) -> dict[str, float]:
        """{broker: mean access delay of what came to ``topic`` there in the last second that was told, refused messages
        among it}. Left out are brokers of which ``demand`` says nothing, to which nothing came, and those with a share
        of nothing, where nobody can tell."""
        last = self._last_second(topic)
        delays = {broker: _access_delay_ms(those) for broker, those in last.items()}
        return {broker: delay_ms for broker, delay_ms in delays.items() if delay_ms is not None}

    def _last_second(self, topic: str) -> dict[str, list[_Bin]]:
        """By broker; none is empty."""
        bins: defaultdict[str, list[_Bin]] = defaultdict(list)
        for told in (one.history for one in self._known(topic)):
            bins[told.broker] += _bins(told.history)
        return {broker: those[-_LAST_BINS:] for broker, those in bins.items() if those}

    def forget_topic(self, name: str) -> None:
        """``name`` was removed: what was reported of it says nothing of another topic of that name."""
        self._changes.forget(name)
        self._changes.step()
        self._gone[name] = _Gone(self.version, trio.current_time())
        self._steady.pop(name, None)

    def _look(self, since: int) -> HistoryAnswer:
        """What is known now, after ``since``."""
        self._changes.note(self._shown.changed())
        self._drop_old(trio.current_time())
        reports = self._since(since) if since >= max(self._dropped, 1) else self._all_since(since)
        if since:  # who knows nothing learns of a topic with its first report
            for name in self._changes.since(since):
                reports.setdefault(name, [])
        topics = ((self._registry.managed_topic(name), told) for name, told in reports.items())
        found = [_told(topic, self._registry, told) for topic, told in topics if topic is not None]
        gone = [name for name, one in self._gone.items() if one.version > since > 0]
        return HistoryAnswer(version=self.version, topics=found, gone=gone)

    def _since(self, version: int) -> dict[str, list[BrokerHistory]]:
        """{topic: its reports after ``version``}, for whoever has missed nothing before. Costs by their number."""
        found: dict[str, list[BrokerHistory]] = {}
        for one in reversed(self._recent):
            if one.version <= version:
                break
            if self._is_there(one):
                found.setdefault(one.history.history.topic, []).append(one.history)
        for told in found.values():
            told.reverse()
        return found

    def _all_since(self, version: int) -> dict[str, list[BrokerHistory]]:
        """The same for whoever may have missed that traffic is steady."""
        names = {**dict.fromkeys(self._kept), **dict.fromkeys(self._steady)}
        reports = {name: [one.history for one in self._known(name) if one.version > version] for name in names}
        return {name: told for name, told in reports.items() if told}

    def _keep(self, one: _Kept) -> None:
        history = one.history.history
        self._recent.append(one)
        self._kept.setdefault(history.topic, deque()).append(one)
        latest = self._steady.setdefault(history.topic, {})
        latest.pop(one.history.broker, None)
        if history.steady:
            latest[one.history.broker] = one
        kind = "steady" if history.steady else "change" if history.change is not None else "moving"
        self.taken[kind] += 1
        self.bins[kind] += len(history.arrivals)

    def _renew(self, name: str, broker: str, incarnation: str, now_s: float) -> None:
        """No news, to anybody. What was forgotten here the broker tells anew, once it learns of that."""
        told = self._steady.get(name, {})
        if (one := told.get(broker)) is not None and one.incarnation == incarnation:
            told[broker] = one._replace(came_s=now_s)

    def _known(self, topic: str) -> list[_Kept]:
        """Oldest first."""
        oldest_s = trio.current_time() - _KEPT_S
        kept = [one for one in self._kept.get(topic, ()) if one.came_s >= oldest_s]
        first = kept[0].version if kept else math.inf
        steady = [one for one in self._steady.get(topic, {}).values() if one.version < first and self._holds(one)]
        return [*steady, *(one for one in kept if self._is_there(one))]

    def _holds(self, steady: _Kept) -> bool:
        """Whether that traffic is steady may still be believed."""
        topic = self._registry.managed_topic(steady.history.history.topic)
        may_be_seldom = topic is not None and may_be_told_seldom(topic)
        return may_be_seldom and steady.came_s >= trio.current_time() - _STEADY_KEPT_S and self._is_there(steady)

    def _is_there(self, one: _Kept) -> bool:
        """Whether neither the topic nor the process that reported it has ended, as far as is known."""
        gone = self._gone.get(one.history.history.topic)
        if gone is not None and one.version <= gone.version:
            return False
        broker = self._registry.brokers.get(one.history.broker)
        return broker is not None and not broker.dead and broker.incarnation == one.incarnation

    def _drop_old(self, now_s: float) -> None:
        while self._recent and self._recent[0].came_s < now_s - _KEPT_S:
            oldest = self._recent.popleft()
            self._dropped, name = oldest.version, oldest.history.history.topic
            kept = self._kept[name]
            kept.popleft()
            if not kept:
                del self._kept[name]
        if now_s >= self._cleaned_s + _CLEAN_S:
            self._cleaned_s = now_s
            self._clean()

    def _clean(self) -> None:
        for name, latest in list(self._steady.items()):
            held = {broker: one for broker, one in latest.items() if self._holds(one)}
            if held:
                self._steady[name] = held
            else:
                del self._steady[name]
        oldest_s = trio.current_time() - _GONE_KEPT_S
        self._gone = {name: one for name, one in self._gone.items() if one.at_s >= oldest_s}


def _bins(history: TopicHistory) -> list[_Bin]:
    supply = dict(history.supply)
    delay_ns = history.delay_ns or [0] * len(history.arrivals)
    rate: float | None = None
    bins = []
    for at, (came, waited, delayed_ns) in enumerate(zip(history.arrivals, history.waiting, delay_ns, strict=True)):
        rate = supply.get(at, rate)
        bins.append(_Bin(came, waited, delayed_ns, rate, history.bin_ns))
    return bins


def _demand(bins: Sequence[_Bin]) -> float:
    """Msg/s."""
    seconds = sum(one.length_ns for one in bins) / 1e9
    return sum(one.came for one in bins) / seconds + sum(one.waited for one in bins) / len(bins)


def _access_delay_ms(bins: Sequence[_Bin]) -> float | None:
    """A message's, on the average; None: not known."""
    came = sum(one.came for one in bins)
    return None if came == 0 or bins[-1].supply == 0 else sum(one.delay_ns for one in bins) / came / 1e6


def _told(topic: Topic, registry: Registry, reports: Sequence[BrokerHistory]) -> TopicHistories:
    shares = {
        name: Share(version=topic.holding(name).version, rate=target.rate / MICRO, burst=target.burst / MICRO)
        for name, target in topic.leases.target.items()
    }
    whole = adaptable(topic)
    return TopicHistories(
        topic=topic.name,
        mode=topic.spec.mode,
        rate=whole.rate / MICRO,
        burst=whole.burst / MICRO,
        version=shares_version(topic),
        shares=shares,
        reports=list(reports),
        traits=traits(topic, registry.most_rate),
    )


def _are_counts(column: Sequence[float]) -> bool:
    """Without a look at each: there are millions. The sum tells a NaN, which is neither least nor most."""
    return not column or (min(column) >= 0 and max(column) <= _LARGEST and math.isfinite(sum(column)))


def _is_supply(supply: Sequence[tuple[int, float]], bins: int) -> bool:
    at = [number for number, _ in supply]
    ascends = all(before < after for before, after in pairwise([-1, *at, bins]))
    return not supply or (ascends and _are_counts([rate for _, rate in supply]))


def problem(history: TopicHistory, now_ns: int) -> str | None:
    """Why ``history``, come at ``now_ns`` (wall clock), cannot be; None: it can."""
    columns: list[Sequence[float]] = [history.arrivals, history.waiting, history.unfinished]
    if history.delay_ns:
        columns.append(history.delay_ns)
    if not 0 < history.bin_ns <= _LONGEST_BIN_NS:
        return f"bin_ns {history.bin_ns} must be from 1 to {_LONGEST_BIN_NS}"
    if len({len(column) for column in columns}) != 1 or len(history.arrivals) > _LONGEST:
        return f"columns must be of one length, of at most {_LONGEST} bins"
    if not all(_are_counts(column) for column in columns):
        return f"counts must be from 0 to {_LARGEST}"
    if not _is_supply(history.supply, len(history.arrivals)):
        return f"supply must be of ascending bins among those {len(history.arrivals)}, rates from 0 to {_LARGEST}"
    if (change := history.change) is not None:
        if not 0 < change.span_ns <= _LONGEST_BIN_NS * _LONGEST:
            return f"change.span_ns {change.span_ns} must be from 1 to {_LONGEST_BIN_NS * _LONGEST}"
        if not (0 <= change.arrivals <= _LARGEST and 0 <= change.waiting <= _LARGEST):
            return f"counts must be from 0 to {_LARGEST}"
        if not now_ns - _PAST_NS <= change.since_ns + change.span_ns <= now_ns + _FUTURE_NS:
            return "its change ends in the future, or more than a minute ago"
    if history.end_ns > now_ns + _FUTURE_NS:
        return "it ends in the future"
    if history.end_ns < now_ns - _PAST_NS:
        return "it ended more than a minute ago"
    return None
