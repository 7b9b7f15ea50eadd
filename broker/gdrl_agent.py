"""GDRL among brokers (``adaptor.gdrl``): ten times a second this broker asks another one to even out with it, topic by
topic, and answers those who ask. No distributor is needed while it runs.

Tokens leave a share in the engine before anybody is told of them, and come into one after they have left another: so
what is in force never sums to more than was dealt out (``adaptor.ledger``). What is in force here is told to the
``LeaseHolder``, which puts it into the engine and lets go of it as soon as the distributor deals anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import msgspec
import trio

from adaptor.detection import RateEstimate
from adaptor.gdrl import Supply, floored
from adaptor.ledger import Ledger, Reply, Tokens
from adaptor.ring import partner
from broker.bins import EngineHistories
from broker.lease_holder import LeaseHolder, micro
from srtm.adaptation import Indicator, Partners
from srtm.control import Exchange, GdrlAnswer, GdrlCredit, GdrlMessage, GdrlOffer
from srtm.errors import SrtmError, Unavailable
from srtm.log import Log
from srtm.refusals import refusal
from srtm.splitting import LARGEST, MICRO
from srtm.unreadable import UNREADABLE

if TYPE_CHECKING:
    from srtm._native import Engine

ROUND_S = 0.1
PATH = "/v1/gdrl/exchange"
_PATIENCE_S = 0.5  # a partner is on the same network, and busy for no longer
_DECODER = msgspec.json.Decoder(EngineHistories)


class Partner(Protocol):
    """HTTP to another broker (``srtm.http_client.HttpClient``)."""

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]: ...

    async def aclose(self) -> None: ...


@dataclass
class _Topic:
    """One topic that is exchanged."""

    exchange: Exchange
    share_version: int  # of the share that the ledger began with
    ledger: Ledger
    estimate: RateEstimate
    waiting: int = 0
    turn: int = 0


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
        self._name = name
        self._engine = engine
        self._holder = holder
        self._connect = connect  # to HOST:PORT
        self._dice = dice
        self._log = log
        self._troubles: dict[str, str] = {}  # {partner: why it does not talk to us}
        self._topics: dict[str, _Topic] = {}
        self._resting: dict[str, _Topic] = {}  # not exchanged for now, and what was exchanged is still in force
        self._next_bin = 0
        self._some = trio.Event()  # there is something to exchange

    def follow(self) -> None:
        """What the distributor lets be exchanged from now on. A new epoch begins with the share in force; one that is
        interrupted goes on with its ledger: another one would count what has changed hands as still here."""
        wanted = self._holder.exchanges
        known = {**self._resting, **self._topics}
        kept = {name: one for name, one in known.items() if one.share_version == self._holder.applied.get(name)}
        self._resting = {name: one for name, one in kept.items() if name not in wanted}
        self._topics = {name: self._following(name, exchange, kept.get(name)) for name, exchange in wanted.items()}
        if wanted:
            self._some.set()
        elif self._some.is_set():
            self._some = trio.Event()

    def _following(self, name: str, exchange: Exchange, known: _Topic | None) -> _Topic:
        if known is not None and known.exchange.epoch == exchange.epoch:
            known.exchange = exchange
            return known
        rate_micro, burst_micro = self._holder.in_force(name)
        ledger = Ledger(exchange.epoch, rate_micro, burst_micro, cast(Indicator, exchange.indicator))
        return _Topic(exchange, self._holder.applied[name], ledger, RateEstimate())

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._some.wait()
            started_s = trio.current_time()
            self._look()
            async with trio.open_nursery() as nursery:
                for name, topic in list(self._topics.items()):
                    nursery.start_soon(self._ask, name, topic)
            await trio.sleep_until(started_s + ROUND_S * self._dice.uniform(0.9, 1.1))

    def answer(self, message: GdrlMessage) -> GdrlAnswer:
        """To an offer or a credit of another broker; refused where it is of another epoch, or old."""
        topic = self._topics.get(message.topic)
        if topic is None or topic.exchange.epoch != message.epoch or message.sender not in topic.exchange.members:
            return GdrlAnswer(accepted=False)
        if not self._is_current(message.topic, topic):
            return GdrlAnswer(accepted=False)
        if message.credit is not None and _is_amount(message.credit.rate, message.credit.burst):
            credit = message.credit
            accepted = topic.ledger.credit(message.sender, credit.number, Tokens(credit.rate, credit.burst))
            self._put_in_force(message.topic, topic)
            return GdrlAnswer(accepted=accepted)
        if message.offer is None or not _makes_sense(message.offer):
            return GdrlAnswer(accepted=False)
        reply = topic.ledger.answer(
            message.sender, message.offer.number, self._theirs(topic, message.offer), self._mine(topic)
        )
        self._put_in_force(message.topic, topic)
        if reply is None:
            return GdrlAnswer(accepted=False)
        return GdrlAnswer(
            accepted=True,
            gives_rate=reply.gives.rate,
            gives_burst=reply.gives.burst,
            asks_rate=reply.asks.rate,
            asks_burst=reply.asks.burst,
        )

    async def _ask(self, name: str, topic: _Topic) -> None:
        kind = cast(Partners, topic.exchange.partners)
        to = partner(kind, list(topic.exchange.members), self._name, topic.turn, self._dice)
        topic.turn += 1
        if to is None or not self._is_current(name, topic):
            return
        if topic.ledger.owed(to) is None:
            await self._offer(name, topic, to)
        await self._pay(name, topic, to)

    async def _offer(self, name: str, topic: _Topic, to: str) -> None:
        number, mine = topic.ledger.offer(to), self._mine(topic)
        offer = GdrlOffer(
            number=number,
            rate=mine.rate,
            burst=mine.burst,
            demand=mine.demand,
            dispersion=mine.dispersion,
            batch=mine.batch,
            capacity=topic.exchange.capacity,
        )
        answer = await self._tell(name, topic, to, offer=offer)
        if answer is None or not answer.accepted or not self._is_current(name, topic):
            return
        if _is_amount(answer.gives_rate, answer.gives_burst) and _is_amount(answer.asks_rate, answer.asks_burst):
            gives, asks = Tokens(answer.gives_rate, answer.gives_burst), Tokens(answer.asks_rate, answer.asks_burst)
            topic.ledger.settle(to, number, Reply(gives, asks))
            self._put_in_force(name, topic)

    async def _pay(self, name: str, topic: _Topic, to: str) -> None:
        owed = topic.ledger.owed(to)
        if owed is None or not self._is_current(name, topic):
            return
        number, tokens = owed
        credit = GdrlCredit(number=number, rate=tokens.rate, burst=tokens.burst)
        answer = await self._tell(name, topic, to, credit=credit)
        if answer is not None and answer.accepted:
            topic.ledger.credited(to, number)

    async def _tell(
        self,
        name: str,
        topic: _Topic,
        to: str,
        *,
        offer: GdrlOffer | None = None,
        credit: GdrlCredit | None = None,
    ) -> GdrlAnswer | None:
        """None: no answer came; it is asked again in a later turn."""
        message = GdrlMessage(topic=name, epoch=topic.exchange.epoch, sender=self._name, offer=offer, credit=credit)
        address = topic.exchange.members[to]
        client = self._connect(address)
        try:
            status, body = await client.request("POST", PATH, msgspec.json.encode(message), timeout_s=_PATIENCE_S)
            if status != 200:
                raise refusal(f"http://{address}", status, body)
            answer = msgspec.json.decode(body, type=GdrlAnswer)
            self._troubles.pop(to, None)
        except Unavailable:  # whether a broker lives is for the distributor to notice
            return None
        except (SrtmError, *UNREADABLE) as error:
            self._note_trouble(to, str(error))
            return None
        finally:
            await client.aclose()
        return answer

    def _note_trouble(self, partner: str, trouble: str) -> None:
        """Once a change: a refusal stays one until somebody acts."""
        if self._troubles.get(partner) != trouble:
            self._log.warning("no tokens are exchanged", partner=partner, reason=trouble)
        self._troubles[partner] = trouble

    def _is_current(self, name: str, topic: _Topic) -> bool:
        """It may have changed while a message was on its way."""
        return self._topics.get(name) is topic and self._holder.is_exchanged(name, topic.exchange.epoch)

    def _put_in_force(self, name: str, topic: _Topic) -> None:
        self._holder.put_exchanged(name, topic.ledger.rate, topic.ledger.burst)

    def _look(self) -> None:
        """What came since the last look."""
        histories = _DECODER.decode(self._engine.histories(list(self._topics), self._next_bin))
        since, self._next_bin = self._next_bin, histories.until
        there = {bins.topic: bins for bins in histories.topics}
        for name, topic in self._topics.items():
            bins = there.get(name)
            counts = bins.arrivals if bins is not None else [0] * (histories.until - since if since else 0)
            for count in counts:
                topic.estimate.add(count)
            topic.waiting = bins.waiting[-1] if bins is not None and bins.waiting else 0

    def _mine(self, topic: _Topic) -> Supply:
        return self._supply(
            topic,
            Supply(
                rate=topic.ledger.rate,
                burst=topic.ledger.burst,
                demand=topic.estimate.rate + topic.waiting,  # what waits should be gone in a second
                dispersion=topic.estimate.dispersion,
                batch=topic.exchange.batch,
                capacity=topic.exchange.capacity or float("inf"),
            ),
        )

    def _theirs(self, topic: _Topic, offer: GdrlOffer) -> Supply:
        return self._supply(
            topic,
            Supply(
                rate=offer.rate,
                burst=offer.burst,
                demand=offer.demand,
                dispersion=offer.dispersion,
                batch=offer.batch,
                capacity=offer.capacity or float("inf"),
            ),
        )

    def _supply(self, topic: _Topic, supply: Supply) -> Supply:
        """With a demand that is not nothing."""
        return floored(supply, micro(topic.exchange.rate / len(topic.exchange.members)))


def _is_amount(rate: int, burst: int) -> bool:
    """Of a share that the engine could take, micro."""
    return 0 <= rate <= LARGEST * MICRO and 0 <= burst <= LARGEST * MICRO


def _makes_sense(offer: GdrlOffer) -> bool:
    wanted = 0 <= offer.demand <= LARGEST and 1 / LARGEST <= offer.dispersion <= LARGEST
    able = 1 <= offer.batch <= LARGEST and (offer.capacity is None or offer.capacity >= 0)
    return wanted and able and _is_amount(offer.rate, offer.burst)
