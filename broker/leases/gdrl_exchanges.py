"""This broker's part in the exchange of tokens of all topics: which message goes to whom, and what the others' messages
change. No network, no waiting.

Tokens leave a share in the engine before any message names them, and enter one after they have left another: what is
in force never sums to more than was granted (``adaptor.gdrl.ledger``). The ``LeaseHolder`` puts the share into the
engine; once the distributor recalls it, it stays as it is.
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
from broker.history.bins import EngineBins, EngineHistories
from broker.leases.arrival_rate import ArrivalRate
from broker.leases.lease_holder import LeaseHolder, micro
from srtm.control import Exchange, GdrlAnswer, GdrlCredit, GdrlMessage, GdrlOffer
from srtm.topics.adaptation import Indicator, Partners
from srtm.units import LARGEST, MICRO

if TYPE_CHECKING:
    from srtm._native import Engine

_DECODER = msgspec.json.Decoder(EngineHistories)
_REFUSED = GdrlAnswer(accepted=False)
_MAX_EMPTY_BINS = 100  # no estimate rests on more bins


@dataclass(frozen=True)
class Outgoing:
    """A message for ``partner`` at ``address`` (HOST:PORT). Its answer goes to ``GdrlExchanges.take``."""

    partner: str
    address: str
    message: GdrlMessage


@dataclass
class _Topic:
    """One exchanged topic."""

    exchange: Exchange
    share_version: int  # of the share that the ledger began with
    ledger: Ledger
    estimate: ArrivalRate
    waiting: int = 0
    turn: int = 0
    known_until: int = 0  # number of the first bin that is not counted yet; 0: none is

    def note(self, bins: EngineBins | None, until: int) -> None:
        """Count all bins before ``until``. ``bins`` None: the bins that were asked for are empty."""
        if until == self.known_until:  # waiting messages come with bins
            return
        quiet = min(until - self.known_until, _MAX_EMPTY_BINS) if self.known_until else 0
        for count in bins.from_bin(self.known_until).arrivals if bins is not None else [0] * quiet:
            self.estimate.add(count)
        self.waiting = bins.waiting[-1] if bins is not None and bins.waiting else 0
        self.known_until = until


class GdrlExchanges:
    """``follow`` after every answer to a sync; each round ``update``, and send ``next_message`` of every topic.

    ``invalid_messages`` counts offers, answers and credits that made no sense, since the start.
    """

    def __init__(self, name: str, engine: Engine, holder: LeaseHolder, dice: random.Random) -> None:
        self._name = name
        self._engine = engine
        self._holder = holder
        self._dice = dice
        self._topics: dict[str, _Topic] = {}
        self._suspended: dict[str, _Topic] = {}  # not exchanged now, but what was exchanged is in force
        self.invalid_messages = 0

    @property
    def topics(self) -> Sequence[str]:
        """The topics that are exchanged now."""
        return list(self._topics)

    def follow(self) -> None:
        """Take over which topics may be exchanged from now on. A new epoch begins with the share in force. An
        interrupted epoch goes on with its ledger: a new ledger would count tokens that have left as still here."""
        wanted = self._holder.exchanges
        applied = self._holder.applied
        known = {**self._suspended, **self._topics}
        kept = {name: topic for name, topic in known.items() if topic.share_version == applied.get(name)}
        self._suspended = {name: topic for name, topic in kept.items() if name not in wanted}
        self._topics = {
            name: self._following(name, exchange, applied[name], kept.get(name)) for name, exchange in wanted.items()
        }

    def _following(self, name: str, exchange: Exchange, share_version: int, known: _Topic | None) -> _Topic:
        if known is not None and known.exchange.epoch == exchange.epoch:
            known.exchange = exchange
            return known
        rate_micro, burst_micro = self._holder.in_force(name)
        least = least_rate(_mean_rate(exchange))
        indicator = cast(Indicator, exchange.indicator)
        whole = Tokens(micro(exchange.rate), micro(LARGEST if exchange.burst is None else exchange.burst))
        ledger = Ledger(exchange.epoch, rate_micro, burst_micro, indicator, least, whole)
        return _Topic(exchange, share_version, ledger, ArrivalRate())

    def update(self) -> None:
        """Count the arrivals since the last round; of a new topic, as far back as the engine has them."""
        since = min((topic.known_until for topic in self._topics.values()), default=0)
        histories = _DECODER.decode(self._engine.histories(list(self._topics), since))
        there = {bins.topic: bins for bins in histories.topics}
        for name, topic in self._topics.items():
            topic.note(there.get(name), histories.until)

    def next_message(self, name: str) -> Outgoing | None:
        """This round's message of topic ``name``: a credit that the partner is owed, else an offer. None: there is
        no partner."""
        topic = self._current(name)
        if topic is None:
            return None
        kind = cast(Partners, topic.exchange.partners)
        to = partner(kind, list(topic.exchange.members), self._name, topic.turn, self._dice)
        topic.turn += 1
        if to is None:
            return None
        return self.owed_credit(name, to) or self._outgoing(name, topic, to, offer=self._offer(topic, to))

    def owed_credit(self, name: str, to: str) -> Outgoing | None:
        """The credit for ``to`` that it has not acknowledged; None: there is none."""
        topic = self._current(name)
        owed = topic.ledger.owed(to) if topic is not None else None
        if topic is None or owed is None:
            return None
        number, tokens = owed
        return self._outgoing(name, topic, to, credit=GdrlCredit(number=number, rate=tokens.rate, burst=tokens.burst))

    def take(self, outgoing: Outgoing, answer: GdrlAnswer) -> None:
        """Take an answer. Answers of another epoch do not count: the topic may have changed meanwhile."""
        name, message = outgoing.message.topic, outgoing.message
        topic = self._current(name)
        if topic is None or topic.exchange.epoch != message.epoch or not answer.accepted:
            return
        if message.credit is not None:
            topic.ledger.credited(outgoing.partner, message.credit.number)
        elif message.offer is not None and not _is_sound(answer):
            self.invalid_messages += 1
        elif message.offer is not None:
            gives, asks = Tokens(answer.gives_rate, answer.gives_burst), Tokens(answer.asks_rate, answer.asks_burst)
            settled = topic.ledger.settle(outgoing.partner, message.offer.number, Reply(gives, asks))
            self.invalid_messages += not settled
            self._put_in_force(name, topic)

    def answer(self, message: GdrlMessage) -> GdrlAnswer:
        """The answer to a message of another broker. Messages of another epoch and old ones are refused, and offers
        while the demand here is not known."""
        topic = self._current(message.topic)
        if topic is None or topic.exchange.epoch != message.epoch or message.sender not in topic.exchange.members:
            return _REFUSED
        if message.credit is not None:
            return self._credited(topic, message, message.credit)
        if message.offer is None or not _makes_sense(message.offer):
            self.invalid_messages += 1
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
            self.invalid_messages += 1
            return _REFUSED
        accepted = topic.ledger.credit(message.sender, credit.number, Tokens(credit.rate, credit.burst))
        self._put_in_force(message.topic, topic)
        return GdrlAnswer(accepted=accepted)

    def _current(self, name: str) -> _Topic | None:
        """The topic, unless its exchange has ended: the holder may know that first."""
        topic = self._topics.get(name)
        return topic if topic is not None and self._holder.is_exchanged(name, topic.exchange.epoch) else None

    def _put_in_force(self, name: str, topic: _Topic) -> None:
        self._holder.put_exchanged(name, topic.ledger.rate, topic.ledger.burst)

    def _outgoing(
        self, name: str, topic: _Topic, to: str, *, offer: GdrlOffer | None = None, credit: GdrlCredit | None = None
    ) -> Outgoing:
        message = GdrlMessage(topic=name, epoch=topic.exchange.epoch, sender=self._name, offer=offer, credit=credit)
        return Outgoing(to, topic.exchange.members[to], message)

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
                demand=topic.estimate.rate + topic.waiting,  # waiting messages should be gone within a second
                dispersion=topic.estimate.dispersion,
                batch=topic.exchange.batch,
                capacity=topic.exchange.capacity or float("inf"),
            ),
        )

    def _supply(self, topic: _Topic, supply: Supply) -> Supply:
        """``supply`` with a demand above 0."""
        return floored(supply, _mean_rate(topic.exchange))


def _mean_rate(exchange: Exchange) -> int:
    """The topic's rate per broker, micro."""
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
    """Whether the engine could take a share of this size, micro."""
    return 0 <= rate <= LARGEST * MICRO and 0 <= burst <= LARGEST * MICRO


def _is_sound(answer: GdrlAnswer) -> bool:
    return _is_amount(answer.gives_rate, answer.gives_burst) and _is_amount(answer.asks_rate, answer.asks_burst)


def _makes_sense(offer: GdrlOffer) -> bool:
    wanted = 0 <= offer.demand <= LARGEST and 1 / LARGEST <= offer.dispersion <= LARGEST
    able = 1 <= offer.batch <= LARGEST and (offer.capacity is None or offer.capacity >= 0)
    return wanted and able and _is_amount(offer.rate, offer.burst)
