"""Sends histories to the distributor that leads: ``POST /v1/brokers/NAME/history``.

Histories have their own connections: a sync waits for its answer, and its reports of all topics cost more than a bin
each. A report that is not taken within a second is not repeated; the next one has the present state. The engine is
polled all the while, because it detects changes only in topics that are polled or watched.

A distributor that did not answer in time may have taken the report. Reports of steady traffic are the largest. So they
are sent again only when the outcome of the next report is known: a distributor without time is not sent more and more.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec
import trio

from broker.events import RateChanged, Unsteady
from broker.history.bins import EngineHistories
from broker.history.schedule import POLL_NS, HistorySchedule, Poll
from broker.runtime.wakeup import Wakeup
from srtm.concurrency.background import background_nursery
from srtm.control import HistoryReport, TopicHistory
from srtm.errors import PeerError
from srtm.log import Log
from srtm.net.failover import LONGEST_PAUSE_S, Distributors

if TYPE_CHECKING:
    from srtm._native import Engine

_ANSWER_TIMEOUT_S = 1.0
_REST_S = 5.0  # between looks for renewals, while nothing is polled
_DECODER = msgspec.json.Decoder(EngineHistories)


class _Outcome(Enum):
    """Of a report."""

    TAKEN = auto()
    REFUSED = auto()
    UNKNOWN = auto()  # no answer in time


class HistoryUploader:
    """Polls the engine and sends what is due. ``run`` it once; the other methods may be called any time."""

    def __init__(self, name: str, incarnation: str, engine: Engine, distributors: Distributors, log: Log) -> None:
        self._target = f"/v1/brokers/{name}/history"
        self._incarnation = incarnation
        self._engine = engine
        self._distributors = distributors
        self._log = log
        self._schedule = HistorySchedule()
        self._changes: list[RateChanged] = []  # not reported yet
        self._unsteady: list[str] = []  # topics that are not steady any more
        self._shares: dict[str, int] = {}  # {topic: version of its share}
        self._has_news = Wakeup()  # something may have to be polled before the next polls are due
        self._due: list[TopicHistory] = []  # of the last second at most, unless the report before was refused
        self._renewals: list[str] = []  # topics whose traffic is still steady
        self._has_due = Wakeup()
        self._trouble = ""  # why the latest report was refused

    def follow(self, topics: Collection[str], seldom: Collection[str] = ()) -> None:
        """Report ``topics`` from now on, and no others. Those in ``seldom`` need not report steady traffic."""
        self._schedule.follow(topics, seldom)
        self._update_watch()
        self._has_news.set()

    def note_rate_change(self, event: RateChanged) -> None:
        """The rate of a topic has changed: report it at once."""
        self._changes.append(event)
        self._has_news.set()

    def note_unsteady(self, event: Unsteady) -> None:
        """A topic is not steady any more: poll it."""
        self._unsteady.append(event.topic)
        self._has_news.set()

    def note_shares(self, versions: dict[str, int]) -> None:
        """{topic: version of the share in force}. Where that is another than before, the topic is polled."""
        changed = [name for name, version in versions.items() if self._shares.get(name, version) != version]
        self._shares = versions
        if changed:
            self._unsteady += changed
            self._has_news.set()

    def report_all_again(self) -> None:
        """The distributor that leads now has no earlier report."""
        self._reports_lost(self._schedule.names)

    async def run(self) -> None:
        """Until cancelled; then the connections are closed."""
        try:
            async with background_nursery() as nursery:
                nursery.start_soon(self._send_due_reports)
                await self._poll_engine()
        finally:
            await self._distributors.aclose()

    async def _poll_engine(self) -> None:
        while True:
            began_s = trio.current_time()
            self._add_due(self._polled_reports())
            self._add_renewals()
            while trio.current_time() < (next_s := began_s + self._period_s):
                with trio.move_on_at(next_s):
                    await self._has_news.wait()
                self._add_due(self._change_reports())

    @property
    def _period_s(self) -> float:
        return POLL_NS / 1e9 if self._schedule.are_moving else _REST_S

    def _add_due(self, due: list[TopicHistory]) -> None:
        if due:
            self._due += due
            self._has_due.set()

    def _add_renewals(self) -> None:
        renewals = self._schedule.renewals(_now_ns())
        if renewals:
            self._renewals += renewals
            self._has_due.set()

    async def _send_due_reports(self) -> None:
        unanswered: list[TopicHistory] | None = None  # steady ones of the report before; None: its outcome is known
        while True:
            await self._has_due.wait()
            due, self._due = self._due, []
            renewals, self._renewals = self._renewals, []
            outcome = await self._send(due, renewals)
            if renewals and outcome is not _Outcome.TAKEN:
                self._schedule.renewals_lost(_now_ns())
            if outcome is _Outcome.UNKNOWN and unanswered is None:
                unanswered = [report for report in due if report.steady]
                self._reports_lost([report.topic for report in due if not report.steady])
                continue
            if outcome is not _Outcome.TAKEN:
                self._reports_lost([report.topic for report in due])
            self._reports_lost([report.topic for report in unanswered or ()])
            unanswered = None

    def _reports_lost(self, topics: Collection[str]) -> None:
        self._schedule.reports_lost(topics)
        self._has_news.set()

    def _polled_reports(self) -> list[TopicHistory]:
        now_ns = _now_ns()
        due = []
        if (poll := self._schedule.poll()).topics:
            due += self._schedule.due_reports(self._ask(poll), now_ns)
        self._update_watch()
        if (whole := self._schedule.whole()) is not None:
            due += self._schedule.whole_reports(self._ask(whole), now_ns)
        return due

    def _update_watch(self) -> None:
        if (change := self._schedule.take_watch_change()) is not None:
            self._engine.watch(change.added, change.removed)

    def _change_reports(self) -> list[TopicHistory]:
        changes, self._changes = self._changes, []
        unsteady, self._unsteady = self._unsteady, []
        resting = self._schedule.resting([*(change.topic for change in changes), *unsteady])
        if resting is not None:
            self._schedule.move(self._ask(resting), resting.topics)
            self._update_watch()
        for topic in unsteady:
            self._schedule.disturb(topic)
        now_ns = _now_ns()
        return [report for change in changes if (report := self._schedule.rate_changed(change, now_ns)) is not None]

    def _ask(self, poll: Poll) -> EngineHistories:
        return _DECODER.decode(self._engine.histories(poll.topics, poll.since))

    async def _send(self, due: list[TopicHistory], renewals: list[str]) -> _Outcome:
        report = HistoryReport(incarnation=self._incarnation, topics=due, still_steady=renewals)
        body = msgspec.json.encode(report)
        failures = self._distributors.failures
        try:
            with trio.move_on_after(_ANSWER_TIMEOUT_S) as scope:
                await self._distributors.post("history", self._target, body)
        except PeerError as error:
            if str(error) != self._trouble:
                self._log.warning("the distributor refuses histories", reason=error)
            self._trouble = str(error)
            await trio.sleep(LONGEST_PAUSE_S)
            return _Outcome.REFUSED
        self._trouble = ""
        if not scope.cancelled_caught:
            return _Outcome.TAKEN
        await self._distributors.choose_next(None)  # a leader that hangs does not say who leads now
        return _Outcome.UNKNOWN if self._distributors.failures == failures else _Outcome.REFUSED


def _now_ns() -> int:
    return round(trio.current_time() * 1e9)
