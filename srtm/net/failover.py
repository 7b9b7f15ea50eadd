"""Failover between distributors: a member of a cluster asks the leader, whichever distributor that is.

A standby names the leader. If none does, the distributor that was asked longest ago is next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import msgspec
import trio

from srtm.concurrency.backoff import Backoff
from srtm.control import Problem
from srtm.errors import BadInput, NotLeader, PeerError, SrtmError, Unavailable
from srtm.log import Log
from srtm.net.decode_errors import UNREADABLE
from srtm.net.http_client import HttpClient
from srtm.net.tls_trust import trusting
from srtm.net.tokens import OwnToken

LONGEST_PAUSE_S = 1.0  # between rounds in which no distributor answered
_ANSWER_S = 3.0  # the requests made here are short, but a distributor may be busy with planning


class Distributor(Protocol):
    """The HTTP connection to one distributor (``srtm.net.http_client.HttpClient``)."""

    base_url: str

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]: ...

    async def aclose(self) -> None: ...


class Distributors:
    """The distributors of one cluster, for one task at a time.

    ``known``: at least one. ``connect``: connects to a leader that is not among them. ``failures``: failed attempts of
    ``post`` since the start.
    """

    def __init__(self, known: Sequence[Distributor], connect: Callable[[str], Distributor], log: Log) -> None:
        self._known = list(known)  # the first one is asked next
        self._connect = connect
        self._extra: Distributor | None = None  # a leader that was not given in ``known``
        self._log = log
        self.failures = 0

    @property
    def first(self) -> Distributor:
        """The distributor that is asked next."""
        return self._known[0]

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Distributor]:
        return iter(list(self._known))

    async def aclose(self) -> None:
        """Close all connections, at once."""
        with trio.CancelScope(shield=True):  # a cancellation in one does not skip the others
            for distributor in self._known:
                await distributor.aclose()

    async def post(self, what: str, target: str, body: bytes) -> bytes:
        """Ask until a leader answers, however long that takes, and return its answer.

        ``body`` may arrive twice. Raises PeerError if the leader refuses the request or its answer cannot be read.
        """
        backoff = Backoff(first_s=0.1, longest_s=LONGEST_PAUSE_S)
        failures = 0
        while True:
            try:
                return await self.ask(what, "POST", target, body)
            except Unavailable:
                failures += 1
                self.failures += 1
                if failures % len(self) == 0:
                    await trio.sleep(backoff.next_s())

    async def ask(
        self, what: str, method: str, target: str, body: bytes = b"", *, timeout_s: float = _ANSWER_S
    ) -> bytes:
        """Ask the first distributor once and return its answer. ``body`` may arrive twice.

        Raises PeerError as ``post`` does, Unavailable if there is no answer, NotLeader if a standby answers. After the
        last two the next request goes to another distributor.
        """
        distributor = self.first
        try:
            status, answer = await distributor.request(method, target, body, timeout_s=timeout_s)
            if status < 300:
                return answer
            raise refused(distributor.base_url, what, status, answer)
        except Unavailable as error:
            await self.choose_next(error.leader if isinstance(error, NotLeader) else None)
            raise

    async def choose_next(self, leader: str | None) -> None:
        """Make ``leader`` (a URL) the next to be asked; None: the one that was asked longest ago.

        A leader without TLS is ignored if it was named over TLS, because the token would be sent in clear.
        """
        asked = self._known.pop(0)
        self._known.append(asked)
        if leader is None:
            return
        if asked.base_url.startswith("https:") and not leader.startswith("https:"):
            self._log.warning("the leader cannot be asked", reason=f"{asked.base_url} names {leader}, without TLS")
            return
        known = next((distributor for distributor in self._known if distributor.base_url == leader), None)
        if known is None:
            known = await self._connect_to(leader)
        if known is not None:
            self._known.remove(known)
            self._known.insert(0, known)

    async def _connect_to(self, leader: str) -> Distributor | None:
        """Connect to a leader that is not configured; only the latest such leader is kept. None: its URL is invalid."""
        try:
            connected = self._connect(leader)
        except BadInput as error:
            self._log.warning("the leader cannot be asked", reason=error)
            return None
        before, self._extra = self._extra, connected
        self._known.append(connected)
        if before is not None:
            self._known.remove(before)
            with trio.CancelScope(shield=True):  # closing takes no time
                await before.aclose()
        return connected


def connected(urls: Sequence[str], log: Log, *, token: OwnToken | None, ca_file: str | None) -> Distributors:
    """Return the distributors at ``urls``. ``ca_file``: see ``srtm.net.tls_trust.trusting``. Raises BadInput."""
    connect = partial(connect_to, token=token, ca_file=ca_file)
    return Distributors([connect(url) for url in urls], connect, log)


def connect_to(url: str, *, token: OwnToken | None, ca_file: str | None) -> HttpClient:
    """Return a client of the distributor at ``url``. Raises BadInput."""
    return HttpClient(url, token=token, tls=trusting(ca_file) if url.startswith("https:") else None)


class Disowned(PeerError):
    """The distributor knows another process as the broker of this name."""


def refused(url: str, what: str, status: int, body: bytes) -> SrtmError:
    """Return the error of an unsuccessful answer: NotLeader, Unavailable (status 5xx), Disowned or PeerError."""
    problem = _problem(status, body)
    text = f"{url}: {what} answered {status}: {problem.detail}"
    if status == 503 and problem.title == NotLeader.title:
        return NotLeader(problem.leader)
    if status >= 500:
        return Unavailable(text)
    return Disowned(text) if (status, problem.field) == (409, "incarnation") else PeerError(text)


def _problem(status: int, body: bytes) -> Problem:
    try:
        return msgspec.json.decode(body, type=Problem)
    except UNREADABLE:
        return Problem(title="", status=status, detail=body[:200].decode(errors="replace"))
