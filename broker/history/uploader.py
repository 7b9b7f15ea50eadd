"""Sends histories (``broker.history.schedule``) to whichever distributor leads: ``POST /v1/brokers/NAME/history``.

Apart from the syncs, whose reports of all topics cost more than a bin each, and which wait for answers. What nobody
took within a second is not sent again: the next report says what is so now. The engine is asked all the while, for it
looks for changes only while somebody asks, and in topics that it is told to watch. A distributor that did not answer
within that second may have taken it all the same: that traffic is steady, which costs most to tell, is told again only
when the fate of the next report is known, so that one which has no time is not sent more and more.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec
import trio

from broker.events import Moved, Restless
from broker.history.bins import EngineHistories
from broker.history.polling import Question
from broker.history.schedule import Followed
from broker.runtime.wakeup import Wakeup
from srtm.concurrency.background import background_nursery
from srtm.control import HistoryReport, TopicHistory
from srtm.errors import PeerError
from srtm.log import Log
from srtm.net.failover import LONGEST_PAUSE_S, Distributors

if TYPE_CHECKING:
    from srtm._native import Engine

_PATIENCE_S = 1.0
_DECODER = msgspec.json.Decoder(EngineHistories)


class _Fate(Enum):
    """Of a report."""

    TAKEN = auto()
    REFUSED = auto()
    UNKNOWN = auto()  # no answer yet


class Histories:
    """``follow`` it after every answer to a sync, ``note_moved`` what the engine tells, ``run`` it once."""

    def __init__(self, name: str, incarnation: str, engine: Engine, distributors: Distributors, log: Log) -> None:
        self._target = f"/v1/brokers/{name}/history"
        self._incarnation = incarnation
        self._engine = engine
        self._distributors = distributors
        self._log = log
        self._followed = Followed()
        self._some = trio.Event()  # there is something to follow
        self._moved: list[Moved] = []  # not told yet
        self._restless: list[str] = []  # topics of which it is not known yet what comes there
        self._has_news = Wakeup()  # there may be something to ask before the next questions were due
        self._due: list[TopicHistory] = []  # of the last second at most, unless the one before was refused
        self._still_steady: list[str] = []  # topics to be named as such
        self._has_due = Wakeup()
        self._trouble = ""  # why the last report was refused

    def follow(self, topics: Collection[str], seldom: Collection[str] = ()) -> None:
        """From now on these, and no others; ``seldom``: those of them that are told seldom while they are steady."""
        self._followed.follow(topics, seldom)
        self._have_watched()
        self._has_news.set()
        if topics:
            self._some.set()
        elif self._some.is_set():
            self._some = trio.Event()

    def note_moved(self, moved: Moved) -> None:
        """The rate of a topic has changed: tell it at once."""
        self._moved.append(moved)
        self._has_news.set()

    def note_restless(self, restless: Restless) -> None:
        """A topic that the engine watches is not steady any more: look at it."""
        self._restless.append(restless.topic)
        self._has_news.set()

    def untell_all(self) -> None:
        """Whoever leads knows nothing of what was told before."""
        self._untell(self._followed.names)

    async def run(self) -> None:
        """Until cancelled; then the connections are closed."""
        try:
            async with background_nursery() as nursery:
                nursery.start_soon(self._send_what_is_due)
                await self._look_for_what_is_due()
        finally:
            await self._distributors.aclose()

    async def _look_for_what_is_due(self) -> None:
        while True:
            await self._some.wait()
            began_s = trio.current_time()
            self._post(self._look())
            self._renew()
            while trio.current_time() < (again_s := began_s + self._followed.asking.period_ns / 1e9):
                with trio.move_on_at(again_s):
                    await self._has_news.wait()
                self._post(self._changes())

    def _post(self, due: list[TopicHistory]) -> None:
        if due:
            self._due += due
            self._has_due.set()

    def _renew(self) -> None:
        renewed = self._followed.renewals(round(trio.current_time() * 1e9))
        if renewed:
            self._still_steady += renewed
            self._has_due.set()

    async def _send_what_is_due(self) -> None:
        unanswered: list[TopicHistory] | None = None  # of the report before; None: its fate is known
        while True:
            await self._has_due.wait()
            due, self._due = self._due, []
            still_steady, self._still_steady = self._still_steady, []
            fate = await self._send(due, still_steady)
            if fate is not _Fate.TAKEN:
                self._followed.renew_again(still_steady)
            if fate is _Fate.UNKNOWN and unanswered is None:
                unanswered = [one for one in due if one.steady]
                self._untell([one.topic for one in due if not one.steady])
                continue
            if fate is not _Fate.TAKEN:
                self._untell([one.topic for one in due])
            self._untell([one.topic for one in unanswered or ()])
            unanswered = None

    def _untell(self, topics: Collection[str]) -> None:
        self._followed.untell(topics)
        self._has_news.set()

    def _look(self) -> list[TopicHistory]:
        now_ns = round(trio.current_time() * 1e9)
        due = []
        for question in self._followed.asking.questions(now_ns):
            due += self._followed.take(self._ask(question), now_ns, question)
        self._have_watched()
        return due

    def _have_watched(self) -> None:
        if (watched := self._followed.asking.take_watched()) is not None:
            self._engine.watch(watched.topics, watched.no_longer)

    def _changes(self) -> list[TopicHistory]:
        moved, self._moved = self._moved, []
        restless, self._restless = self._restless, []
        for question in self._followed.asking.of_sleepers([*(one.topic for one in moved), *restless]):
            self._followed.note(self._ask(question), question)
        for topic in restless:
            self._followed.disturb(topic)
        self._have_watched()
        now_ns = round(trio.current_time() * 1e9)
        return [report for one in moved if (report := self._followed.move(one, now_ns)) is not None]

    def _ask(self, question: Question) -> EngineHistories:
        return _DECODER.decode(self._engine.histories(question.topics, question.since))

    async def _send(self, due: list[TopicHistory], still_steady: list[str]) -> _Fate:
        report = HistoryReport(incarnation=self._incarnation, topics=due, still_steady=still_steady)
        body = msgspec.json.encode(report)
        failures = self._distributors.failures
        try:
            with trio.move_on_after(_PATIENCE_S) as patience:
                await self._distributors.post("history", self._target, body)
        except PeerError as error:
            if str(error) != self._trouble:
                self._log.warning("histories are refused", reason=error)
            self._trouble = str(error)
            await trio.sleep(LONGEST_PAUSE_S)
            return _Fate.REFUSED
        self._trouble = ""
        if not patience.cancelled_caught:
            return _Fate.TAKEN
        await self._distributors.choose_next(None)  # a leader that hangs does not say who leads now
        return _Fate.UNKNOWN if self._distributors.failures == failures else _Fate.REFUSED
