"""The distributors that a member of a cluster knows, the one to be asked first: the leader, where a standby says which
one that is, else whoever was not asked for longest. One task at a time uses one of these."""

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

LONGEST_PAUSE_S = 1.0  # between rounds in which none could be reached
_ANSWER_S = 3.0  # nothing that is asked here takes a distributor long, but it may be busy planning


class Distributor(Protocol):
    """One distributor's HTTP (``srtm.net.http_client.HttpClient``)."""

    base_url: str

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]: ...

    async def aclose(self) -> None: ...


class Distributors:
    """``known``: at least one. ``connect``: to a leader that is not among them. ``failures``: attempts of ``post`` that
    came to nothing, since the start."""

    def __init__(self, known: Sequence[Distributor], connect: Callable[[str], Distributor], log: Log) -> None:
        self._known = list(known)  # the first one is asked first
        self._connect = connect
        self._extra: Distributor | None = None  # a leader that is none of those given
        self._log = log
        self.failures = 0

    @property
    def first(self) -> Distributor:
        return self._known[0]

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Distributor]:
        return iter(list(self._known))

    async def aclose(self) -> None:
        """Closing takes no time; a checkpoint in the first does not skip the rest."""
        with trio.CancelScope(shield=True):
            for distributor in self._known:
                await distributor.aclose()

    async def post(self, what: str, target: str, body: bytes) -> bytes:
        """The leader's answer, from whichever comes to lead, however long that takes; ``body`` may come twice. Raises
        PeerError: it refuses us, or makes no sense."""
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
        """The answer of whoever is asked first; ``body`` may come twice. Raises PeerError as ``post`` does; Unavailable
        where there is no answer, or not from a leader (NotLeader): the next question is for another one then."""
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
        """Who is asked first from now on: ``leader`` (a URL), or whoever was not asked for longest. The token goes to
        nobody in clear of whom was told over TLS."""
        asked = self._known.pop(0)
        self._known.append(asked)
        if leader is None:
            return
        if asked.base_url.startswith("https:") and not leader.startswith("https:"):
            self._log.warning("the leader cannot be asked", reason=f"{asked.base_url} names {leader}, without TLS")
            return
        known = next((one for one in self._known if one.base_url == leader), None)
        if known is None:
            known = await self._connect_to(leader)
        if known is not None:
            self._known.remove(known)
            self._known.insert(0, known)

    async def _connect_to(self, leader: str) -> Distributor | None:
        """Only the latest leader that is none of the configured ones is kept. None: it has no URL."""
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


def connected(urls: Sequence[str], log: Log, *, token: str | None, ca_file: str | None) -> Distributors:
    """Those at ``urls``; ``ca_file``: as of ``srtm.net.tls_trust.trusting``. Raises BadInput."""
    connect = partial(connect_to, token=token, ca_file=ca_file)
    return Distributors([connect(url) for url in urls], connect, log)


def connect_to(url: str, *, token: str | None, ca_file: str | None) -> HttpClient:
    """To one distributor. Raises BadInput."""
    return HttpClient(url, token=token, tls=trusting(ca_file) if url.startswith("https:") else None)


class Disowned(PeerError):
    """The distributor takes another process for the broker of this name."""


def refused(url: str, what: str, status: int, body: bytes) -> SrtmError:
    """What an answer that is none means: NotLeader (a standby), Unavailable (out of order for now), Disowned,
    PeerError."""
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
