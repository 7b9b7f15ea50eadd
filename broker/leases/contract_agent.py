"""Holds replicated contracts together with other brokers: tells them each 50 ms what clients took here, and takes what
they tell. Each decides alone: above a contract by at most what the others take while news is on its way.

A broker that starts first asks all others who is overdrawn. It counts every bucket as used up, and one that the others
have together used beyond that would otherwise stay there: this broker would think that its tokens are free.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import trio

from broker.leases.contract_holder import ContractHolder
from broker.leases.contract_news import MOST_COST, Inbox, Outbox
from broker.leases.gdrl_agent import Partner
from srtm.concurrency.backoff import Backoff
from srtm.control import ContractNews, Overdrawn
from srtm.errors import PeerError, SrtmError
from srtm.net.decode_errors import UNREADABLE
from srtm.net.problem_json import refusal

if TYPE_CHECKING:
    from srtm._native import Engine

PATH = "/v1/contracts/news"
OVERDRAWN_PATH = "/v1/contracts/overdrawn"
ROUND_S = 0.05
_ANSWER_TIMEOUT_S = 0.5  # a broker is on the same network
_LONGEST_PAUSE_S = 1.0  # a broker that is back is told within this
JOIN_S = _LONGEST_PAUSE_S + _ANSWER_TIMEOUT_S  # who has not answered one that starts by then counts as cut off


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
        self._early: list[ContractNews] | None = []  # came before this broker has joined; None: it has
        self._was_alone = False  # it joined before it was told who the others are

    def take(self, news: ContractNews) -> None:
        """Charge what clients took at another broker."""
        if not self._inbox.is_new(news):
            return
        if self._early is None:
            self._engine.charge_contracts(news.taken, news.late)
        else:
            self._early.append(news)

    async def run(self) -> None:
        """Until cancelled."""
        await self._holder.replicates.wait()
        await self._join()
        async with trio.open_nursery() as nursery:
            while True:
                await self._holder.replicates.wait()
                if self._holder.has_met.is_set():  # else what is taken waits in the engine
                    self._tell_all(nursery)
                await trio.sleep(ROUND_S)

    async def _join(self) -> None:
        """Ask the others who is overdrawn. What they tell meanwhile counts in addition: nothing drains until then."""
        owed: dict[tuple[str, str], int] = {}
        if self._holder.rejoins:
            with trio.move_on_after(JOIN_S):
                await self._holder.has_met.wait()
                async with trio.open_nursery() as nursery:
                    for address in self._holder.members.values():
                        nursery.start_soon(self._ask, address, owed)
            self._was_alone = not self._holder.has_met.is_set()
        self._engine.join_contracts()
        self._engine.charge_contracts([(*key, tokens) for key, tokens in owed.items()], late=False)
        early, self._early = self._early or [], None
        for news in early:
            self._engine.charge_contracts(news.taken, news.late)

    async def _ask(self, address: str, owed: dict[tuple[str, str], int]) -> None:
        """Put the most that anybody says into ``owed`` (law L5: levels join by their maximum)."""
        client = self._connect(address)
        try:
            status, body = await client.request("GET", OVERDRAWN_PATH, timeout_s=JOIN_S)
            if status != 200:
                raise refusal(f"http://{address}", status, body)
            for namespace, subject, tokens in _read_overdrawn(body, address).owed:
                owed[namespace, subject] = max(min(tokens, MOST_COST), owed.get((namespace, subject), 0))
        except SrtmError:  # it is cut off, or of an older version
            return
        finally:
            await client.aclose()

    def _tell_all(self, nursery: trio.Nursery) -> None:
        self._follow_members(nursery)
        self._was_alone = False
        if taken := self._engine.take_taken():
            for link in self._links.values():
                link.outbox.add(taken)
                link.has_news.set()

    def _follow_members(self, nursery: trio.Nursery) -> None:
        """A broker that is at another address is told there what it was not told yet."""
        before, self._links = self._links, {}
        for broker, address in self._holder.members.items():
            link = before.get(broker)
            if link is None or link.address != address:
                outbox = self._outbox() if link is None else link.outbox
                link = _Link(address, self._connect(address), outbox)
                nursery.start_soon(self._tell, link)
            self._links[broker] = link
        for broker, link in before.items():
            if self._links.get(broker) is not link:
                link.scope.cancel()

    def _outbox(self) -> Outbox:
        return Outbox(self._name, self._incarnation, self._numbers, late=self._was_alone)

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
                        link.outbox.missed()
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


def _read_overdrawn(body: bytes, address: str) -> Overdrawn:
    """Raises PeerError."""
    try:
        found = msgspec.json.decode(body, type=Overdrawn)
    except UNREADABLE as error:
        raise PeerError(f"http://{address}{OVERDRAWN_PATH}: {error}") from None
    if any(tokens < 0 for *_, tokens in found.owed):
        raise PeerError(f"http://{address}{OVERDRAWN_PATH}: tokens must not be below 0")
    return found
