"""``Subscriber``: every message of one topic's channel, from however many brokers carry it.

It finds brokers by asking the distributor (or nsqlookupds) every ``_LOOKUP_S``, keeps one connection to each, and
reconnects. Delivery is at least once, as NSQ's: a message that was not finished when its connection broke, or within
the broker's message timeout, comes again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import trio

from srtm import protocol as wire
from srtm.client.connection import Connect, Link, LinkLost, dial, open_link
from srtm.client.distributor import DistributorClient
from srtm.concurrency.background import background_nursery
from srtm.concurrency.backoff import Backoff
from srtm.errors import BadInput, PeerError, SrtmError, Unavailable
from srtm.net.address import format_address

_LOOKUP_S = 0.8  # a broker that newly takes the topic waits up to 1 s for its subscribers (design section 11)
_GOODBYE_S = 1.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message. ``finish``, ``requeue`` and ``touch`` return False if the connection that it came by is gone: then
    the broker has already taken the message back."""

    body: bytes
    id: bytes
    attempts: int
    timestamp_ns: int
    _link: Link = field(repr=False)

    @property
    def broker(self) -> str:
        """HOST:PORT."""
        return self._link.address

    async def finish(self) -> bool:
        """Done: it never comes again."""
        return await self._answer(wire.fin(self.id))

    async def requeue(self, delay_ms: int = 0) -> bool:
        """Not done: it comes again, to anyone, after ``delay_ms``."""
        return await self._answer(wire.req(self.id, delay_ms))

    async def touch(self) -> bool:
        """Still at work: the broker's message timeout starts anew."""
        return await self._answer(wire.touch(self.id))

    async def _answer(self, command: bytes) -> bool:
        self._link.write(command)
        await trio.lowlevel.checkpoint()
        return not self._link.lost


class Subscriber:
    """An async context manager and async iterator of ``Delivery``.

    Sources, one of them: ``brokers`` (HOST:PORT), ``lookupds`` (HTTP URLs of nsqlookupds), ``distributor`` (default:
    the environment's). ``max_in_flight`` is shared out evenly; each broker gets at least 1. ``auto_finish``: a message
    is finished as it is handed to the caller. Entering raises BadInput, or Unavailable if no source (no broker, where
    they are named) answers within ``patience_s``.
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
        max_in_flight: int = 200,
        auto_finish: bool = False,
        client_id: str = "srtm-subscriber",
        patience_s: float = 10.0,
        connect: Connect = dial,
    ) -> None:
        if max_in_flight < 1:
            raise BadInput("max_in_flight", max_in_flight, "must be at least 1")
        self.topic = wire.checked_name("topic", topic)
        self.channel = wire.checked_name("channel", channel)
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
        # Not bounded here: RDY bounds it, and a reader that waited for the caller would leave heartbeats unanswered.
        self._arrived, self._deliveries = trio.open_memory_channel[Delivery](math.inf)
        self._links: dict[str, Link] = {}  # {address: subscribed link}
        self._wanted: frozenset[str] = frozenset()  # as the last lookup said; others are not connected to again
        self._working: set[str] = set()  # addresses with a task
        self._connected = trio.Event()  # to any broker, once
        self._closing = False
        self._all_left = trio.Event()
        self._trouble: SrtmError | None = None
        self._exits = AsyncExitStack()

    @property
    def connected(self) -> list[str]:
        """HOST:PORT of the brokers that deliver now."""
        return sorted(self._links)

    @property
    def brokers(self) -> list[str]:
        """HOST:PORT of the brokers that have the topic, as the last lookup said."""
        return sorted(self._wanted)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as entering:
            if self._client is not None and not self._shared_client:
                await entering.enter_async_context(self._client)
            self._nursery = await entering.enter_async_context(background_nursery())
            with trio.move_on_after(self._patience_s) as patience:
                await self._nursery.start(self._discover)
            if patience.cancelled_caught:
                raise Unavailable(
                    f"nobody to subscribe to for {self.topic!r} within {self._patience_s:g} s: {self._trouble}"
                )
            self._exits = entering.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if error is None:
            await self._say_goodbye()
        return await self._exits.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        """Waits for the next message; never ends by itself."""
        while True:
            delivery = await self._deliveries.receive()
            if delivery._link.lost:  # its broker gives it to someone again: not twice from here
                continue
            if self._auto_finish:
                await delivery.finish()
            return delivery

    async def _discover(self, *, task_status: trio.TaskStatus[None]) -> None:
        backoff = Backoff(first_s=0.1, longest_s=_LOOKUP_S)
        while True:
            try:
                self._wanted = await self._lookup()
            except (Unavailable, PeerError) as error:
                self._trouble = error
                await trio.sleep(backoff.next_s())
                continue
            for address in self._wanted - self._working:
                self._working.add(address)
                self._nursery.start_soon(self._keep_consuming, address)
            if self._client is None:
                await self._connected.wait()
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            if self._client is None:
                return
            await trio.sleep(_LOOKUP_S)

    async def _lookup(self) -> frozenset[str]:
        if self._client is None:
            return self._fixed
        found = await self._client.lookup(self.topic)
        return frozenset(format_address(one.broadcast_address, one.tcp_port) for one in found.producers)

    async def _keep_consuming(self, address: str) -> None:
        """Until the broker is neither reachable nor named by the lookup any more."""
        backoff = Backoff(first_s=0.05, longest_s=1.0)
        try:
            while address in self._wanted and not self._closing:
                try:
                    await self._consume(address, backoff)
                except (Unavailable, PeerError) as error:
                    self._trouble = error
                await trio.sleep(backoff.next_s())
        finally:
            self._working.discard(address)

    async def _consume(self, address: str, backoff: Backoff) -> None:
        """One connection's life. Raises LinkLost, PeerError; returns after ``CLS``."""
        link = await open_link(self._nursery, address, self._client_id, self._connect)
        try:
            link.write(wire.sub(self.topic, self.channel))
            _check_subscribed(await link.next_event(), address)
            self._links[address] = link
            self._share_out()
            self._connected.set()
            backoff.reset()
            while self._handle(link, await link.next_event()):
                pass
        finally:
            self._leave(link)
            with trio.CancelScope(shield=True):
                await link.aclose()

    def _handle(self, link: Link, event: wire.Event) -> bool:
        match event:
            case wire.Message(timestamp_ns, attempts, message_id, body):
                self._arrived.send_nowait(Delivery(body, message_id, attempts, timestamp_ns, link))
            case wire.Error(code, text) if event.fatal:
                raise LinkLost(f"{link.address} ended the connection: {code} {text}")
            case wire.Error():
                pass  # an answer came too late; the broker has given the message to someone else
            case wire.Response(b"CLOSE_WAIT"):
                return False
            case _:
                raise PeerError(f"a subscriber was sent {event}")
        return True

    def _share_out(self) -> None:
        if self._closing:  # RDY is no command after CLS
            return
        for index, link in enumerate(self._links.values()):
            share, rest = divmod(self._max_in_flight, len(self._links))
            count = max(1, share + (index < rest))
            link.write(wire.rdy(min(count, link.settings.max_rdy_count)))

    def _leave(self, link: Link) -> None:
        if self._links.get(link.address) is link:
            del self._links[link.address]
            self._share_out()
        if not self._links:
            self._all_left.set()

    async def _say_goodbye(self) -> None:
        """CLS, and wait for its answer: it comes after every FIN written before was taken."""
        self._closing = True
        if not self._links:
            return
        self._all_left = trio.Event()
        for link in self._links.values():
            link.write(wire.cls())
        with trio.move_on_after(_GOODBYE_S):
            await self._all_left.wait()


def _check_subscribed(answer: wire.Event, address: str) -> None:
    if isinstance(answer, wire.Error):
        raise PeerError(f"{address} refused the subscription: {answer.code} {answer.text}")
    if answer != wire.Response(b"OK"):
        raise PeerError(f"{address} answered SUB with {answer}")
