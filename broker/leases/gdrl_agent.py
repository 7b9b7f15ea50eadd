"""GDRL among brokers (``adaptor.gdrl.exchange``): ten times a second this broker asks another one to even out with it,
topic by topic, and answers those who ask. No distributor is needed while it runs. What is said, and what comes of it,
is decided in ``broker.leases.gdrl_exchanges``."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from broker.leases.gdrl_exchanges import Errand, Exchanges
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
_PATIENCE_S = 0.5  # a partner is on the same network, and busy for no longer


class Partner(Protocol):
    """HTTP to another broker (``srtm.net.http_client.HttpClient``)."""

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]: ...

    async def aclose(self) -> None: ...


class GdrlAgent:
    """``follow`` it after every answer to a sync, ``run`` it once; ``answer`` whoever asks."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        holder: LeaseHolder,
        connect: Callable[[str], Partner],
        dice: random.Random,
        log: Log,
    ) -> None:
        self._exchanges = Exchanges(name, engine, holder, dice)
        self._connect = connect  # to HOST:PORT
        self._dice = dice
        self._log = log
        self._troubles: dict[str, str] = {}  # {partner: why it does not talk to us}
        self.rounds = 0  # since the start
        self._some = trio.Event()  # there is something to exchange

    @property
    def nonsense(self) -> int:
        """Offers, answers and credits that made none, since the start."""
        return self._exchanges.nonsense

    def follow(self) -> None:
        """What the distributor lets be exchanged from now on."""
        self._exchanges.follow()
        if self._exchanges.topics:
            self._some.set()
        elif self._some.is_set():
            self._some = trio.Event()

    def answer(self, message: GdrlMessage) -> GdrlAnswer:
        """To an offer or a credit of another broker."""
        return self._exchanges.answer(message)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._some.wait()
            started_s = trio.current_time()
            self.rounds += 1
            self._exchanges.look()
            async with trio.open_nursery() as nursery:
                for name in self._exchanges.topics:
                    nursery.start_soon(self._ask, name)
            await trio.sleep_until(started_s + ROUND_S * self._dice.uniform(0.9, 1.1))

    async def _ask(self, name: str) -> None:
        errand = self._exchanges.errand(name)
        if errand is None:
            return
        await self._carry_out(errand)
        if errand.message.offer is not None:
            payment = self._exchanges.payment(name, errand.partner)
            if payment is not None:
                await self._carry_out(payment)

    async def _carry_out(self, errand: Errand) -> None:
        """What gets no answer is said again in a later turn."""
        client = self._connect(errand.address)
        body = msgspec.json.encode(errand.message)
        try:
            status, body = await client.request("POST", PATH, body, timeout_s=_PATIENCE_S)
            if status != 200:
                raise refusal(f"http://{errand.address}", status, body)
            answer = msgspec.json.decode(body, type=GdrlAnswer)
            self._troubles.pop(errand.partner, None)
        except Unavailable:  # whether a broker lives is for the distributor to notice
            return
        except (SrtmError, *UNREADABLE) as error:
            self._note_trouble(errand.partner, str(error))
            return
        finally:
            await client.aclose()
        self._exchanges.take(errand, answer)

    def _note_trouble(self, partner: str, trouble: str) -> None:
        """Once a change: a refusal stays one until somebody acts."""
        if self._troubles.get(partner) != trouble:
            self._log.warning("no tokens are exchanged", partner=partner, reason=trouble)
        self._troubles[partner] = trouble
