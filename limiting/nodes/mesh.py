"""Links between all nodes over TCP: one for each pair, called by the node whose name comes first.

A link that says nothing for three seconds is down: each side says at least an empty message a second. What cannot be
sent is dropped: the machines repeat what was not acknowledged.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from limiting.nodes.members import Members
from limiting.wire.cluster_key import ClusterKey
from limiting.wire.session import LARGEST_MESSAGE, NONCE_BYTES, Session, Side
from srtm.concurrency.background import background_nursery
from srtm.concurrency.backoff import Backoff
from srtm.errors import BadInput, PeerError
from srtm.log import Log

PING_S, SILENCE_S, GREETING_S = 1.0, 3.0, 5.0
_FIRST_S, _LONGEST_S = 0.1, 2.0  # between two calls
_READ_BYTES = 64 << 10
_MOST_QUEUED = 64 << 20  # bytes that wait for one peer
_MOST_GREETING = 64  # connections that have not proved themselves

Connect = Callable[[str], Awaitable[trio.abc.Stream]]
_FAILURES = (PeerError, BadInput, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, OSError)


class Hears(Protocol):
    """What is told of the links, by names of nodes."""

    def up(self, name: str) -> None: ...

    def down(self, name: str) -> None: ...

    def message(self, name: str, message: bytes) -> None:
        """Raises PeerError or BadInput for a message that cannot be, which ends the link."""


@dataclass
class _Link:
    """An open session. ``wake``: there is something to send."""

    stream: trio.abc.Stream
    session: Session
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    waiting: list[bytes] = field(default_factory=list)
    size: int = 0
    wake: trio.Event = field(default_factory=trio.Event)
    was_up: bool = False


class Mesh:
    """The links of one node. ``connect``: opens a stream to a node by its name; ``told``: hears of the links."""

    def __init__(self, members: Members, key: ClusterKey, connect: Connect, told: Hears, log: Log) -> None:
        self.members = members
        self._key = key
        self._connect = connect
        self._log = log
        self._links: dict[str, _Link] = {}
        self._greeting = 0
        self._calling: trio.Nursery | None = None
        self._told = told

    def is_up(self, name: str) -> bool:
        """A node can be reached."""
        return name in self._links

    def send(self, name: str, message: bytes) -> None:
        """Send a message, if the node can be reached and takes what is sent."""
        link = self._links.get(name)
        if link is None or link.size + len(message) > _MOST_QUEUED:
            return
        if len(message) > LARGEST_MESSAGE:  # a snapshot of too many subjects: who asked drains instead
            self._log.warning("message_too_large", node=name, bytes=len(message))
            return
        link.waiting.append(message)
        link.size += len(message)
        link.wake.set()

    async def run(self) -> None:
        """Call the nodes whose names come later than this one's, until cancelled."""
        async with trio.open_nursery() as self._calling:
            for name in self.members.addresses:
                self._begin(name)
            await trio.sleep_forever()

    def meet(self, name: str, address: str) -> None:
        """A node is new, or at another address."""
        is_new = name not in self.members.addresses
        self.members.addresses[name] = address
        if is_new:
            self._begin(name)

    def _begin(self, name: str) -> None:
        if name > self.members.own and self._calling is not None:
            self._calling.start_soon(self._call, name)

    async def answer(self, stream: trio.abc.Stream) -> None:
        """Answer a connection until it ends."""
        if self._greeting >= _MOST_GREETING:
            await trio.aclose_forcefully(stream)
            return
        await self._talk(stream, self._session(Side.CALLED, None))

    async def _call(self, name: str) -> None:
        backoff = Backoff(_FIRST_S, _LONGEST_S)
        failed = False
        while True:
            try:
                with trio.fail_after(GREETING_S):
                    stream = await self._connect(name)
            except _FAILURES as error:
                if not failed:
                    self._log.warning("node_unreachable", node=name, reason=str(error) or type(error).__name__)
                failed = True
            else:
                failed = False
                if await self._talk(stream, self._session(Side.CALLER, name)):
                    backoff.reset()
            await trio.sleep(backoff.next_s())

    def _session(self, side: Side, expected: str | None) -> Session:
        return Session(side, self._key.links, self.members.own, secrets.token_bytes(NONCE_BYTES), expected)

    async def _talk(self, stream: trio.abc.Stream, session: Session) -> bool:
        """Until the link is down. True: the peer had proved itself."""
        link = _Link(stream, session)
        try:
            with link.scope:
                early = await self._greet(link)
                await self._linked(link, early)
        except* _FAILURES as errors:
            reasons = [str(error) or type(error).__name__ for error in errors.exceptions]
            self._log.warning("link_ended", node=session.peer, reason="; ".join(reasons))
        finally:
            await trio.aclose_forcefully(stream)
        return link.was_up

    async def _greet(self, link: _Link) -> list[bytes]:
        """Prove both sides to each other. Return messages that came with the proof."""
        self._greeting += 1
        try:
            with trio.fail_after(GREETING_S):
                if opening := link.session.begin():
                    await link.stream.send_all(opening)
                while True:
                    answer, messages = link.session.feed(await _read(link))
                    if answer:
                        await link.stream.send_all(answer)
                    if link.session.is_open:
                        return messages
        finally:
            self._greeting -= 1

    async def _linked(self, link: _Link, early: list[bytes]) -> None:
        name = link.session.peer or ""
        if name not in self.members.addresses:
            raise PeerError(f"{name} is not in this node's list of peers")
        before = self._links.get(name)
        self._links[name] = link
        link.was_up = True
        if before is None:
            self._log.info("node_up", node=name)
            self._told.up(name)
        else:
            before.scope.cancel()
        try:
            async with background_nursery() as nursery:
                nursery.start_soon(self._write, link)
                self._heard(name, early)
                while True:
                    with trio.fail_after(SILENCE_S):
                        data = await _read(link)
                    self._heard(name, link.session.feed(data)[1])
        finally:
            if self._links.get(name) is link:
                del self._links[name]
                self._told.down(name)

    def _heard(self, name: str, messages: list[bytes]) -> None:
        for message in messages:
            if message:
                self._told.message(name, message)

    async def _write(self, link: _Link) -> None:
        while True:
            with trio.move_on_after(PING_S):
                await link.wake.wait()
            link.wake = trio.Event()
            messages = link.waiting or [b""]
            link.waiting, link.size = [], 0
            with trio.fail_after(SILENCE_S):
                await link.stream.send_all(b"".join(map(link.session.seal, messages)))


async def _read(link: _Link) -> bytes:
    data = bytes(await link.stream.receive_some(_READ_BYTES))
    if not data:
        raise PeerError("it closed the connection")
    return data
