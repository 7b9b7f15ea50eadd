"""Holds replicated contracts together with other brokers: tells them each 50 ms what clients took here, and takes what
they tell. Each decides alone: above a contract by at most what the others take while news is on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import trio

from broker.leases.contract_holder import ContractHolder
from broker.leases.contract_news import Inbox, Outbox
from broker.leases.gdrl_agent import Partner
from srtm.control import ContractNews
from srtm.errors import SrtmError
from srtm.net.problem_json import refusal

if TYPE_CHECKING:
    from srtm._native import Engine

PATH = "/v1/contracts/news"
ROUND_S = 0.05
_ANSWER_TIMEOUT_S = 0.5  # a broker is on the same network


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
        self._outboxes: dict[str, Outbox] = {}  # {broker: news for it}
        self._inbox = Inbox()
        self._busy: set[str] = set()  # brokers that are being told

    def take(self, news: ContractNews) -> None:
        """Charge what clients took at another broker."""
        if self._inbox.is_new(news):
            self._engine.charge_contracts(news.taken)

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._holder.replicates.wait()
                self._collect()
                for broker, address in self._holder.members.items():
                    if broker not in self._busy and self._outboxes[broker].next() is not None:
                        self._busy.add(broker)
                        nursery.start_soon(self._tell, broker, address)
                await trio.sleep(ROUND_S)

    def _collect(self) -> None:
        members = self._holder.members
        self._outboxes = {
            broker: self._outboxes.get(broker) or Outbox(self._name, self._incarnation) for broker in members
        }
        taken = self._engine.take_taken()
        for outbox in self._outboxes.values():
            outbox.add(taken)

    async def _tell(self, broker: str, address: str) -> None:
        """Send all news. What is not acknowledged is sent again in a later round."""
        outbox = self._outboxes[broker]
        client = self._connect(address)
        try:
            while (news := outbox.next()) is not None:
                body = msgspec.json.encode(news)
                status, answer = await client.request("POST", PATH, body, timeout_s=_ANSWER_TIMEOUT_S)
                if status != 204:
                    raise refusal(f"http://{address}", status, answer)
                outbox.acknowledged()
        except SrtmError:  # the distributor notices whether a broker lives
            return
        finally:
            self._busy.discard(broker)
            await client.aclose()
