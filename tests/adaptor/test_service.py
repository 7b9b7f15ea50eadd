"""The adaptor against a scripted distributor, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio
from trio.testing import MockClock

from adaptor.service import Adaptor
from srtm.control import HistoryAnswer, ProposalResult, ProposalResults, RateChange, ShareProposal, TopicHistories
from srtm.errors import NotLeader, SrtmError, Unavailable
from srtm.log import Log
from tests.adaptor.test_topics import counts, history, told


class Scripted:
    """Answers in order; then it has nothing to tell."""

    def __init__(self, *answers: HistoryAnswer | SrtmError) -> None:
        self._answers = list(answers)
        self.asked: list[int] = []
        self.ignored: list[int] = []  # as told with each question
        self.proposals: list[ShareProposal] = []
        self.rounds: list[list[str]] = []  # their topics, by request
        self.idle = trio.Event()

    async def history(self, since: int, wait_s: float, ignored: int) -> HistoryAnswer:
        self.asked.append(since)
        self.ignored.append(ignored)
        if not self._answers:
            self.idle.set()
            await trio.sleep(wait_s)
            return HistoryAnswer(version=since)
        answer = self._answers.pop(0)
        if isinstance(answer, SrtmError):
            raise answer
        return answer

    async def propose_shares(self, proposals: list[ShareProposal]) -> ProposalResults:
        self.proposals += proposals
        self.rounds.append([one.topic for one in proposals])
        return ProposalResults(results=[ProposalResult(topic=one.topic, taken=False) for one in proposals])


async def run(distributor: Scripted, write: Callable[[str], None] = lambda _line: None) -> Adaptor:
    adaptor = Adaptor(distributor, Log("adaptor", write))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(adaptor.run)
        await distributor.idle.wait()
        nursery.cancel_scope.cancel()
    return adaptor


def moved(version: int) -> HistoryAnswer:
    both = told(("b1", history(0, counts(100, 50, 1))), ("b2", history(0, counts(900, 50, 2))))
    return HistoryAnswer(version=version, topics=both.topics)


async def test_what_histories_call_for_is_proposed_and_the_next_question_goes_on_from_there(
    autojump_clock: MockClock,
) -> None:
    distributor = Scripted(moved(41))
    adaptor = await run(distributor)
    assert distributor.asked == [0, 41]
    assert [one.topic for one in distributor.proposals] == ["cars"]
    assert adaptor.counters.refused == 1


async def test_histories_that_make_no_sense_are_told_of_once_though_an_answer_is_lost_and_logged_once_a_broker(
    autojump_clock: MockClock,
) -> None:
    lines: list[str] = []
    nonsense = history(0, [1], bin_ns=7)
    distributor = Scripted(told(("b1", nonsense)), Unavailable("no answer"), told(("b1", nonsense), ("b2", nonsense)))
    await run(distributor, lines.append)
    assert distributor.ignored == [0, 1, 1, 2]
    logged = [line for line in lines if "make no sense" in line]
    assert ["b1" in line for line in logged] == [True, False]


class Slow(Scripted):
    """Has news five times a second."""

    async def history(self, since: int, wait_s: float, ignored: int) -> HistoryAnswer:
        await trio.sleep(0.2)
        return await super().history(since, wait_s, ignored)


async def test_proposals_that_are_refused_are_made_again_and_that_is_told_once(autojump_clock: MockClock) -> None:
    lines: list[str] = []
    distributor = Slow(*(moved(version) for version in range(1, 41)))
    adaptor = await run(distributor, lines.append)
    assert adaptor.counters.refused == len(distributor.proposals) > 3
    assert sum("refused" in line for line in lines) == 1


def named(name: str, one: TopicHistories) -> TopicHistories:
    return msgspec.structs.replace(one, topic=name)


async def test_of_a_long_answer_what_tells_a_change_is_answered_first_and_the_rest_after_it(
    autojump_clock: MockClock,
) -> None:
    (plain,) = moved(1).topics
    changes = [RateChange(since_ns=5_000_000_000, span_ns=20_000_000, arrivals=one, waiting=0) for one in (20, 180)]
    after = told(*((name, history(50, [], change=one)) for name, one in zip(("b1", "b2"), changes, strict=True)))
    reports = after.topics[0].reports
    changed = msgspec.structs.replace(plain, topic="changed", reports=reports)
    names = [f"t{number}" for number in range(250)]
    distributor = Scripted(HistoryAnswer(version=5, topics=[*(named(name, plain) for name in names), changed]))
    await run(distributor)
    assert distributor.asked == [0, 5]
    assert distributor.rounds[0] == ["changed", *sorted(names[:99])]
    assert [len(one) for one in distributor.rounds] == [100, 100, 51]
    assert {name for one in distributor.rounds for name in one} == {"changed", *names}


async def test_a_distributor_that_is_away_or_stands_by_is_asked_again(autojump_clock: MockClock) -> None:
    distributor = Scripted(Unavailable("no answer"), NotLeader(None), moved(3))
    await run(distributor)
    assert distributor.asked == [0, 0, 0, 3]
    assert len(distributor.proposals) == 1


class Busy(Scripted):
    """Does not answer the first proposals."""

    async def propose_shares(self, proposals: list[ShareProposal]) -> ProposalResults:
        answer = await super().propose_shares(proposals)
        if len(self.rounds) == 1:
            raise Unavailable("no answer within 5 s")
        return answer


async def test_what_was_proposed_and_not_answered_is_proposed_again_though_nothing_more_is_told(
    autojump_clock: MockClock,
) -> None:
    distributor = Busy(moved(3))
    adaptor = Adaptor(distributor, Log("adaptor"))
    with trio.move_on_after(3.0):
        await adaptor.run()
    assert distributor.rounds[:2] == [["cars"], ["cars"]]
    assert distributor.proposals[0] == distributor.proposals[1]


async def test_while_nothing_is_told_it_asks_once_in_two_seconds(autojump_clock: MockClock) -> None:
    distributor = Scripted()
    adaptor = Adaptor(distributor, Log("adaptor"))
    with trio.move_on_after(60):
        await adaptor.run()
    assert len(distributor.asked) <= 31


async def test_a_change_is_answered_at_once(autojump_clock: MockClock) -> None:
    before = told(("b1", history(0, counts(500, 50, 1))), ("b2", history(0, counts(500, 50, 2))))
    change = RateChange(since_ns=5_000_000_000, span_ns=20_000_000, arrivals=180, waiting=60)
    after = told(("b1", history(50, [], change=change)))
    distributor = Scripted(before, after)
    adaptor = Adaptor(distributor, Log("adaptor", lambda _line: None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(adaptor.run)
        await trio.sleep(0.3)
        nursery.cancel_scope.cancel()
    assert [one.shares["b1"].rate > 6_000 for one in distributor.proposals] == [True]


async def test_what_was_silent_while_no_answer_came_has_not_ended(autojump_clock: MockClock) -> None:
    before = told(("b1", history(0, counts(4, 100, 1))), ("b2", history(0, [*counts(4, 99, 2), 0])))
    went_on = told(("b1", history(100, counts(4, 100, 3))))
    distributor = Scripted(before, *[Unavailable("no answer")] * 6, went_on)
    await run(distributor)
    assert distributor.asked == [0, *[1] * 8]
    assert distributor.proposals == []
