"""Holds replicated contracts together with other brokers: tells them each 50 ms what clients took here, and takes what
they tell. Each decides alone: above a contract by at most what the others take while news is on its way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import trio

from broker.leases.contract_holder import ContractHolder
from broker.leases.contract_news import Inbox, Outbox
from broker.leases.gdrl_agent import Partner
from srtm.concurrency.backoff import Backoff
from srtm.control import ContractNews
from srtm.errors import SrtmError
from srtm.net.problem_json import refusal

if TYPE_CHECKING:
    from srtm._native import Engine

PATH = "/v1/contracts/news"
ROUND_S = 0.05
_ANSWER_TIMEOUT_S = 0.5  # a broker is on the same network
_LONGEST_PAUSE_S = 1.0  # a broker that is back is told within this


class _Link:
    """To another broker: its connection, which is kept from one message to the next, and the news for it."""

    def __init__(self, address: str, client: Partner, outbox: Outbox) -> None:
        self.address = address
        self.client = client
        self.outbox = outbox
        self.has_news = trio.Event()
        self.scope = trio.CancelScope()


class ContractAgent:
    """``run`` once, ``take`` every message. ``connect``: to the HOST:PORT of another broker."""

    def __init__(
        self, name: str, incarnation: str, engine: Engine, holder: ContractHolder, connect: Callable[[str], Partner]
    ) -> None:
        self._name = name
        self._incarnation = incarnation
        self._engine = engine
        self._holder = holder
        self._connect = connect
        self._links: dict[str, _Link] = {}  # {broker: link}
        self._numbers = itertools.count(1)
        self._inbox = Inbox()

    def take(self, news: ContractNews) -> None:
        """Charge what clients took at another broker."""
        if self._inbox.is_new(news):
            self._engine.charge_contracts(news.taken)

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._holder.replicates.wait()
                self._follow_members(nursery)
                if taken := self._engine.take_taken():
                    for link in self._links.values():
                        link.outbox.add(taken)
                        link.has_news.set()
                await trio.sleep(ROUND_S)

    def _follow_members(self, nursery: trio.Nursery) -> None:
        """A broker that is at another address is told there what it was not told yet."""
        before, self._links = self._links, {}
        for broker, address in self._holder.members.items():
            link = before.get(broker)
            if link is None or link.address != address:
                outbox = Outbox(self._name, self._incarnation, self._numbers) if link is None else link.outbox
                link = _Link(address, self._connect(address), outbox)
                nursery.start_soon(self._tell, link)
            self._links[broker] = link
        for broker, link in before.items():
            if self._links.get(broker) is not link:
                link.scope.cancel()

    async def _tell(self, link: _Link) -> None:
        """Send all news, until the link's scope is cancelled. What is not acknowledged is sent again."""
        backoff = Backoff(ROUND_S, _LONGEST_PAUSE_S)
        try:
            with link.scope:
                while True:
                    link.has_news = trio.Event()
                    news = link.outbox.next()
                    if news is None:
                        await link.has_news.wait()
                        continue
                    try:
                        await self._send(link, news)
                    except SrtmError:  # the distributor notices whether a broker lives
                        await trio.sleep(backoff.next_s())
                    else:
                        link.outbox.acknowledged()
                        backoff.reset()
        finally:
            await link.client.aclose()

    async def _send(self, link: _Link, news: ContractNews) -> None:
        body = msgspec.json.encode(news)
        status, answer = await link.client.request("POST", PATH, body, timeout_s=_ANSWER_TIMEOUT_S)
        if status != 204:
            raise refusal(f"http://{link.address}", status, answer)
