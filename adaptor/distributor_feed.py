"""What the adaptor asks of whichever distributor leads, over one kept-alive connection: a round costs a third of a
millisecond, and there may be a hundred in a second."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec
import trio

from srtm.control import HistoryAnswer, ProposalResults, ShareProposal, ShareProposals
from srtm.errors import PeerError, Unavailable
from srtm.net.failover import Distributors

_PATIENCE_S = 5.0  # beyond what it was asked to wait: it may be busy planning
_RENEWAL_S = 3.0  # of the claim that shares are this adaptor's, which a distributor keeps for 10 s
_T = TypeVar("_T")


class DistributorFeed:
    """For one task at a time. Every call raises Unavailable where nobody who leads answers, PeerError for a refusal or
    an answer that makes no sense."""

    def __init__(self, distributors: Distributors) -> None:
        self._distributors = distributors
        self._claimed_s = float("-inf")

    async def aclose(self) -> None:
        await self._distributors.aclose()

    async def history(self, since: int, wait_s: float, ignored: int) -> HistoryAnswer:
        """What brokers reported since; held back for up to ``wait_s`` while there is nothing. ``ignored``: reports of
        earlier answers that made no sense and were not told of yet. Renews the claim that shares are this adaptor's."""
        if trio.current_time() >= self._claimed_s + _RENEWAL_S:
            await self.propose_shares([])
        target = f"/v1/history?since={since}&wait_s={wait_s:g}"
        target += f"&ignored={ignored}" if ignored else ""
        answer = await self._answer("a question for histories", "GET", target, b"", wait_s + _PATIENCE_S)
        return _decoded(answer, HistoryAnswer)

    async def propose_shares(self, proposals: list[ShareProposal]) -> ProposalResults:
        """What became of each, in order."""
        body = msgspec.json.encode(ShareProposals(proposals=proposals))
        answer = await self._answer("a proposal of shares", "PUT", "/v1/shares", body, _PATIENCE_S)
        self._claimed_s = trio.current_time()
        return _decoded(answer, ProposalResults)

    async def _answer(self, what: str, method: str, target: str, body: bytes, timeout_s: float) -> bytes:
        """Of the first that leads: each is asked, and then whomever the last of them has named."""
        for _ in range(len(self._distributors)):
            with suppress(Unavailable):
                return await self._distributors.ask(what, method, target, body, timeout_s=timeout_s)
        return await self._distributors.ask(what, method, target, body, timeout_s=timeout_s)


def _decoded(answer: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise PeerError(f"a distributor answered what makes no sense here: {error}") from error
