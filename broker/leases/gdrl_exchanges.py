"""This broker's part in the exchange of tokens, all topics: what to say to whom, and what comes of what others say. No
network, no waiting.

Tokens leave a share in the engine before anybody is told of them, and come into one after they have left another: so
what is in force never sums to more than was dealt out (``adaptor.gdrl.ledger``). What is in force here is told to the
``LeaseHolder``, which puts it into the engine; once the distributor recalls it, it stays as it is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import msgspec

from adaptor.gdrl.exchange import Supply, floored, least_rate
from adaptor.gdrl.ledger import Ledger, Reply, Tokens
from adaptor.gdrl.partners import partner
from adaptor.policies.change_detection import RateEstimate
from broker.history.bins import EngineBins, EngineHistories
from broker.leases.lease_holder import LeaseHolder, micro
from srtm.control import Exchange, GdrlAnswer, GdrlCredit, GdrlMessage, GdrlOffer
from srtm.topics.adaptation import Indicator, Partners
from srtm.units import LARGEST, MICRO

if TYPE_CHECKING:
    from srtm._native import Engine

_DECODER = msgspec.json.Decoder(EngineHistories)
_REFUSED = GdrlAnswer(accepted=False)
_MOST_QUIET_BINS = 100  # no estimate rests on more


@dataclass(frozen=True)
class Errand:
    """``message`` is to be said to ``partner``, at ``address`` (HOST:PORT); its answer goes to ``Exchanges.take``."""

    partner: str
    address: str
    message: GdrlMessage


@dataclass
class _Topic:
    """One topic that is exchanged."""

    exchange: Exchange
    share_version: int  # of the share that the ledger began with
    ledger: Ledger
    estimate: RateEstimate
    waiting: int = 0
    turn: int = 0
    known_until: int = 0  # number of the first bin that was not looked at; 0: nobody has looked yet

    def note(self, bins: EngineBins | None, until: int) -> None:
        """All before bin ``until``; None: nothing was in those that were asked for."""
        if until == self.known_until:  # what waits is told with bins
            return
        quiet = min(until - self.known_until, _MOST_QUIET_BINS) if self.known_until else 0
        for count in bins.from_bin(self.known_until).arrivals if bins is not None else [0] * quiet:
            self.estimate.add(count)
        self.waiting = bins.waiting[-1] if bins is not None and bins.waiting else 0
        self.known_until = until


class Exchanges:
    """``follow`` it after every answer to a sync; each round ``look`` and carry out an ``errand`` a topic.
    ``nonsense``: offers, answers and credits that made none, counted since the start."""

    def __init__(self, name: str, engine: Engine, holder: LeaseHolder, dice: random.Random) -> None:
        self._name = name
        self._engine = engine
        self._holder = holder
        self._dice = dice
        self._topics: dict[str, _Topic] = {}
        self._resting: dict[str, _Topic] = {}  # not exchanged for now, and what was exchanged is still in force
        self.nonsense = 0

    @property
    def topics(self) -> Sequence[str]:
        """Those that are exchanged now."""
        return list(self._topics)

    def follow(self) -> None:
        """What the distributor lets be exchanged from now on. A new epoch begins with the share in force; one that is
        interrupted goes on with its ledger: another one would count what has changed hands as still here."""
        wanted = self._holder.exchanges
        applied = self._holder.applied
        known = {**self._resting, **self._topics}
        kept = {name: one for name, one in known.items() if one.share_version == applied.get(name)}
        self._resting = {name: one for name, one in kept.items() if name not in wanted}
        self._topics = {
            name: self._following(name, exchange, applied[name], kept.get(name)) for name, exchange in wanted.items()
        }

    def _following(self, name: str, exchange: Exchange, share_version: int, known: _Topic | None) -> _Topic:
        if known is not None and known.exchange.epoch == exchange.epoch:
            known.exchange = exchange
            return known
        rate_micro, burst_micro = self._holder.in_force(name)
        least = least_rate(_mean_rate(exchange))
        ledger = Ledger(exchange.epoch, rate_micro, burst_micro, cast(Indicator, exchange.indicator), least)
        return _Topic(exchange, share_version, ledger, RateEstimate())

    def look(self) -> None:
        """What came since the last look; to a topic that is new here, as far back as the engine knows."""
        since = min((topic.known_until for topic in self._topics.values()), default=0)
        histories = _DECODER.decode(self._engine.histories(list(self._topics), since))
        there = {bins.topic: bins for bins in histories.topics}
        for name, topic in self._topics.items():
            topic.note(there.get(name), histories.until)

    def errand(self, name: str) -> Errand | None:
        """This turn's, of topic ``name``: what is owed to whose turn it is, else an offer. None: there is nobody."""
        topic = self._current(name)
        if topic is None:
            return None
        kind = cast(Partners, topic.exchange.partners)
        to = partner(kind, list(topic.exchange.members), self._name, topic.turn, self._dice)
        topic.turn += 1
        if to is None:
            return None
        return self.payment(name, to) or self._errand(name, topic, to, offer=self._offer(topic, to))

    def payment(self, name: str, to: str) -> Errand | None:
        """What ``to`` is owed and has not acknowledged; None: nothing."""
        topic = self._current(name)
        owed = topic.ledger.owed(to) if topic is not None else None
        if topic is None or owed is None:
            return None
        number, tokens = owed
        return self._errand(name, topic, to, credit=GdrlCredit(number=number, rate=tokens.rate, burst=tokens.burst))

    def take(self, errand: Errand, answer: GdrlAnswer) -> None:
        """What came back. Nothing of another epoch counts: the topic may have changed meanwhile."""
        name, message = errand.message.topic, errand.message
        topic = self._current(name)
        if topic is None or topic.exchange.epoch != message.epoch or not answer.accepted:
            return
        if message.credit is not None:
            topic.ledger.credited(errand.partner, message.credit.number)
        elif message.offer is not None and not _is_sound(answer):
            self.nonsense += 1
        elif message.offer is not None:
            gives, asks = Tokens(answer.gives_rate, answer.gives_burst), Tokens(answer.asks_rate, answer.asks_burst)
            topic.ledger.settle(errand.partner, message.offer.number, Reply(gives, asks))
            self._put_in_force(name, topic)

    def answer(self, message: GdrlMessage) -> GdrlAnswer:
        """To an offer or a credit of another broker; refused where it is of another epoch, or old; an offer also where
        it is not known yet what comes here."""
        topic = self._current(message.topic)
        if topic is None or topic.exchange.epoch != message.epoch or message.sender not in topic.exchange.members:
            return _REFUSED
        if message.credit is not None:
            return self._credited(topic, message, message.credit)
        if message.offer is None or not _makes_sense(message.offer):
            self.nonsense += 1
            return _REFUSED
        if not topic.known_until:
            return _REFUSED
        theirs = self._supply(topic, _wanted(message.offer))
        reply = topic.ledger.answer(message.sender, message.offer.number, theirs, self._mine(topic))
        self._put_in_force(message.topic, topic)
        if reply is None:
            return _REFUSED
        return GdrlAnswer(
            accepted=True,
            gives_rate=reply.gives.rate,
            gives_burst=reply.gives.burst,
            asks_rate=reply.asks.rate,
            asks_burst=reply.asks.burst,
        )

    def _credited(self, topic: _Topic, message: GdrlMessage, credit: GdrlCredit) -> GdrlAnswer:
        if not _is_amount(credit.rate, credit.burst):
            self.nonsense += 1
            return _REFUSED
        accepted = topic.ledger.credit(message.sender, credit.number, Tokens(credit.rate, credit.burst))
        self._put_in_force(message.topic, topic)
        return GdrlAnswer(accepted=accepted)

    def _current(self, name: str) -> _Topic | None:
        """Not one whose exchange has ended already: that may be known to the holder first."""
        topic = self._topics.get(name)
        return topic if topic is not None and self._holder.is_exchanged(name, topic.exchange.epoch) else None

    def _put_in_force(self, name: str, topic: _Topic) -> None:
        self._holder.put_exchanged(name, topic.ledger.rate, topic.ledger.burst)

    def _errand(
        self, name: str, topic: _Topic, to: str, *, offer: GdrlOffer | None = None, credit: GdrlCredit | None = None
    ) -> Errand:
        message = GdrlMessage(topic=name, epoch=topic.exchange.epoch, sender=self._name, offer=offer, credit=credit)
        return Errand(to, topic.exchange.members[to], message)

    def _offer(self, topic: _Topic, to: str) -> GdrlOffer:
        mine = self._mine(topic)
        return GdrlOffer(
            number=topic.ledger.offer(to),
            rate=mine.rate,
            burst=mine.burst,
            demand=mine.demand,
            dispersion=mine.dispersion,
            batch=mine.batch,
            capacity=topic.exchange.capacity,
        )

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

    def _supply(self, topic: _Topic, supply: Supply) -> Supply:
        """With a demand that is not nothing."""
        return floored(supply, _mean_rate(topic.exchange))


def _mean_rate(exchange: Exchange) -> int:
    """Of the topic's rate per broker, micro."""
    return micro(exchange.rate / len(exchange.members))


def _wanted(offer: GdrlOffer) -> Supply:
    return Supply(
        rate=offer.rate,
        burst=offer.burst,
        demand=offer.demand,
        dispersion=offer.dispersion,
        batch=offer.batch,
        capacity=offer.capacity or float("inf"),
    )


def _is_amount(rate: int, burst: int) -> bool:
    """Of a share that the engine could take, micro."""
    return 0 <= rate <= LARGEST * MICRO and 0 <= burst <= LARGEST * MICRO


def _is_sound(answer: GdrlAnswer) -> bool:
    return _is_amount(answer.gives_rate, answer.gives_burst) and _is_amount(answer.asks_rate, answer.asks_burst)


def _makes_sense(offer: GdrlOffer) -> bool:
    wanted = 0 <= offer.demand <= LARGEST and 1 / LARGEST <= offer.dispersion <= LARGEST
    able = 1 <= offer.batch <= LARGEST and (offer.capacity is None or offer.capacity >= 0)
    return wanted and able and _is_amount(offer.rate, offer.burst)
