"""A broker that exchanges tokens, in memory: the real ``LeaseHolder`` and ``GdrlExchanges`` over a greedy engine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from broker.leases.gdrl_exchanges import GdrlExchanges, Outgoing
from srtm.control import SyncAnswer
from tests.support.greedy_engine import GreedyEngine
from tests.support.lease_world import NAME, Answer, BrokerProcess, Clock

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
        columns = {"arrivals": [0], "waiting": [self.waiting], "unfinished": [0.0], "delay_ns": [0]}
        told = [{"topic": topic, "version": 1, "first": 0, "supply": [], **columns} for topic in topics]
        return msgspec.json.encode({"until": since + 1, "bin_ns": 100_000_000, "wall_offset_ns": 0, "topics": told})


class ExchangingBroker(BrokerProcess):
    """One incarnation."""

    make_engine = WaitedFor
    engine: WaitedFor

    def __init__(self, name: str, incarnation: int, clock: Clock, remembered: SyncAnswer | None) -> None:
        super().__init__(name, incarnation, clock, remembered)
        self._dice = Chosen()
        self.exchanges = GdrlExchanges(name, self.engine, self.holder, self._dice)  # type: ignore[arg-type]

    @property
    def epoch(self) -> int:
        """Of the pool that it takes part in; 0: of none."""
        exchange = self.holder.exchanges.get(NAME)
        return exchange.epoch if exchange is not None else 0

    def take(self, answer: Answer) -> bool:
        taken = super().take(answer)
        if taken:
            self.exchanges.follow()
            self.look()
        return taken

    def look(self) -> None:
        if self.exchanges.topics:
            self.exchanges.update()

    def say(self, to: str) -> Outgoing | None:
        """To ``to``: the credit that it is owed, or an offer. None: they do not exchange."""
        if to not in self.partners:
            return None
        self._dice.to = to
        return self.exchanges.next_message(NAME)

    @property
    def partners(self) -> set[str]:
        exchange = self.holder.exchanges.get(NAME)
        return exchange.members.keys() - {self.name} if exchange is not None else set()
