"""A broker that exchanges tokens, in memory: the real ``LeaseHolder`` and ``Exchanges`` over a greedy engine. What it
says among brokers is kept, so that it can be delivered late, twice, or never."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from broker.exchanges import Errand, Exchanges
from broker.lease_holder import LeaseHolder
from distributor.leases import Amount
from srtm.control import GdrlMessage, SyncAnswer
from srtm.errors import PeerError
from tests.support.greedy_engine import GreedyEngine

Said = dict[tuple[str, int, str, int, str], Errand]  # {(asker, epoch, asked, number, "offer" or "credit"): errand}
DEMAND = 1_000  # msg/s at every broker, unless it is told otherwise


class Chosen(random.Random):
    """Picks whom it is told to."""

    to = ""

    def choice(self, among: Sequence[Any]) -> Any:
        assert self.to in among
        return self.to


class WaitedFor(GreedyEngine):
    """``waiting`` messages wait at every look, nothing comes."""

    waiting = DEMAND

    def histories(self, topics: list[str], since: int) -> bytes:
        bins = {"version": 1, "first": 0, "arrivals": [0], "waiting": [self.waiting], "unfinished": [0.0]}
        told = [{"topic": topic, **bins} for topic in topics]
        return msgspec.json.encode({"until": since + 1, "bin_ns": 100_000_000, "wall_offset_ns": 0, "topics": told})


class ExchangingBroker:
    """One incarnation. What it says is written into ``said``."""

    def __init__(self, name: str, said: Said, now_ns: Callable[[], int] = lambda: 0) -> None:
        self.name = name
        self.said = said
        self.engine = WaitedFor(now_ns, now_ns)
        self.holder = LeaseHolder(self.engine)  # type: ignore[arg-type]  # it is an engine in all that matters
        self.dice = Chosen()
        self.exchanges = Exchanges(name, self.engine, self.holder, self.dice)  # type: ignore[arg-type]

    @property
    def share(self) -> Amount:
        return Amount(*self.engine.share_micro)

    @property
    def epoch(self) -> int:
        """Of the pool that it takes part in; 0: of none."""
        exchange = self.holder.exchanges.get("t")
        return exchange.epoch if exchange is not None else 0

    def close(self) -> list[int]:
        """What it has let go."""
        self.engine.stop(0)
        return self.engine.released_ns

    def take(self, answer: SyncAnswer) -> None:
        """Unless it is older than what is in force."""
        try:
            self.holder.apply(answer, 0)
        except PeerError:
            return
        self.exchanges.follow()
        if self.exchanges.topics:
            self.exchanges.look()

    def say(self, to: str) -> GdrlMessage:
        """To ``to``: the credit that it is owed, or an offer."""
        self.dice.to = to
        errand = self.exchanges.errand("t")
        assert errand is not None
        message = errand.message
        if message.credit is not None:
            self.said[self.name, message.epoch, to, message.credit.number, "credit"] = errand
        elif message.offer is not None:
            self.said[self.name, message.epoch, to, message.offer.number, "offer"] = errand
        return message
