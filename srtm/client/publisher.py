"""``Publisher``: messages to one topic, by way of whichever broker this publisher is assigned to.

Any number of tasks may publish at once; commands go out in the order of the calls and their answers are matched in that
order. When the broker dies or closes, what it had not answered is sent again, in order, to wherever the distributor
then says: **at least once**, so a message whose answer was lost with the connection may arrive twice.

When the broker says ``_move_``, it goes on there until it is connected to the new one. Then it stops, waits for what is
outstanding, and until the last of it has left the old broker (``srtm.client.handover``; 5 s at most), and goes on at
the new one: no message twice, none before an earlier one. A broker that cannot be reached is not moved to.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import trio

from srtm import protocol as wire
from srtm.client.connection import Connect, Link, LinkLost, dial, open_link
from srtm.client.distributor import DistributorClient
from srtm.client.handover import HandOver
from srtm.concurrency.background import background_nursery
from srtm.concurrency.backoff import Backoff
from srtm.errors import PeerError, PublishRefused, SrtmError, Unavailable
from srtm.protocol import Receipt

_ASK_TIMEOUT_S = 2.0  # a distributor that is away must not keep a publisher from the broker that it knows
# The broker cannot take anything just now: it is starting, or its memory is full.
_UNABLE = frozenset({"E_PUB_FAILED", "E_MPUB_FAILED"})
_REFUSALS = _UNABLE | {"E_RATE_LIMITED", "E_BAD_MESSAGE", "E_BAD_TOPIC", "E_UNAUTHORIZED"}


@dataclass(eq=False, slots=True)
class _Pending:
    """One publish on its way: waiting, then outstanding (sent, no answer yet), then settled."""

    command: bytes
    settled: trio.Event = field(default_factory=trio.Event)
    receipt: Receipt | None = None
    error: Exception | None = None
    abandoned: bool = False  # its caller was cancelled: the answer, if one comes, is for nobody

    def settle(self, receipt: Receipt | None, error: Exception | None = None) -> None:
        self.receipt, self.error = receipt, error
        self.settled.set()


class Publisher:
    """An async context manager. ``distributor``: URLs, or a client that several publishers share. ``brokers``: plain
    NSQ brokers (HOST:PORT), tried in turn, instead of asking a distributor.

    Entering raises NotFound (no such topic), BadInput, or Unavailable if there is no broker within
    ``patience_s``. Later trouble with brokers and distributors is waited out, with a growing pause between
    tries; but a broker that answers for longer than ``patience_s`` that it can take nothing (E_PUB_FAILED: it is
    starting, its memory is full) is told to the callers.
    """

    def __init__(
        self,
        topic: str,
        publisher_id: str,
        *,
        distributor: str | Sequence[str] | DistributorClient | None = None,
        brokers: Sequence[str] = (),
        token: str | None = None,
        max_outstanding: int = 1000,
        patience_s: float = 10.0,
        connect: Connect = dial,
    ) -> None:
        self.topic = wire.checked_name("topic", topic)
        self.publisher_id = publisher_id
        self._brokers = list(brokers)
        self._shared_client = isinstance(distributor, DistributorClient)
        self._client: DistributorClient | None = None
        if isinstance(distributor, DistributorClient):
            self._client = distributor
        elif not brokers:
            self._client = DistributorClient(distributor, token=token, timeout_s=_ASK_TIMEOUT_S)
        self._connect = connect
        self._patience_s = patience_s
        self._slots = trio.Semaphore(max_outstanding)
        self._waiting: deque[_Pending] = deque()
        self._outstanding: deque[_Pending] = deque()
        self._link: Link | None = None
        self._move: wire.Move | None = None  # being followed
        self._preparing = trio.CancelScope()  # around the dialling for it
        self._next: Link | None = None  # to the broker that it leads to; nothing more is sent to the old one
        self._reading = trio.CancelScope()  # around the wait for the old one's next word
        self._hand_over = HandOver()
        self._version = 0  # of the assignment followed; an older one is not
        self._last_address: str | None = None
        self._backoff = Backoff(first_s=0.05, longest_s=2.0)
        self._exits = AsyncExitStack()
        self._closed = False
        self._receipt: Receipt | None = None
        self._unable_since: float | None = None  # when brokers began to answer with ``_UNABLE``, and nothing else since

    @property
    def address(self) -> str | None:
        """HOST:PORT of the broker in use; None between two."""
        return None if self._link is None else self._link.address

    @property
    def receipt(self) -> Receipt | None:
        """The latest: how long that message waits for its token, and how full the bucket is. None before the first."""
        return self._receipt

    async def publish(self, body: bytes) -> Receipt:
        """Returns when the broker has accepted the message; the receipt says how long it waits for its token and what
        is left in the bucket. Raises BadInput (empty), PublishRefused (``retry_after_ms``: when there are tokens),
        PeerError.

        If cancelled, the message may or may not have been published.
        """
        return await self._submit(wire.pub(self.topic, body))

    async def publish_many(self, bodies: Sequence[bytes]) -> Receipt:
        """All of them or none, in one command. Raises as ``publish``."""
        return await self._submit(wire.mpub(self.topic, bodies))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as entering:
            if self._client is not None and not self._shared_client:
                await entering.enter_async_context(self._client)
            self._nursery = await entering.enter_async_context(background_nursery())
            await self._nursery.start(self._run)
            self._exits = entering.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._exits.__aexit__(kind, error, trace)

    async def _submit(self, command: bytes) -> Receipt:
        async with self._slots:
            if self._closed:
                raise trio.ClosedResourceError("this publisher is closed")
            pending = _Pending(command)
            self._waiting.append(pending)
            self._send_waiting()
            try:
                await pending.settled.wait()
            finally:
                pending.abandoned = True
        if pending.receipt is None:
            raise pending.error or trio.ClosedResourceError("this publisher was closed")
        return pending.receipt

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            link = await self._first_link()
            task_status.started()
            while True:
                try:
                    link = await self._work(link)
                except (LinkLost, PeerError):
                    link = self._take_next() or await self._next_link()
        except SrtmError as error:
            self._close(error)
            raise
        finally:
            self._close(None)

    def _close(self, error: SrtmError | None) -> None:
        self._closed = True
        self._link = None
        self._stay()
        for pending in (*self._outstanding, *self._waiting):
            pending.settle(None, error)
        self._outstanding.clear()
        self._waiting.clear()

    async def _work(self, link: Link) -> Link:
        """Serves ``link`` until the publisher is moved; returns the new link. Raises LinkLost, PeerError."""
        self._adopt(link)
        try:
            while True:
                with trio.CancelScope(deadline=self._leaves_at_s()) as self._reading:
                    self._handle(await link.next_event())
                self._ask_if_all_left(link)
                if trio.current_time() >= self._leaves_at_s() and (moved := self._take_next()) is not None:
                    return moved
        finally:
            self._link = None
            with trio.CancelScope(shield=True):
                await link.aclose()

    def _adopt(self, link: Link) -> None:
        self._link, self._last_address = link, link.address
        self._hand_over.begin(can_ask=link.settings.tells_left)
        again = [pending for pending in (*self._outstanding, *self._waiting) if not pending.abandoned]
        self._outstanding.clear()
        self._waiting = deque(again)
        self._send_waiting()

    def _send_waiting(self) -> None:
        if self._link is None or self._next is not None:
            return
        while self._waiting:
            pending = self._waiting.popleft()
            if not pending.abandoned:
                self._link.write(pending.command)
                self._outstanding.append(pending)

    def _handle(self, event: wire.Event) -> None:
        match event:
            case wire.Response(data):
                self._receipt = wire.parse_receipt(data)
                self._hand_over.accepted(self._receipt, trio.current_time())
                self._oldest().settle(self._receipt)
                self._outstanding.popleft()
                self._backoff.reset()
                self._unable_since = None
            case wire.Error():
                self._handle_error(event)
            case wire.Move():
                self._handle_move(event)
            case wire.Left(number):
                self._hand_over.told(number, trio.current_time())
            case _:
                raise PeerError(f"a publisher was sent {type(event).__name__}")

    def _handle_error(self, error: wire.Error) -> None:
        """It answers the oldest publish. What followed that one is sent again where the error ended the connection."""
        if error.code in _UNABLE:
            self._wait_out(_as_exception(error))
        elif self._outstanding or not error.fatal:
            self._oldest().settle(None, _as_exception(error))
            self._outstanding.popleft()
        if error.fatal:
            raise LinkLost(f"the broker ended the connection: {error.code} {error.text}")

    def _wait_out(self, refusal: SrtmError) -> None:
        """What is outstanding is sent again, until this has lasted for ``patience_s``; then its callers are told."""
        if self._unable_since is None:
            self._unable_since = trio.current_time()
        if trio.current_time() - self._unable_since >= self._patience_s:
            for pending in self._outstanding:
                pending.settle(None, refusal)
            self._outstanding.clear()

    def _oldest(self) -> _Pending:
        if not self._outstanding:
            raise PeerError("an answer came where nothing was asked")
        return self._outstanding[0]

    def _handle_move(self, move: wire.Move) -> None:
        """The latest word counts: it may lead elsewhere, or back here."""
        latest = self._version if self._move is None else max(self._version, self._move.version)
        if self._link is None or move.version < latest:
            return
        if self._move is not None and move.address == self._move.address:
            self._move = move
            return
        self._stay()
        if move.address == self._link.address:
            self._version = move.version
            self._send_waiting()
        else:
            self._move = move
            self._preparing = trio.CancelScope()
            self._nursery.start_soon(self._prepare, move.address, self._preparing)

    async def _prepare(self, address: str, scope: trio.CancelScope) -> None:
        """Connect to the new broker. If it cannot be reached nothing changes: messages are accepted here all the
        same."""
        with scope:
            try:
                link = await self._open(address)
            except (LinkLost, PeerError):
                if not scope.cancel_called:
                    self._move = None
                return
            if scope.cancel_called:
                await link.aclose()
                return
            self._next = link
            self._reading.cancel()

    def _stay(self) -> None:
        """Where it is: nothing is dialled, and what was is hung up."""
        self._preparing.cancel()
        if self._next is not None:
            self._nursery.start_soon(self._next.aclose)
        self._move = self._next = None
        self._hand_over.stay()

    def _ask_if_all_left(self, link: Link) -> None:
        """Once nothing more is sent to the old broker and all is answered: whether it has left there."""
        if self._next is not None and not self._outstanding:
            number = self._hand_over.question(trio.current_time())
            if number is not None:
                link.write(wire.left(self.topic, number))

    def _leaves_at_s(self) -> float:
        """Trio time at which it goes on at the new broker, as far as can be said now."""
        return math.inf if self._next is None or self._outstanding else self._hand_over.leaves_at_s

    def _take_next(self) -> Link | None:
        """The link to the new broker, if there is one by now; the move is over."""
        link = self._next
        if link is not None and self._move is not None:
            self._version = self._move.version
            self._move = self._next = None
        return link

    async def _first_link(self) -> Link:
        trouble: SrtmError | None = None
        with trio.move_on_after(self._patience_s):
            while True:
                try:
                    return await self._open(await self._where())
                except (Unavailable, PeerError) as error:
                    trouble = error
                await trio.sleep(self._backoff.next_s())
        raise Unavailable(f"no broker for topic {self.topic!r} within {self._patience_s:g} s: {trouble}")

    async def _next_link(self) -> Link:
        self._stay()
        while True:
            await trio.sleep(self._backoff.next_s())
            try:
                return await self._open(await self._where())
            except (Unavailable, PeerError):
                continue

    async def _where(self) -> str:
        """Raises Unavailable, PeerError; NotFound once the topic is gone."""
        if self._client is None:
            self._brokers.append(self._brokers.pop(0))
            return self._brokers[-1]
        try:
            assignment = await self._client.assignment(self.topic, self.publisher_id)
        except Unavailable:
            if self._last_address is None:
                raise
            return self._last_address
        self._version = assignment.version
        return assignment.address

    async def _open(self, address: str) -> Link:
        return await open_link(self._nursery, address, self.publisher_id, self._connect)


def _as_exception(error: wire.Error) -> SrtmError:
    if error.code in _REFUSALS:
        return PublishRefused(f"{error.code} {error.text}", error.retry_after_ms)
    return PeerError(f"the broker answered {error.code} {error.text}")
