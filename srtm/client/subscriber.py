"""``Subscriber`` receives the messages of one channel of a topic, from all brokers that carry the topic.

It asks the distributor (or nsqlookupds) for the brokers every 0.8 s, keeps one connection to each, and reconnects.
Delivery is at least once, as with NSQ: a message comes again if its connection broke before it was finished, or if it
was not finished within the broker's message timeout.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import NoReturn, Self

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup, TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from srtm import protocol
from srtm.client.connection import Connect, Connection, ConnectionLost, dial, open_connection
from srtm.client.distributor import DistributorClient
from srtm.client.misuse import check_loop, needs_async_with, not_entered
from srtm.client.task_groups import background_tasks
from srtm.concurrency.backoff import Backoff
from srtm.errors import BadInput, Closed, Misuse, PeerError, SrtmError, Unavailable
from srtm.net.address import format_address

_LOOKUP_S = 0.8  # a broker that takes on a topic waits up to 1 s for its subscribers
_GOODBYE_S = 1.0  # the longest wait for the answers to CLS


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivered message. ``async with`` finishes it at the end of the block, and requeues it if the block raised.

    ``timestamp_ns``: the broker's wall clock when it accepted the message. ``attempts``: deliveries in this channel.
    ``finish``, ``requeue`` and ``touch`` return False if the message's connection is lost. Then the broker delivers
    the message again.
    """

    body: bytes
    id: bytes
    attempts: int
    timestamp_ns: int
    _connection: Connection = field(repr=False)

    @property
    def broker(self) -> str:
        """HOST:PORT of the broker that delivered it."""
        return self._connection.address

    async def finish(self) -> bool:
        """Finish the message: it is not delivered again."""
        return await self._answer(protocol.fin(self.id))

    async def requeue(self, delay_ms: int = 0) -> bool:
        """Return the message: it is delivered again, to any consumer, after ``delay_ms``."""
        return await self._answer(protocol.req(self.id, delay_ms))

    async def touch(self) -> bool:
        """Restart the broker's message timeout for this message."""
        return await self._answer(protocol.touch(self.id))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the message, or requeue it if the block raised or was cancelled."""
        self._connection.write(protocol.fin(self.id) if error is None else protocol.req(self.id, 0))

    async def _answer(self, command: bytes) -> bool:
        self._connection.write(command)
        await anyio.lowlevel.checkpoint()
        return not self._connection.lost


class Subscriber:
    """Subscribes to a channel: an async context manager and an async iterator of ``Delivery``.

    ``async for delivery in subscriber`` waits for messages one by one; ``handle_each`` calls a function for several at
    a time. Brokers come from one source: ``brokers`` (HOST:PORT), ``lookupds`` (URLs of nsqlookupds) or ``distributor``
    (URLs or a client; default $SRTM_DISTRIBUTOR). ``token`` is shown to the distributor, ``secret`` to brokers, by
    AUTH. ``max_in_flight`` is divided evenly; each broker gets at least 1. ``auto_finish``: each message is finished
    when the caller receives it. Entering raises BadInput, or Unavailable if no source (or none of ``brokers``) answers
    within ``patience_s``.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        *,
        distributor: str | Sequence[str] | DistributorClient | None = None,
        lookupds: Sequence[str] = (),
        brokers: Sequence[str] = (),
        token: str | None = None,
        secret: str | None = None,
        max_in_flight: int = 200,
        auto_finish: bool = False,
        client_id: str = "srtm-subscriber",
        patience_s: float = 10.0,
        connect: Connect = dial,
    ) -> None:
        if max_in_flight < 1:
            raise BadInput("max_in_flight", max_in_flight, "must be at least 1")
        self.topic = protocol.checked_topic("topic", topic)
        self.channel = protocol.checked_name("channel", channel)
        self._fixed = frozenset(brokers)
        self._shared_client = isinstance(distributor, DistributorClient)
        self._client: DistributorClient | None = None
        if isinstance(distributor, DistributorClient):
            self._client = distributor
        elif not brokers:
            self._client = DistributorClient(list(lookupds) or distributor, token=token)
        self._max_in_flight = max_in_flight
        self._auto_finish = auto_finish
        self._client_id = client_id
        self._patience_s = patience_s
        self._connect = connect
        self._auth = None if secret is None else protocol.auth(secret)
        self._arrived: MemoryObjectSendStream[Delivery] | None = None  # once entered
        self._deliveries: MemoryObjectReceiveStream[Delivery] | None = None
        self._connections: dict[str, Connection] = {}  # {address: subscribed connection}
        self._wanted: frozenset[str] = frozenset()  # addresses by the last lookup; only these are connected to again
        self._working: set[str] = set()  # addresses with a task
        self._connected = anyio.Event()  # set once any broker is connected
        self._closing = False
        self._all_left = anyio.Event()
        self._trouble: SrtmError | None = None
        self._exits = AsyncExitStack()

    @property
    def connected(self) -> list[str]:
        """HOST:PORT of the brokers that deliver now."""
        return sorted(self._connections)

    @property
    def brokers(self) -> list[str]:
        """HOST:PORT of the brokers that have the topic, by the last lookup."""
        return sorted(self._wanted)

    def __enter__(self) -> NoReturn:
        raise Misuse(needs_async_with("Subscriber"))

    def __exit__(self, *_: object) -> None:
        """Never called: ``__enter__`` raises."""

    def __iter__(self) -> NoReturn:
        raise Misuse("write 'async for' for srtm.Subscriber; in a program without an event loop use srtm.blocking")

    async def __aenter__(self) -> Self:
        check_loop("Subscriber")
        if self._arrived is not None:
            raise Misuse("this subscriber was entered before: make a new one for each 'async with' block")
        # Without a bound, because RDY bounds it. A reader that waits for the caller could not answer heartbeats.
        self._arrived, self._deliveries = anyio.create_memory_object_stream[Delivery](math.inf)
        async with AsyncExitStack() as entering:
            entering.enter_context(self._deliveries)
            entering.enter_context(self._arrived)
            if self._client is not None and not self._shared_client:
                await entering.enter_async_context(self._client)
            self._tasks: TaskGroup = await entering.enter_async_context(background_tasks())
            with anyio.move_on_after(self._patience_s) as patience:
                await self._tasks.start(self._discover)
            if patience.cancelled_caught:
                raise Unavailable(
                    f"no broker to subscribe to for {self.topic!r} within {self._patience_s:g} s: {self._trouble}"
                )
            entering.push_async_exit(self._take_leave)
            self._exits = entering.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._exits.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        """Wait for the next message. The iteration never ends by itself. Raises Misuse, Closed."""
        if self._deliveries is None:
            raise Misuse(not_entered("Subscriber"))
        while True:
            try:
                delivery = await self._deliveries.receive()
            except anyio.ClosedResourceError:
                raise Closed("this subscriber is closed: receive inside its 'async with' block") from None
            if delivery._connection.lost:  # its broker delivers it again
                continue
            if self._auto_finish:
                await delivery.finish()
            return delivery

    async def handle_each(self, handler: Callable[[Delivery], Awaitable[object]], *, concurrency: int = 1) -> None:
        """Call ``handler`` for each message, up to ``concurrency`` at a time, until cancelled.

        A message is finished when its handler returns. An exception of a handler requeues its message and those being
        handled, and is raised: handle in ``handler`` what should not end the program. At most ``max_in_flight``
        messages are handled at once. Raises BadInput, Misuse (with ``auto_finish``, or outside ``async with``), Closed.
        """
        if self._auto_finish:
            raise Misuse("auto_finish finishes a message before it is handled: leave out auto_finish=True")
        if concurrency < 1:
            raise BadInput("concurrency", concurrency, "must be at least 1")
        async with background_tasks() as tasks:
            for _ in range(concurrency - 1):
                tasks.start_soon(self._handle_in_turn, handler)
            await self._handle_in_turn(handler)

    async def _handle_in_turn(self, handler: Callable[[Delivery], Awaitable[object]]) -> None:
        async for delivery in self:
            async with delivery:
                await handler(delivery)

    async def _discover(self, *, task_status: TaskStatus[None]) -> None:
        backoff = Backoff(first_s=0.1, longest_s=_LOOKUP_S)
        while True:
            try:
                self._wanted = await self._lookup()
            except (Unavailable, PeerError) as error:
                self._trouble = error
                await anyio.sleep(backoff.next_s())
                continue
            for address in self._wanted - self._working:
                self._working.add(address)
                self._tasks.start_soon(self._keep_consuming, address)
            if self._client is None:
                await self._connected.wait()
            task_status.started()
            task_status = anyio.TASK_STATUS_IGNORED
            if self._client is None:
                return
            await anyio.sleep(_LOOKUP_S)

    async def _lookup(self) -> frozenset[str]:
        if self._client is None:
            return self._fixed
        found = await self._client.lookup(self.topic)
        return frozenset(format_address(producer.broadcast_address, producer.tcp_port) for producer in found.producers)

    async def _keep_consuming(self, address: str) -> None:
        """Consume from one broker, and reconnect, until the lookup no longer names it."""
        backoff = Backoff(first_s=0.05, longest_s=1.0)
        try:
            while address in self._wanted and not self._closing:
                try:
                    await self._consume(address, backoff)
                except (Unavailable, PeerError) as error:
                    self._trouble = error
                await anyio.sleep(backoff.next_s())
        finally:
            self._working.discard(address)

    async def _consume(self, address: str, backoff: Backoff) -> None:
        """Consume from one connection until CLS is answered. Raises ConnectionLost, PeerError."""
        connection = await open_connection(self._tasks, address, self._client_id, self._connect, self._auth)
        try:
            connection.write(protocol.sub(self.topic, self.channel))
            _check_subscribed(await connection.next_event(), address)
            self._connections[address] = connection
            self._divide_in_flight()
            self._connected.set()
            backoff.reset()
            while self._handle(connection, await connection.next_event()):
                pass
        finally:
            self._leave(connection)
            with anyio.CancelScope(shield=True):
                await connection.aclose()

    def _handle(self, connection: Connection, event: protocol.Event) -> bool:
        match event:
            case protocol.Message(timestamp_ns, attempts, message_id, body):
                assert self._arrived is not None  # connections are made once entered
                self._arrived.send_nowait(Delivery(body, message_id, attempts, timestamp_ns, connection))
            case protocol.Error(code, text) if event.fatal:
                raise ConnectionLost(f"{connection.address} ended the connection: {code} {text}")
            case protocol.Error():
                pass  # FIN, REQ or TOUCH came too late: the broker delivered the message again
            case protocol.Response(b"CLOSE_WAIT"):
                return False
            case _:
                raise PeerError(f"{connection.address} sent a subscriber {event}")
        return True

    def _divide_in_flight(self) -> None:
        if self._closing:  # RDY is not allowed after CLS
            return
        for index, connection in enumerate(self._connections.values()):
            each, rest = divmod(self._max_in_flight, len(self._connections))
            count = max(1, each + (index < rest))
            connection.write(protocol.rdy(min(count, connection.settings.max_rdy_count)))

    def _leave(self, connection: Connection) -> None:
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
            self._divide_in_flight()
        if not self._connections:
            self._all_left.set()

    async def _take_leave(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is None:
            await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        """Send CLS and wait for its answers. A broker answers after it handled every FIN sent before."""
        self._closing = True
        if not self._connections:
            return
        self._all_left = anyio.Event()
        for connection in self._connections.values():
            connection.write(protocol.cls())
        with anyio.move_on_after(_GOODBYE_S):
            await self._all_left.wait()


def _check_subscribed(answer: protocol.Event, address: str) -> None:
    if isinstance(answer, protocol.Error):
        raise PeerError(f"{address} refused the subscription: {answer.code} {answer.text}")
    if answer != protocol.Response(b"OK"):
        raise PeerError(f"{address} answered SUB with {answer}")
