"""``Publisher`` and ``Subscriber`` for programs without an event loop. Any number of threads may share one of them.

All of them share one thread with an event loop, which starts with the first block and ends with the last. The classes
of ``srtm.client`` work there; parameters and errors are theirs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, BlockingPortalProvider

from srtm.client.publisher import Publisher as AsyncPublisher
from srtm.client.subscriber import Delivery as AsyncDelivery
from srtm.client.subscriber import Subscriber as AsyncSubscriber
from srtm.errors import Closed, Misuse
from srtm.protocol import Receipt

__all__ = ["Delivery", "Publisher", "Subscriber"]

_LOOP = BlockingPortalProvider(backend="asyncio")
_T = TypeVar("_T")
_Entered = TypeVar("_Entered")


class _Caller:
    """Runs calls of one block in the thread of the event loop."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._portal: BlockingPortal | None = None
        self._exits = ExitStack()
        self._was_entered = False

    def enter(self, make: Callable[[], AbstractAsyncContextManager[_Entered]]) -> _Entered:
        """Make the object in that thread, and enter it. Raises Misuse if the block was entered before."""
        if self._was_entered:
            raise Misuse(f"this {self._kind} was entered before: make a new one for each 'with' block")
        self._was_entered = True
        with ExitStack() as entering:
            portal = entering.enter_context(_LOOP)
            entered = entering.enter_context(portal.wrap_async_context_manager(portal.call(make)))
            self._portal = portal
            self._exits = entering.pop_all()
        return entered

    def exit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Leave the block."""
        self._portal = None
        return self._exits.__exit__(kind, error, trace)

    def call(self, work: Callable[[], Awaitable[_T]], timeout_s: float | None = None) -> _T:
        """Run ``work`` in that thread and wait for it. Raises TimeoutError after ``timeout_s``, Misuse, Closed."""
        if self._portal is None:
            if self._was_entered:
                raise Closed(f"this {self._kind} is closed: use it inside its 'with' block")
            name = self._kind.capitalize()
            raise Misuse(
                f"this {self._kind} is not connected: write 'with srtm.blocking.{name}(...) as {self._kind}:' and use "
                "it in that block"
            )
        return self._portal.call(_within, work, timeout_s)


async def _within(work: Callable[[], Awaitable[_T]], timeout_s: float | None) -> _T:
    with anyio.fail_after(timeout_s):
        return await work()


class Publisher:
    """Publishes to a topic as one publisher: ``srtm.Publisher`` for threads. Use it as a context manager."""

    def __init__(
        self,
        topic: str,
        publisher_id: str,
        *,
        distributor: str | Sequence[str] | None = None,
        brokers: Sequence[str] = (),
        token: str | None = None,
        secret: str | None = None,
        max_outstanding: int = 1000,
        patience_s: float = 10.0,
    ) -> None:
        self._make = partial(
            AsyncPublisher,
            topic,
            publisher_id,
            distributor=distributor,
            brokers=brokers,
            token=token,
            secret=secret,
            max_outstanding=max_outstanding,
            patience_s=patience_s,
        )
        self._caller = _Caller("publisher")

    def __enter__(self) -> Self:
        self._publisher = self._caller.enter(self._make)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._caller.exit(kind, error, trace)

    @property
    def address(self) -> str | None:
        """HOST:PORT of the broker in use; None while there is no connection."""
        return self._publisher.address

    @property
    def receipt(self) -> Receipt | None:
        """The latest receipt; None before the first."""
        return self._publisher.receipt

    def publish(self, body: bytes, *, timeout_s: float | None = None) -> Receipt:
        """Publish a message and wait until the broker accepted it; see ``srtm.Publisher.publish``.

        Raises TimeoutError after ``timeout_s``: then the message may or may not have been published.
        """
        return self._caller.call(lambda: self._publisher.publish(body), timeout_s)

    def publish_many(self, bodies: Sequence[bytes], *, timeout_s: float | None = None) -> Receipt:
        """Publish all messages or none, in one command. Raises as ``publish`` does."""
        return self._caller.call(lambda: self._publisher.publish_many(bodies), timeout_s)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivered message: ``srtm.Delivery`` for threads.

    ``with`` finishes it at the end of the block, and requeues it if the block raised. ``finish``, ``requeue`` and
    ``touch`` return False if the message's connection is lost. Then the broker delivers the message again.
    """

    body: bytes
    id: bytes
    attempts: int
    timestamp_ns: int
    broker: str
    _delivery: AsyncDelivery = field(repr=False)
    _caller: _Caller = field(repr=False)

    def finish(self) -> bool:
        """Finish the message: it is not delivered again."""
        return self._caller.call(self._delivery.finish)

    def requeue(self, delay_ms: int = 0) -> bool:
        """Return the message: it is delivered again, to any consumer, after ``delay_ms``."""
        return self._caller.call(lambda: self._delivery.requeue(delay_ms))

    def touch(self) -> bool:
        """Restart the broker's message timeout for this message."""
        return self._caller.call(self._delivery.touch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the message, or requeue it if the block raised."""
        if error is None:
            self.finish()
        else:
            self.requeue()


class Subscriber:
    """Subscribes to a channel: ``srtm.Subscriber`` for threads. A context manager and an iterator of ``Delivery``.

    Several threads may iterate at once: each message goes to one of them.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        *,
        distributor: str | Sequence[str] | None = None,
        lookupds: Sequence[str] = (),
        brokers: Sequence[str] = (),
        token: str | None = None,
        secret: str | None = None,
        max_in_flight: int = 200,
        auto_finish: bool = False,
        client_id: str = "srtm-subscriber",
        patience_s: float = 10.0,
    ) -> None:
        self._make = partial(
            AsyncSubscriber,
            topic,
            channel,
            distributor=distributor,
            lookupds=lookupds,
            brokers=brokers,
            token=token,
            secret=secret,
            max_in_flight=max_in_flight,
            auto_finish=auto_finish,
            client_id=client_id,
            patience_s=patience_s,
        )
        self._caller = _Caller("subscriber")

    def __enter__(self) -> Self:
        self._subscriber = self._caller.enter(self._make)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._caller.exit(kind, error, trace)

    @property
    def connected(self) -> list[str]:
        """HOST:PORT of the brokers that deliver now."""
        return self._subscriber.connected

    @property
    def brokers(self) -> list[str]:
        """HOST:PORT of the brokers that have the topic, by the last lookup."""
        return self._subscriber.brokers

    def receive(self, timeout_s: float | None = None) -> Delivery:
        """Wait for the next message. Raises TimeoutError after ``timeout_s``, Misuse, Closed."""
        found = self._caller.call(lambda: anext(self._subscriber), timeout_s)
        return Delivery(found.body, found.id, found.attempts, found.timestamp_ns, found.broker, found, self._caller)

    def __iter__(self) -> Iterator[Delivery]:
        return self

    def __next__(self) -> Delivery:
        """Wait for the next message. The iteration never ends by itself."""
        return self.receive()
