"""Exchanges tokens with other brokers (``adaptor.gdrl.exchange``): ten times a second it asks one broker per
topic to even out, and it answers those who ask. No distributor is needed meanwhile. ``gdrl_exchanges`` decides what
is sent."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from broker.leases.gdrl_exchanges import GdrlExchanges, Outgoing
from broker.leases.lease_holder import LeaseHolder
from srtm.control import GdrlAnswer, GdrlMessage
from srtm.errors import SrtmError, Unavailable
from srtm.log import Log
from srtm.net.decode_errors import UNREADABLE
from srtm.net.problem_json import refusal

if TYPE_CHECKING:
    from srtm._native import Engine

ROUND_S = 0.1
PATH = "/v1/gdrl/exchange"
_ANSWER_TIMEOUT_S = 0.5  # a partner is on the same network


class Partner(Protocol):
    """HTTP to another broker (``srtm.net.http_client.HttpClient``)."""

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]: ...

    async def aclose(self) -> None: ...


class GdrlAgent:
    """``follow`` after every answer to a sync, ``run`` once, ``answer`` every message."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        holder: LeaseHolder,
        connect: Callable[[str], Partner],
        dice: random.Random,
        log: Log,
    ) -> None:
        self._exchanges = GdrlExchanges(name, engine, holder, dice)
        self._connect = connect  # to HOST:PORT
        self._dice = dice
        self._log = log
        self._troubles: dict[str, str] = {}  # {partner: why it refuses}
        self.rounds = 0  # since the start
        self._has_topics = trio.Event()  # a topic is exchanged

    @property
    def invalid_messages(self) -> int:
        """Offers, answers and credits that made no sense, since the start."""
        return self._exchanges.invalid_messages

    def follow(self) -> None:
        """Take over which topics may be exchanged from now on."""
        self._exchanges.follow()
        if self._exchanges.topics:
            self._has_topics.set()
        elif self._has_topics.is_set():
            self._has_topics = trio.Event()

    def answer(self, message: GdrlMessage) -> GdrlAnswer:
        """The answer to an offer or a credit."""
        return self._exchanges.answer(message)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._has_topics.wait()
            started_s = trio.current_time()
            self.rounds += 1
            self._exchanges.update()
            async with trio.open_nursery() as nursery:
                for name in self._exchanges.topics:
                    nursery.start_soon(self._ask, name)
            await trio.sleep_until(started_s + ROUND_S * self._dice.uniform(0.9, 1.1))

    async def _ask(self, name: str) -> None:
        outgoing = self._exchanges.next_message(name)
        if outgoing is None:
            return
        await self._send(outgoing)
        if outgoing.message.offer is not None:
            owed_credit = self._exchanges.owed_credit(name, outgoing.partner)
            if owed_credit is not None:
                await self._send(owed_credit)

    async def _send(self, outgoing: Outgoing) -> None:
        """A message without an answer is sent again in a later round."""
        client = self._connect(outgoing.address)
        body = msgspec.json.encode(outgoing.message)
        try:
            status, body = await client.request("POST", PATH, body, timeout_s=_ANSWER_TIMEOUT_S)
            if status != 200:
                raise refusal(f"http://{outgoing.address}", status, body)
            answer = msgspec.json.decode(body, type=GdrlAnswer)
            self._troubles.pop(outgoing.partner, None)
        except Unavailable:  # the distributor notices whether a broker lives
            return
        except (SrtmError, *UNREADABLE) as error:
            self._note_trouble(outgoing.partner, str(error))
            return
        finally:
            await client.aclose()
        self._exchanges.take(outgoing, answer)

    def _note_trouble(self, partner: str, trouble: str) -> None:
        """Log each new reason once: a refusal lasts until somebody acts."""
        if self._troubles.get(partner) != trouble:
            self._log.warning("no tokens are exchanged", partner=partner, reason=trouble)
        self._troubles[partner] = trouble
