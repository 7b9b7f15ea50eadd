"""The adaptor as a service: reads histories by long poll, proposes shares. It keeps nothing, so it may be killed and
started at any time, also twice: the distributor takes no proposal for a topic that has other limits, publishers or
places by now, and of several for the same one each replaces the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec
import trio

from adaptor.topics import TopicStates
from srtm.concurrency.backoff import Backoff
from srtm.concurrency.outage import Outage
from srtm.control import HistoryAnswer, ProposalResults, ShareProposal
from srtm.errors import SrtmError
from srtm.log import Log

_WAIT_S = 2.0  # that a question is held back for news
_ROUND_S = 0.02  # at most fifty rounds a second, however many topics move
_PIECE = 100  # topics that are looked at before what they call for goes out


class Distributor(Protocol):
    """What is asked of ``adaptor.distributor_feed.DistributorFeed``."""

    async def history(self, since: int, wait_s: float, ignored: int) -> HistoryAnswer: ...

    async def propose_shares(self, proposals: list[ShareProposal]) -> ProposalResults: ...


@dataclass
class Counters:
    """Since the start."""

    rounds: int = 0
    proposed: int = 0
    refused: int = 0


class Adaptor:
    """``run`` it until cancelled."""

    def __init__(self, distributor: Distributor, log: Log) -> None:
        self.topics = TopicStates()
        self.counters = Counters()
        self._distributor = distributor
        self._log = log
        self._since = 0
        self._pending: deque[HistoryAnswer] = deque()  # pieces of the last answer
        self._outage = Outage()
        self._refused: dict[str, int] = {}  # {topic: in how many rounds that proposed anything, up to the last one}
        self._ignored_sent = 0  # of what was ignored, what a distributor knows of
        self._warned: set[str] = set()  # brokers of which it was logged that they were ignored

    async def run(self) -> None:
        """Whatever the distributor answers, the next question follows: shares stay as they are meanwhile."""
        backoff = Backoff(first_s=0.1, longest_s=5.0)
        while True:
            started_s = trio.current_time()
            try:
                await self._round()
            except SrtmError as error:
                if self._outage.is_news(str(error)):
                    self._log.warning("no histories; shares stay as they are", reason=error)
                self.topics.disconnected()
                await trio.sleep(backoff.next_s())
            else:
                if self._outage.ends():
                    self._log.info("histories again")
                backoff.reset()
                await trio.sleep_until(started_s + (0.0 if self._pending else _ROUND_S))

    async def _round(self) -> None:
        """One answer, or the next piece of one that was long: a change waits for no backlog."""
        if not self._pending:
            wait_s = min(_WAIT_S, max(0.0, self.topics.due_s - trio.current_time()))
            ignored = self.topics.ignored.total()
            answer = await self._distributor.history(self._since, wait_s, ignored - self._ignored_sent)
            self._ignored_sent = ignored
            self._since = answer.version
            self._pending.extend(_pieces(answer))
        self.counters.rounds += 1
        proposals = self.topics.take(self._pending.popleft(), trio.current_time())
        self._warn_of_ignored()
        if not proposals:
            return
        self.counters.proposed += len(proposals)
        try:
            answered = await self._distributor.propose_shares(proposals)
        except SrtmError:
            self.topics.note_answers({proposal.topic: False for proposal in proposals}, trio.current_time())
            raise
        self.topics.note_answers({result.topic: result.taken for result in answered.results}, trio.current_time())
        self._note_refusals({result.topic: result.problem for result in answered.results if not result.taken})

    def _warn_of_ignored(self) -> None:
        """Once a broker; how often it was, whoever leads counts."""
        for broker in sorted(self.topics.ignored.keys() - self._warned):
            self._warned.add(broker)
            self._log.warning("histories that make no sense are ignored", broker=broker)

    def _note_refusals(self, problems: dict[str, str]) -> None:
        """A stale one is nothing new, and made again after a moment; twice in a row is told, once."""
        self.counters.refused += len(problems)
        self._refused = {topic: self._refused.get(topic, 0) + 1 for topic in problems}
        for topic in [topic for topic, rounds in self._refused.items() if rounds == 2]:
            self._log.warning("proposals are refused", topic=topic, reason=problems[topic])


def _pieces(answer: HistoryAnswer) -> Iterator[HistoryAnswer]:
    """``answer`` with some of its topics each, those that tell a change first."""
    topics = sorted(answer.topics, key=lambda topic: all(report.history.change is None for report in topic.reports))
    yield msgspec.structs.replace(answer, topics=topics[:_PIECE])
    for first in range(_PIECE, len(topics), _PIECE):
        yield HistoryAnswer(version=answer.version, topics=topics[first : first + _PIECE])
