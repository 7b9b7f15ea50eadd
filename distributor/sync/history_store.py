"""Keeps what brokers report of the arrivals of topics, for the adaptor (``GET /v1/history``). In memory.

A report is kept for ten seconds. A report of steady traffic is kept until the next one, or until the process that sent
it has ended. Topics whose proposals must be others than before are passed on, too.

Every report is checked: a history that cannot be right (negative, not finite, with columns that do not fit, from the
future or long past) is ignored and counted; the others of the same request are taken.
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
from distributor.placement.proposals import may_be_told_seldom, shares_version, traits
from distributor.placement.share_targets import assignable_envelope
from distributor.registry.registry import Registry
from distributor.sync.adaptor_changes import AdaptorChanges
from srtm.control import BrokerHistory, HistoryAnswer, HistoryReport, Share, TopicHistories, TopicHistory
from srtm.errors import Conflict, NotLeader

_RETENTION_S = 10.0
_STEADY_RETENTION_S = 330.0  # brokers renew steady reports every 300 s (``broker.history.schedule``)
_REMOVED_RETENTION_S = 600.0  # of removed names, for an adaptor that could not ask for a while
_CLEAN_PERIOD_S = 60.0
_LAST_BINS = 10  # that the figures for people cover
_MAX_BINS = 1_000  # in one report
_MAX_BIN_NS = 10_000_000_000
_MAX_COUNT = 1 << 53
_MAX_FUTURE_NS = 5_000_000_000  # clocks of hosts seldom differ by more
_MAX_AGE_NS = 60_000_000_000


class _Stored(NamedTuple):
    """A report."""

    version: int
    received_s: float  # trio time
    incarnation: str
    report: BrokerHistory


class _Bin(NamedTuple):
    """One bin of one broker."""

    arrivals: int
    delay_ns: int  # sum
    supply: float | None  # msg/s at its end; None: not known
    length_ns: int


class _Removed(NamedTuple):
    """A topic that was removed."""

    version: int
    at_s: float  # trio time


class HistoryStore:
    """The histories of all topics.

    Counters since the start: ``ignored`` is {broker: histories that cannot be right}, ``taken`` {kind: histories},
    ``bins`` {kind: bins in them}, ``ignored_by_adaptors`` the histories that adaptors could not use. ``version`` is
    that of the latest report.
    """

    def __init__(self, registry: Registry, *, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self.ignored: Counter[str] = Counter()
        self.ignored_by_adaptors = 0
        self.taken: Counter[str] = Counter()
        self.bins: Counter[str] = Counter()
        # Above every version of an earlier leader, so that an adaptor that followed that stored misses nothing.
        self._first = wall_ns() // 1000
        self._changes = Changes(self._first)  # of topics whose proposals must be others; each report is a step
        self._registry = registry
        self._wall_ns = wall_ns
        self._recent: deque[_Stored] = deque()  # of all topics, oldest first
        self._kept: dict[str, deque[_Stored]] = {}  # {topic: its reports of ``_recent``}
        self._steady: dict[str, dict[str, _Stored]] = {}  # {topic: {broker: its latest report, if that is steady}}
        self._removed: dict[str, _Removed] = {}
        self._dropped_version = 0  # version of the latest report that was dropped
        self._cleaned_s = trio.current_time()
        self._adaptor_changes = AdaptorChanges(registry)
        self._news = trio.Event()

    @property
    def version(self) -> int:
        return self._changes.count

    def check_sender(self, broker: str, report: HistoryReport) -> None:
        """Raises NotFound (unknown broker), Conflict (another incarnation is the broker of this name)."""
        if self._registry.broker(broker).incarnation != report.incarnation:
            raise Conflict("incarnation", report.incarnation, f"another process is broker {broker}")

    def take(self, broker: str, report: HistoryReport) -> None:
        """Take a report. Raises as ``check_sender``."""
        self.check_sender(broker, report)
        now_ns, now_s = self._wall_ns(), trio.current_time()
        self._changes.step()
        for name in report.still_steady:  # before the reports, which are newer
            self._renew(name, broker, report.incarnation, now_s)
        for history in report.topics:
            if problem(history, now_ns) is not None:
                self.ignored[broker] += 1
            elif self._registry.managed_topic(history.topic) is not None:
                of_broker = BrokerHistory(broker=broker, history=history)
                self._store(_Stored(self.version, now_s, report.incarnation, of_broker))
        self._drop_old(now_s)
        self._news.set()
        self._news = trio.Event()

    async def answer(self, since: int, wait_s: float) -> HistoryAnswer:
        """What is new after ``since``; waits up to ``wait_s`` for news. Raises NotLeader: brokers report to the
        leader."""
        if not self._registry.leads:
            raise NotLeader(self._registry.leader_url)
        known = since if self._first <= since <= self.version else 0
        answer = self._news_since(known)
        with trio.move_on_after(wait_s):
            while not (answer.topics or answer.gone):
                await self._news.wait()
                answer = self._news_since(known)
        return answer  # news at the deadline is for the next request

    def arrival_rates(self, topic: str) -> dict[str, float]:
        """{broker: msg/s of ``topic`` that came in the last reported second}. Messages that waited before are left out.

        Steady traffic may have been reported minutes ago (``ages_s``). Left out are brokers that reported nothing
        lately, or whose process has ended.
        """
        return {broker: _arrival_rate(bins) for broker, bins in self._last_second(topic).items()}

    def ages_s(self, topic: str) -> dict[str, float]:
        """{broker: seconds since it last told of ``topic``}, of the brokers of ``arrival_rates``."""
        received_s = {stored.report.broker: stored.received_s for stored in self._reports_of(topic)}
        return {broker: trio.current_time() - at_s for broker, at_s in received_s.items()}

    def access_delay_ms(self, topic: str) -> dict[str, float]:
        """{broker: mean access delay of ``topic`` over the last reported second}, rejected messages included.

        Messages that wait count with the delay that the token rate in force gives them. Left out are brokers without
        ``arrival_rates``, without arrivals, and with a share of 0, where the delay is not known.
        """
        last = self._last_second(topic)
        delays = {broker: _access_delay_ms(bins) for broker, bins in last.items()}
        return {broker: delay_ms for broker, delay_ms in delays.items() if delay_ms is not None}

    def _last_second(self, topic: str) -> dict[str, list[_Bin]]:
        """{broker: its bins}; none is empty."""
        bins: defaultdict[str, list[_Bin]] = defaultdict(list)
        for stored in self._reports_of(topic):
            bins[stored.report.broker] += _bins(stored.report.history)
        return {broker: last[-_LAST_BINS:] for broker, last in bins.items() if last}

    def forget_topic(self, name: str) -> None:
        """Forget topic ``name``: it was removed, and another topic of that name starts anew."""
        self._changes.forget(name)
        self._changes.step()
        self._removed[name] = _Removed(self.version, trio.current_time())
        self._steady.pop(name, None)

    def _news_since(self, since: int) -> HistoryAnswer:
        """The answer to a request for news after ``since``, as things are now."""
        self._changes.note(self._adaptor_changes.changed())
        self._drop_old(trio.current_time())
        reports = self._since(since) if since >= max(self._dropped_version, 1) else self._all_since(since)
        if since:  # without ``since``, a topic is named with its first report
            for name in self._changes.since(since):
                reports.setdefault(name, [])
        topics = ((self._registry.managed_topic(name), found) for name, found in reports.items())
        found = [_topic_histories(topic, self._registry, found) for topic, found in topics if topic is not None]
        gone = [name for name, removed in self._removed.items() if removed.version > since > 0]
        return HistoryAnswer(version=self.version, topics=found, gone=gone)

    def _since(self, version: int) -> dict[str, list[BrokerHistory]]:
        """{topic: its reports after ``version``}, if none of them has been dropped. Costs by the number of reports."""
        found: dict[str, list[BrokerHistory]] = {}
        for stored in reversed(self._recent):
            if stored.version <= version:
                break
            if self._is_current(stored):
                found.setdefault(stored.report.history.topic, []).append(stored.report)
        for newest_first in found.values():
            newest_first.reverse()
        return found

    def _all_since(self, version: int) -> dict[str, list[BrokerHistory]]:
        """The same if reports were dropped: adds the steady ones."""
        names = {**dict.fromkeys(self._kept), **dict.fromkeys(self._steady)}
        reports = {
            name: [stored.report for stored in self._reports_of(name) if stored.version > version] for name in names
        }
        return {name: found for name, found in reports.items() if found}

    def _store(self, stored: _Stored) -> None:
        history = stored.report.history
        self._recent.append(stored)
        self._kept.setdefault(history.topic, deque()).append(stored)
        latest = self._steady.setdefault(history.topic, {})
        latest.pop(stored.report.broker, None)
        if history.steady:
            latest[stored.report.broker] = stored
        kind = "steady" if history.steady else "change" if history.change is not None else "moving"
        self.taken[kind] += 1
        self.bins[kind] += len(history.arrivals)

    def _renew(self, name: str, broker: str, incarnation: str, now_s: float) -> None:
        """The latest report still holds. This is no news. If it was dropped here, the broker sends it anew to the
        next leader."""
        latest = self._steady.get(name, {})
        if (stored := latest.get(broker)) is not None and stored.incarnation == incarnation:
            latest[broker] = stored._replace(received_s=now_s)

    def _reports_of(self, topic: str) -> list[_Stored]:
        """Oldest first."""
        oldest_s = trio.current_time() - _RETENTION_S
        kept = [stored for stored in self._kept.get(topic, ()) if stored.received_s >= oldest_s]
        first = kept[0].version if kept else math.inf
        steady = [
            stored for stored in self._steady.get(topic, {}).values() if stored.version < first and self._holds(stored)
        ]
        return [*steady, *(stored for stored in kept if self._is_current(stored))]

    def _holds(self, steady: _Stored) -> bool:
        """Whether the traffic may still be taken to be steady."""
        topic = self._registry.managed_topic(steady.report.history.topic)
        may_be_seldom = topic is not None and may_be_told_seldom(topic)
        return (
            may_be_seldom
            and steady.received_s >= trio.current_time() - _STEADY_RETENTION_S
            and self._is_current(steady)
        )

    def _is_current(self, stored: _Stored) -> bool:
        """Whether neither the topic nor the reporting process has ended, as far as is known."""
        gone = self._removed.get(stored.report.history.topic)
        if gone is not None and stored.version <= gone.version:
            return False
        broker = self._registry.brokers.get(stored.report.broker)
        return broker is not None and not broker.dead and broker.incarnation == stored.incarnation

    def _drop_old(self, now_s: float) -> None:
        while self._recent and self._recent[0].received_s < now_s - _RETENTION_S:
            oldest = self._recent.popleft()
            self._dropped_version, name = oldest.version, oldest.report.history.topic
            kept = self._kept[name]
            kept.popleft()
            if not kept:
                del self._kept[name]
        if now_s >= self._cleaned_s + _CLEAN_PERIOD_S:
            self._cleaned_s = now_s
            self._clean()

    def _clean(self) -> None:
        for name, latest in list(self._steady.items()):
            held = {broker: stored for broker, stored in latest.items() if self._holds(stored)}
            if held:
                self._steady[name] = held
            else:
                del self._steady[name]
        oldest_s = trio.current_time() - _REMOVED_RETENTION_S
        self._removed = {name: removed for name, removed in self._removed.items() if removed.at_s >= oldest_s}


def _bins(history: TopicHistory) -> list[_Bin]:
    supply = dict(history.supply)
    delay_ns = history.delay_ns or [0] * len(history.arrivals)
    rate: float | None = None
    bins = []
    for at, (arrivals, delayed_ns) in enumerate(zip(history.arrivals, delay_ns, strict=True)):
        rate = supply.get(at, rate)
        bins.append(_Bin(arrivals, delayed_ns, rate, history.bin_ns))
    return bins


def _arrival_rate(bins: Sequence[_Bin]) -> float:
    """In msg/s."""
    return sum(bin_.arrivals for bin_ in bins) / (sum(bin_.length_ns for bin_ in bins) / 1e9)


def _access_delay_ms(bins: Sequence[_Bin]) -> float | None:
    """The mean over all messages; None: not known."""
    arrivals = sum(bin_.arrivals for bin_ in bins)
    return None if arrivals == 0 or bins[-1].supply == 0 else sum(bin_.delay_ns for bin_ in bins) / arrivals / 1e6


def _topic_histories(topic: Topic, registry: Registry, reports: Sequence[BrokerHistory]) -> TopicHistories:
    shares = {
        name: Share(version=topic.holding(name).version, rate=target.rate / MICRO, burst=target.burst / MICRO)
        for name, target in topic.leases.target.items()
    }
    whole = assignable_envelope(topic)
    return TopicHistories(
        topic=topic.name,
        mode=topic.spec.mode,
        rate=whole.rate / MICRO,
        burst=whole.burst / MICRO,
        version=shares_version(topic),
        shares=shares,
        reports=list(reports),
        traits=traits(topic, registry.max_rate),
    )


def _are_counts(column: Sequence[float]) -> bool:
    """Whether all values are finite and from 0 to ``_MAX_COUNT``. There are millions: no loop in Python. The sum
    shows a NaN, which neither minimum nor maximum does."""
    return not column or (min(column) >= 0 and max(column) <= _MAX_COUNT and math.isfinite(sum(column)))


def _is_supply(supply: Sequence[tuple[int, float]], bins: int) -> bool:
    at = [number for number, _ in supply]
    ascends = all(before < after for before, after in pairwise([-1, *at, bins]))
    return not supply or (ascends and _are_counts([rate for _, rate in supply]))


def problem(history: TopicHistory, now_ns: int) -> str | None:
    """Why ``history``, received at ``now_ns`` (wall clock), cannot be right; None: it can."""
    columns: list[Sequence[float]] = [history.arrivals, history.waiting, history.unfinished]
    if history.delay_ns:
        columns.append(history.delay_ns)
    if not 0 < history.bin_ns <= _MAX_BIN_NS:
        return f"bin_ns {history.bin_ns} must be from 1 to {_MAX_BIN_NS}"
    if len({len(column) for column in columns}) != 1 or len(history.arrivals) > _MAX_BINS:
        return f"columns must be of one length, of at most {_MAX_BINS} bins"
    if not all(_are_counts(column) for column in columns):
        return f"counts must be from 0 to {_MAX_COUNT}"
    if not _is_supply(history.supply, len(history.arrivals)):
        return f"supply must be of ascending bins among those {len(history.arrivals)}, rates from 0 to {_MAX_COUNT}"
    if (change := history.change) is not None:
        if not 0 < change.span_ns <= _MAX_BIN_NS * _MAX_BINS:
            return f"change.span_ns {change.span_ns} must be from 1 to {_MAX_BIN_NS * _MAX_BINS}"
        if not (0 <= change.arrivals <= _MAX_COUNT and 0 <= change.waiting <= _MAX_COUNT):
            return f"counts must be from 0 to {_MAX_COUNT}"
        if not now_ns - _MAX_AGE_NS <= change.since_ns + change.span_ns <= now_ns + _MAX_FUTURE_NS:
            return "its change ends in the future, or more than a minute ago"
    if history.end_ns > now_ns + _MAX_FUTURE_NS:
        return "it ends in the future"
    if history.end_ns < now_ns - _MAX_AGE_NS:
        return "it ended more than a minute ago"
    return None
