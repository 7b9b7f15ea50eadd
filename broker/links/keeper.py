"""Keeps this broker linked: tells the other brokers of the cluster what its MQTT subscribers want, and tells the engine
when all of them know. What they want of this broker is in ``consuming_brokers``."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
import trio

from broker.links.interest import Interest
from broker.links.link_numbers import LinkNumbers
from broker.links.remote_broker import RemoteBroker
from broker.runtime.wakeup import Wakeup
from srtm.log import Log
from srtm.net.http_client import HttpClient

if TYPE_CHECKING:
    from srtm._native import Engine

_LEAVE_S = 3.0  # a broker answers within 2 s, or does not
_NOTHING = Interest(version=0, filters=[], groups=[], kept=[], durable=False)


class LinkKeeper:
    """``run`` it once; ``follow`` tells it of brokers, ``note_interest`` that the engine's interest has changed.

    ``connect`` gives an HTTP client to HOST:PORT, or to https://HOST:PORT. ``tls``: what this broker trusts and shows.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        connect: Callable[[str], HttpClient],
        log: Log,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._name = name
        self._tls = tls
        self._engine = engine
        self._connect = connect
        self._log = log
        self._numbers = LinkNumbers()
        self._addresses: dict[str, str] | None = None  # of the other brokers; None: not known yet
        self._changed = Wakeup()
        self._brokers: dict[str, tuple[str, RemoteBroker, trio.CancelScope]] = {}  # {name: (address, ...)}
        self._interest = _NOTHING
        engine.share_mqtt_interest(True)

    def follow(self, addresses: Mapping[str, str]) -> None:
        """The cluster has these brokers, {name: HTTP address}; this one may be among them."""
        self._addresses = {name: address for name, address in addresses.items() if name != self._name}
        self._changed.set()

    def note_interest(self) -> None:
        self._interest = msgspec.json.decode(self._engine.mqtt_interest(), type=Interest)
        for _, broker, _ in self._brokers.values():
            broker.wake()
        self._settle()

    def note_started(self, broker: str) -> None:
        """``broker`` has started anew, and has said what it wants of this one."""
        if broker in self._brokers:
            self._brokers[broker][1].note_started()

    def note_left(self, broker: str) -> None:
        """``broker`` ends as it was asked to, and is not coming back."""
        if broker in self._brokers:
            self._brokers[broker][1].note_left()

    def note_mark(self, number: int, mark: str) -> None:
        self._numbers.note_mark(number, mark)

    def note_link_ended(self, number: int, reason: str) -> None:
        self._numbers.note_end(number, reason)

    async def leave(self) -> None:
        """Tell the other brokers that this one is not coming back. Returns once they know it, or after some seconds."""
        brokers = [broker for _, broker, _ in self._brokers.values()]
        for broker in brokers:
            broker.leave()
        with trio.move_on_after(_LEAVE_S):
            for broker in brokers:
                await broker.left.wait()

    async def run(self) -> None:
        """Until cancelled."""
        self.note_interest()
        async with trio.open_nursery() as nursery:
            while True:
                await self._changed.wait()
                self._follow_brokers(nursery)

    def _follow_brokers(self, nursery: trio.Nursery) -> None:
        wanted = self._addresses or {}
        for name in [name for name, (address, *_) in self._brokers.items() if wanted.get(name) != address]:
            self._brokers.pop(name)[2].cancel()
        for name, address in wanted.items():
            if name not in self._brokers:
                scope = trio.CancelScope()
                broker = RemoteBroker(
                    self._name,
                    name,
                    address,
                    self._engine,
                    self._numbers,
                    lambda: self._interest,
                    self._settle,
                    self._log,
                    self._connect,
                    self._tls,
                )
                self._brokers[name] = (address, broker, scope)
                nursery.start_soon(self._run_broker, broker, scope)
        self._settle()

    async def _run_broker(self, broker: RemoteBroker, scope: trio.CancelScope) -> None:
        with scope:
            await broker.run()

    def _settle(self) -> None:
        """Tell the engine which version of the interest all other brokers know that can be told."""
        if self._addresses is None or self._addresses != {name: known[0] for name, known in self._brokers.items()}:
            return  # some are not known yet, or nobody has begun to tell them
        told = [broker.told for _, broker, _ in self._brokers.values() if not broker.is_lost]
        self._engine.settle_mqtt_interest(min(told, default=self._interest.version))
