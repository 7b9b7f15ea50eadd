"""Corrections and releases on several nodes: the node that decided takes each, once, and the others ask it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from limiting.nodes.group import Clocks
from limiting.replication.messages import Corrected, Correction, Release
from limiting.replication.node_grants import CORRECT_WITHIN_US, Grant, Grants, Outcome
from limiting.replication.refill import Subject
from limiting.wire.cluster_key import ClusterKey, number_of
from limiting.wire.sealed_grants import read_grant, sealed
from srtm.errors import BadInput, PeerError, Unavailable

ANSWERED_WITHIN_S = 1.0
_NO = {
    Outcome.USED: "was used before",
    Outcome.OLD: f"is older than {CORRECT_WITHIN_US // 1_000_000} s",
    Outcome.ENDED: "is of no open request: it was released before, or has expired",
    Outcome.FORGOTTEN: "is of an earlier start of node {}, which no longer knows which grants were used",
}


class Corrections:
    """``names``: of the other nodes, by number. ``charge``: takes (below 0: gives back) what a grant's request came to
    besides its cost. ``end``: ends its open request; False: that is not open. ``send``: sends a frame about a contract,
    by its tag, to a node; False: it cannot be reached."""

    def __init__(
        self,
        own: str,
        names: Mapping[int, str],
        key: ClusterKey,
        clocks: Callable[[], Clocks],
        charge: Callable[[Grant, int], None],
        end: Callable[[Grant], bool],
        send: Callable[[int, bytes, object], bool],
    ) -> None:
        self._own, self._number, self._names = own, number_of(own), names
        self._key, self._clocks = key, clocks
        self._charge, self._end, self._send = charge, end, send
        self._grants = Grants(self._number, *clocks())
        self._asked: dict[int, trio.Event] = {}  # by ticket
        self._said: dict[int, Outcome] = {}
        self._ticket = 0

    def made(self, group: bytes, subject: Subject, cost: int) -> Grant:
        """The grant of a take at this node. None has its instant again: that is the request's name."""
        return self._grants.made(group, subject, cost, self._clocks()[0])

    def sealed(self, grant: Grant) -> bytes:
        """A grant as clients get it."""
        return sealed(grant, self._key)

    def read(self, content: bytes) -> Grant | None:
        """Read a grant of any node. None: it is none of this cluster."""
        return read_grant(content, self._key)

    async def correct(self, content: bytes, grant: Grant, cost: int) -> None:
        """Replace the cost of a grant. Raises BadInput, Unavailable (the node that decided does not answer)."""
        if grant.node == self._number:
            outcome = self._take(grant, cost)
        else:
            outcome = await self._ask(grant, lambda ticket: Correction(self._number, ticket, content, cost))
        self._check(grant, outcome)

    async def release(self, content: bytes, grant: Grant) -> None:
        """End the open request of a grant. Raises as ``correct``."""
        if grant.node == self._number:
            outcome = self._release(grant)
        else:
            outcome = await self._ask(grant, lambda ticket: Release(self._number, ticket, content))
        self._check(grant, outcome)

    def _check(self, grant: Grant, outcome: Outcome) -> None:
        name = self._name_of(grant.node)
        if outcome is Outcome.FULL:
            raise Unavailable(f"node {name} has taken as many corrections in a minute as it remembers", 1.0)
        if outcome is not Outcome.TAKEN:
            raise BadInput("grant", "(not shown)", _NO[outcome].format(name))

    def _name_of(self, number: int) -> str:
        if number == self._number:
            return self._own
        if number not in self._names:
            raise BadInput("grant", "(not shown)", "is of a node that is not in this node's list of peers")
        return self._names[number]

    def _take(self, grant: Grant, cost: int) -> Outcome:
        outcome = self._grants.use(grant, self._clocks()[0])
        if outcome is Outcome.TAKEN:
            self._charge(grant, cost - grant.cost)
        return outcome

    def _release(self, grant: Grant) -> Outcome:
        if not self._grants.is_known(grant):
            return Outcome.FORGOTTEN
        return Outcome.TAKEN if self._end(grant) else Outcome.ENDED

    async def _ask(self, grant: Grant, question: Callable[[int], Correction | Release]) -> Outcome:
        name = self._name_of(grant.node)
        self._ticket += 1
        ticket = self._ticket
        event = self._asked[ticket] = trio.Event()
        try:
            why = "cannot be reached"
            if self._send(grant.node, grant.group, question(ticket)):
                why = f"has not answered within {ANSWERED_WITHIN_S:g} s"
                with trio.move_on_after(ANSWERED_WITHIN_S):
                    await event.wait()
                    return self._said[ticket]
        finally:
            del self._asked[ticket]
            self._said.pop(ticket, None)
        raise Unavailable(f"node {name}, which decided the check, alone takes what comes after it, and {why}", 1.0)

    def heard(self, group: bytes, frame: Correction | Release | Corrected) -> None:
        """Take in what a peer asks about a contract, or answers. Raises PeerError for what cannot be."""
        if isinstance(frame, Corrected):
            self._answered(frame)
            return
        grant = self.read(frame.grant)
        if grant is None or (grant.node, grant.group) != (self._number, group):
            raise PeerError(f"node {frame.origin} asks about a grant that is none of this node")
        outcome = self._take(grant, frame.cost) if isinstance(frame, Correction) else self._release(grant)
        self._send(frame.origin, group, Corrected(self._number, frame.ticket, outcome))

    def _answered(self, frame: Corrected) -> None:
        if frame.outcome not in tuple(Outcome):
            raise PeerError(f"a correction has the outcome {frame.outcome}, which there is not")
        if frame.ticket in self._asked:
            self._said[frame.ticket] = Outcome(frame.outcome)
            self._asked[frame.ticket].set()
