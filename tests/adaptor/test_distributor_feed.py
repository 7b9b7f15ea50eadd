"""What the adaptor asks, of scripted distributors."""

from __future__ import annotations

import msgspec
import pytest
import trio
from trio.testing import MockClock

from adaptor.distributor_feed import DistributorFeed
from srtm.control import (
    HistoryAnswer,
    Problem,
    ProposalResult,
    ProposalResults,
    ProposedShare,
    ShareProposal,
    ShareProposals,
)
from srtm.errors import NotLeader, PeerError, Unavailable
from srtm.log import Log
from srtm.net.failover import Distributors

CLAIM = msgspec.json.encode(ShareProposals(proposals=[]))
ANSWER = HistoryAnswer(version=7, gone=["cars"])


class Scripted:
    """One distributor: answers each question with what ``said`` holds then."""

    def __init__(self, base_url: str, said: object, status: int = 200) -> None:
        self.base_url = base_url
        self.said = said
        self.status = status
        self.asked: list[tuple[str, str, bytes, float]] = []
        self.claims = 0  # that shares are this adaptor's

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]:
        if body == CLAIM and self.status == 200 and not isinstance(self.said, Unavailable):
            self.claims += 1
            return 200, msgspec.json.encode(ProposalResults(results=[]))
        self.asked.append((method, target, body, timeout_s))
        if isinstance(self.said, Unavailable):
            raise self.said
        return self.status, self.said if isinstance(self.said, bytes) else msgspec.json.encode(self.said)

    async def aclose(self) -> None:
        pass


def standby(base_url: str, leader: str | None) -> Scripted:
    problem = Problem(title=NotLeader.title, status=503, detail="it stands by", leader=leader)
    return Scripted(base_url, problem, 503)


def asking(*known: Scripted) -> DistributorFeed:
    def connect(url: str) -> Scripted:
        return Scripted(url, ANSWER)

    return DistributorFeed(Distributors(list(known), connect, Log("adaptor", lambda _line: None)))


async def test_histories_are_asked_for_with_more_patience_than_they_may_be_held_back() -> None:
    leader = Scripted("http://a:1", ANSWER)
    assert await asking(leader).history(41, 0.25, 0) == ANSWER
    ((method, target, _, timeout_s),) = leader.asked
    assert (method, target) == ("GET", "/v1/history?since=41&wait_s=0.25")
    assert timeout_s > 0.25


async def test_the_claim_on_shares_is_renewed_every_three_seconds_also_while_nothing_is_proposed(
    autojump_clock: MockClock,
) -> None:
    leader = Scripted("http://a:1", ANSWER)
    feed = asking(leader)
    for _ in range(10):
        await feed.history(0, 0.0, 0)
        await trio.sleep(1.0)
    assert leader.claims == 4


async def test_how_many_histories_made_no_sense_is_told_with_the_question() -> None:
    leader = Scripted("http://a:1", ANSWER)
    await asking(leader).history(41, 0.25, 3)
    assert leader.asked[0][1] == "/v1/history?since=41&wait_s=0.25&ignored=3"


async def test_proposals_go_out_as_they_are_and_what_became_of_each_comes_back() -> None:
    results = ProposalResults(results=[ProposalResult(topic="cars", taken=True)])
    leader = Scripted("http://a:1", results)
    proposal = ShareProposal(topic="cars", mode="fitted", version=3, shares={"a": ProposedShare(rate=1.0, burst=2.0)})
    assert await asking(leader).propose_shares([proposal]) == results
    ((method, target, body, _),) = leader.asked
    assert (method, target) == ("PUT", "/v1/shares")
    assert msgspec.json.decode(body)["proposals"] == [msgspec.to_builtins(proposal)]


@pytest.mark.parametrize("leader", ["http://b:1", "http://c:1", None])
async def test_a_standby_is_passed_over_for_whoever_leads_and_is_not_asked_again(leader: str | None) -> None:
    first, second = standby("http://a:1", leader), Scripted("http://b:1", ANSWER)
    both = asking(first, second)
    for _ in range(2):
        assert await both.history(0, 0.0, 0) == ANSWER
    assert len(first.asked) == 1
    assert len(second.asked) == (0 if leader == "http://c:1" else 2)


async def test_where_nobody_answers_each_was_asked_and_that_is_told() -> None:
    known = [Scripted(url, Unavailable("no answer")) for url in ("http://a:1", "http://b:1")]
    with pytest.raises(Unavailable, match="no answer"):
        await asking(*known).history(0, 0.0, 0)
    assert all(one.asked for one in known)


async def test_a_refusal_and_what_makes_no_sense_are_told() -> None:
    problem = Problem(title="unauthorized", status=401, detail="no token")
    for said, status, why in ((problem, 401, "401: no token"), (b'{"version": "x"}', 200, "no sense")):
        with pytest.raises(PeerError, match=why):
            await asking(Scripted("http://a:1", said, status)).history(0, 0.0, 0)
