"""``Publisher`` sends messages of one topic to the broker that the publisher is assigned to.

Any number of tasks may publish at once. Commands are sent, and their answers matched, in the order of the calls. If the
connection is lost, unanswered messages are sent again, in order, to the broker that the distributor then names.
Delivery is **at least once**: a message whose answer was lost may arrive twice.

A broker orders a move by ``_move_``. The publisher continues there until it is connected to the new broker. Then it
waits until all messages are answered and have left the old broker (``srtm.client.handover``, at most 5 s), and
continues at the new one. So a move duplicates no message and keeps the order. It stays if the new broker is
unreachable.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import NoReturn, Self

import anyio
from anyio.abc import TaskGroup, TaskStatus

from srtm import protocol
from srtm.client.connection import Connect, Connection, ConnectionLost, dial, open_connection
from srtm.client.distributor import DistributorClient
from srtm.client.handover import Handover
from srtm.client.misuse import check_loop, checked_bodies, checked_body, needs_async_with, not_entered
from srtm.client.task_groups import background_tasks
from srtm.concurrency.backoff import Backoff
from srtm.errors import Closed, Misuse, PeerError, PublishRefused, SrtmError, Unavailable
from srtm.protocol import Receipt

_ASK_TIMEOUT_S = 2.0  # then the publisher goes to the last known broker, without the distributor
# The broker accepts nothing now: it is starting, or its memory is full.
_UNABLE = frozenset({"E_PUB_FAILED", "E_MPUB_FAILED"})
_REFUSALS = _UNABLE | {"E_RATE_LIMITED", "E_BAD_MESSAGE", "E_BAD_TOPIC", "E_UNAUTHORIZED"}


@dataclass(eq=False, slots=True)
class _Pending:
    """A publish: waiting, then outstanding (sent, no answer yet), then settled."""

    command: bytes
    settled: anyio.Event = field(default_factory=anyio.Event)
    receipt: Receipt | None = None
    error: Exception | None = None
    abandoned: bool = False  # its caller was cancelled and needs no answer

    def settle(self, receipt: Receipt | None, error: Exception | None = None) -> None:
        """End the publish with a receipt or an error."""
        self.receipt, self.error = receipt, error
        self.settled.set()


class Publisher:
    """Publishes to a topic as one publisher. Use it as an async context manager.

    ``distributor``: URLs, or a client that several publishers share (default $SRTM_DISTRIBUTOR). ``brokers``: plain
    NSQ brokers (HOST:PORT), tried in turn, without a distributor. ``token`` is shown to the distributor, ``secret`` to
    brokers, by AUTH. ``max_outstanding``: the most messages without an answer. Entering raises NotFound (no such
    topic), BadInput, or Unavailable if no broker answers within ``patience_s``. Later the publisher retries lost
    connections with growing pauses. If brokers answer E_PUB_FAILED (starting, memory full) for longer than
    ``patience_s``, the callers get that error.
    """

    def __init__(
        self,
        topic: str,
        publisher_id: str,
        *,
        distributor: str | Sequence[str] | DistributorClient | None = None,
        brokers: Sequence[str] = (),
        token: str | None = None,
        secret: str | None = None,
        max_outstanding: int = 1000,
        patience_s: float = 10.0,
        connect: Connect = dial,
    ) -> None:
        self.topic = protocol.checked_topic("topic", topic)
        self.publisher_id = publisher_id
        self._brokers = list(brokers)
        self._shared_client = isinstance(distributor, DistributorClient)
        self._client: DistributorClient | None = None
        if isinstance(distributor, DistributorClient):
            self._client = distributor
        elif not brokers:
            self._client = DistributorClient(distributor, token=token, timeout_s=_ASK_TIMEOUT_S)
        self._connect = connect
        self._auth = None if secret is None else protocol.auth(secret)
        self._patience_s = patience_s
        self._max_outstanding = max_outstanding
        self._slots: anyio.Semaphore | None = None  # once entered; there is no event loop before
        self._waiting: deque[_Pending] = deque()
        self._outstanding: deque[_Pending] = deque()
        self._connection: Connection | None = None
        self._move: protocol.Move | None = None  # the order being followed
        self._preparing: anyio.CancelScope | None = None  # around its connection attempt
        self._next: Connection | None = None  # to the new broker; once set, nothing is sent to the old one
        self._reading: anyio.CancelScope | None = None  # around the wait for the old broker's next event
        self._handover = Handover()
        self._version = 0  # of the assignment in use; older ones are ignored
        self._last_address: str | None = None
        self._backoff = Backoff(first_s=0.05, longest_s=2.0)
        self._exits = AsyncExitStack()
        self._closed = False
        self._receipt: Receipt | None = None
        self._unable_since: float | None = None  # since then brokers have answered nothing but ``_UNABLE``

    @property
    def address(self) -> str | None:
        """HOST:PORT of the broker in use; None while there is no connection."""
        return None if self._connection is None else self._connection.address

    @property
    def receipt(self) -> Receipt | None:
        """The latest receipt; None before the first."""
        return self._receipt

    async def publish(self, body: bytes) -> Receipt:
        """Publish a message and wait until the broker accepted it.

        The receipt states how long the message waits for its token, and the fill of the bucket. Raises BadInput (an
        empty body, or one that is not bytes), PublishRefused (``retry_after_ms``: time until there are tokens),
        PeerError, Misuse (outside ``async with``), Closed. If the call is cancelled, or raises Closed, the message may
        or may not have been published.
        """
        return await self._submit(protocol.pub(self.topic, checked_body(body)))

    async def publish_many(self, bodies: Sequence[bytes]) -> Receipt:
        """Publish all messages or none, in one command. Raises as ``publish`` does."""
        return await self._submit(protocol.mpub(self.topic, checked_bodies(bodies)))

    def __enter__(self) -> NoReturn:
        raise Misuse(needs_async_with("Publisher"))

    def __exit__(self, *_: object) -> None:
        """Never called: ``__enter__`` raises."""

    async def __aenter__(self) -> Self:
        check_loop("Publisher")
        if self._slots is not None:
            raise Misuse("this publisher was entered before: make a new one for each 'async with' block")
        self._slots = anyio.Semaphore(self._max_outstanding, fast_acquire=True)
        async with AsyncExitStack() as entering:
            if self._client is not None and not self._shared_client:
                await entering.enter_async_context(self._client)
            self._tasks: TaskGroup = await entering.enter_async_context(background_tasks())
            await self._tasks.start(self._run)
            self._exits = entering.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._exits.__aexit__(kind, error, trace)

    async def _submit(self, command: bytes) -> Receipt:
        if self._slots is None:
            raise Misuse(not_entered("Publisher"))
        async with self._slots:
            if self._closed:
                raise Closed("this publisher is closed: publish inside its 'async with' block")
            pending = _Pending(command)
            self._waiting.append(pending)
            self._send_waiting()
            try:
                await pending.settled.wait()
            finally:
                pending.abandoned = True
        if pending.receipt is None:
            raise pending.error or Closed("this publisher was closed before the broker answered")
        return pending.receipt

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        try:
            connection = await self._first_connection()
            task_status.started()
            while True:
                try:
                    connection = await self._work(connection)
                except (ConnectionLost, PeerError):
                    connection = self._take_next() or await self._next_connection()
        except SrtmError as error:
            self._close(error)
            raise
        finally:
            self._close(None)

    def _close(self, error: SrtmError | None) -> None:
        self._closed = True
        self._connection = None
        self._stay()
        for pending in (*self._outstanding, *self._waiting):
            pending.settle(None, error)
        self._outstanding.clear()
        self._waiting.clear()

    async def _work(self, connection: Connection) -> Connection:
        """Serve ``connection`` until the publisher moves, and return the new one. Raises ConnectionLost, PeerError."""
        self._adopt(connection)
        try:
            while True:
                with anyio.CancelScope(deadline=self._leaves_at_s()) as self._reading:
                    self._handle(await connection.next_event())
                    while self._next is None:
                        self._handle(await connection.next_event())
                self._ask_if_all_left(connection)
                if anyio.current_time() >= self._leaves_at_s() and (moved := self._take_next()) is not None:
                    return moved
        finally:
            self._connection = None
            with anyio.CancelScope(shield=True):
                await connection.aclose()

    def _adopt(self, connection: Connection) -> None:
        self._connection, self._last_address = connection, connection.address
        self._handover.begin(can_ask=connection.settings.answers_left)
        again = [pending for pending in (*self._outstanding, *self._waiting) if not pending.abandoned]
        self._outstanding.clear()
        self._waiting = deque(again)
        self._send_waiting()

    def _send_waiting(self) -> None:
        if self._connection is None or self._next is not None:
            return
        while self._waiting:
            pending = self._waiting.popleft()
            if not pending.abandoned:
                self._connection.write(pending.command)
                self._outstanding.append(pending)

    def _handle(self, event: protocol.Event) -> None:
        match event:
            case protocol.Response(data):
                self._receipt = protocol.parse_receipt(data)
                self._handover.accepted(self._receipt, anyio.current_time())
                self._oldest().settle(self._receipt)
                self._outstanding.popleft()
                self._backoff.reset()
                self._unable_since = None
            case protocol.Error():
                self._handle_error(event)
            case protocol.Move():
                self._handle_move(event)
            case protocol.Left(number):
                self._handover.answered(number, anyio.current_time())
            case _:
                raise PeerError(f"the broker sent a publisher {type(event).__name__}")

    def _handle_error(self, error: protocol.Error) -> None:
        """Handle the error answer to the oldest publish. If it is fatal, later publishes are sent again elsewhere."""
        if error.code in _UNABLE:
            self._note_unable(_as_exception(error))
        elif self._outstanding or not error.fatal:
            self._oldest().settle(None, _as_exception(error))
            self._outstanding.popleft()
        if error.fatal:
            raise ConnectionLost(f"the broker ended the connection: {error.code} {error.text}")

    def _note_unable(self, refusal: SrtmError) -> None:
        """Leave outstanding publishes to be sent again. After ``patience_s`` their callers get the refusal."""
        if self._unable_since is None:
            self._unable_since = anyio.current_time()
        if anyio.current_time() - self._unable_since >= self._patience_s:
            for pending in self._outstanding:
                pending.settle(None, refusal)
            self._outstanding.clear()

    def _oldest(self) -> _Pending:
        if not self._outstanding:
            raise PeerError("the broker answered without a publish")
        return self._outstanding[0]

    def _handle_move(self, move: protocol.Move) -> None:
        """Follow the latest order to move, which may lead elsewhere or back here."""
        latest = self._version if self._move is None else max(self._version, self._move.version)
        if self._connection is None or move.version < latest:
            return
        if self._move is not None and move.address == self._move.address:
            self._move = move
            return
        self._stay()
        if move.address == self._connection.address:
            self._version = move.version
            self._send_waiting()
        else:
            self._move = move
            self._preparing = anyio.CancelScope()
            self._tasks.start_soon(self._prepare, move.address, self._preparing)

    async def _prepare(self, address: str, scope: anyio.CancelScope) -> None:
        """Connect to the new broker. If that fails, nothing changes: the present broker still accepts messages."""
        with scope:
            try:
                connection = await self._open(address)
            except (ConnectionLost, PeerError):
                if not scope.cancel_called:
                    self._move = None
                return
            if scope.cancel_called:
                await connection.aclose()
                return
            self._next = connection
            if self._reading is not None:
                self._reading.cancel()

    def _stay(self) -> None:
        """Stay at the present broker: stop the connection attempt and close its connection."""
        if self._preparing is not None:
            self._preparing.cancel()
        if self._next is not None:
            self._tasks.start_soon(self._next.aclose)
        self._move = self._next = None
        self._handover.stay()

    def _ask_if_all_left(self, connection: Connection) -> None:
        """Send LEFT to the old broker once all its messages are answered."""
        if self._next is not None and not self._outstanding:
            number = self._handover.question(anyio.current_time())
            if number is not None:
                connection.write(protocol.left(self.topic, number))

    def _leaves_at_s(self) -> float:
        """Return the loop's time at which the publisher continues at the new broker, by what is known now."""
        return math.inf if self._next is None or self._outstanding else self._handover.leaves_at_s

    def _take_next(self) -> Connection | None:
        """Complete the move and return the connection to the new broker, if there is one."""
        connection = self._next
        if connection is not None and self._move is not None:
            self._version = self._move.version
            self._move = self._next = None
        return connection

    async def _first_connection(self) -> Connection:
        trouble: SrtmError | None = None
        with anyio.move_on_after(self._patience_s):
            while True:
                try:
                    return await self._open(await self._where())
                except (Unavailable, PeerError) as error:
                    trouble = error
                await anyio.sleep(self._backoff.next_s())
        raise Unavailable(f"no broker for topic {self.topic!r} within {self._patience_s:g} s: {trouble}")

    async def _next_connection(self) -> Connection:
        self._stay()
        while True:
            await anyio.sleep(self._backoff.next_s())
            try:
                return await self._open(await self._where())
            except (Unavailable, PeerError):
                continue

    async def _where(self) -> str:
        """Return the address of the broker to use. Raises Unavailable, PeerError, NotFound (the topic was removed)."""
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

    async def _open(self, address: str) -> Connection:
        return await open_connection(self._tasks, address, self.publisher_id, self._connect, self._auth)


def _as_exception(error: protocol.Error) -> SrtmError:
    if error.code in _REFUSALS:
        return PublishRefused(f"{error.code} {error.text}", error.retry_after_ms)
    return PeerError(f"the broker answered {error.code} {error.text}")
