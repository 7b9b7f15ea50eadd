"""GDRL in virtual time: each broker asks another one a round, with the product's ledgers; messages take time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from adaptor.gdrl.exchange import Supply, floored, least_rate
from adaptor.gdrl.ledger import Ledger, Reply
from adaptor.gdrl.partners import partner
from adaptor.observations import Bin, Envelope, Shares
from bench.harness.cluster_runs.recovery import Ints
from bench.simulation.buckets import STEP_NS, Stepped
from broker.leases.arrival_rate import ArrivalRate
from srtm.topics.adaptation import Adaptation

_ONE_WAY_S = 0.01  # as long as a controller's word takes (``bench.simulation.shifting_traffic.Delay``)


@dataclass
class _Agent:
    ledger: Ledger
    estimate: ArrivalRate = field(default_factory=ArrivalRate)
    waiting: int = 0
    turn: int = 0


class Exchanging(Stepped):
    """As ``broker.leases.gdrl_agent`` does it, nothing lost. What is in flight is nobody's."""

    def __init__(
        self,
        arrivals_ns: Sequence[Ints],
        envelope: Envelope,
        start: Shares,
        settings: Adaptation,
        seed: int,
        *,
        batch: int = 1,
        dispersions: Sequence[float] = (),
        step_ns: int = STEP_NS,
    ) -> None:
        """``dispersions``: of each broker's traffic, as declared; empty: 1."""
        super().__init__(arrivals_ns, start, step_ns)
        self.messages = 0
        self._batch = batch
        self._mean_rate = envelope.rate_micro // len(start)
        self._partners = settings.partners
        self._dice = random.Random(seed)
        self._names = [f"b{at}" for at in range(len(start))]
        least = least_rate(self._mean_rate)
        self._agents = {
            name: _Agent(Ledger(1, *share, settings.indicator, least), ArrivalRate(dispersion))
            for name, share, dispersion in zip(self._names, start, dispersions or [1.0] * len(start), strict=True)
        }

    def _slot_over(self, now_ns: int, came: list[int]) -> None:
        """Rounds go on by themselves."""

    def _bin_over(self, now_ns: int, bins: list[Bin]) -> None:
        for agent, one, broker in zip(self._agents.values(), bins, self.brokers, strict=True):
            agent.estimate.add(one.arrivals)
            agent.waiting = broker.waiting
        for name in self._dice.sample(self._names, len(self._names)):
            self._ask(now_ns, name)

    def _ask(self, now_ns: int, name: str) -> None:
        agent = self._agents[name]
        to = partner(self._partners, self._names, name, agent.turn, self._dice)
        agent.turn += 1
        if to is None or agent.ledger.owed(to) is not None:
            return
        number, supply = agent.ledger.offer(to), self._supply(name)
        self._send(now_ns, 1, partial(self._answer, now_ns, name, to, number, supply))

    def _answer(self, asked_ns: int, name: str, to: str, number: int, theirs: Supply) -> None:
        reply = self._agents[to].ledger.answer(name, number, theirs, self._supply(to))
        self._put_in_force(to)
        if reply is not None:
            self._send(asked_ns, 2, partial(self._settle, asked_ns, name, to, number, reply))

    def _settle(self, asked_ns: int, name: str, to: str, number: int, reply: Reply) -> None:
        ledger = self._agents[name].ledger
        ledger.settle(to, number, reply)
        self._put_in_force(name)
        if ledger.owed(to) is not None:
            self._send(asked_ns, 3, partial(self._credit, asked_ns, name, to))

    def _credit(self, asked_ns: int, name: str, to: str) -> None:
        owed = self._agents[name].ledger.owed(to)
        if owed is not None:
            number, tokens = owed
            self._agents[to].ledger.credit(name, number, tokens)
            self._put_in_force(to)
            self._send(asked_ns, 4, partial(self._agents[name].ledger.credited, to, number))

    def _send(self, asked_ns: int, ways: int, happen: partial[None]) -> None:
        """It comes ``ways`` ways after the offer was made."""
        self.messages += 1
        self._at(asked_ns, ways * _ONE_WAY_S, happen)

    def _put_in_force(self, name: str) -> None:
        ledger = self._agents[name].ledger
        self.brokers[self._names.index(name)].set((ledger.rate, ledger.burst))

    def _supply(self, name: str) -> Supply:
        agent = self._agents[name]
        demand = agent.estimate.rate + agent.waiting  # what waits should be gone in a second
        supply = Supply(
            rate=agent.ledger.rate,
            burst=agent.ledger.burst,
            demand=demand,
            dispersion=agent.estimate.dispersion,
            batch=self._batch,
        )
        return floored(supply, self._mean_rate)
