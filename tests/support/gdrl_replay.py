"""A run of ``docs/model/gdrl.pml``, step by step through the code that it is a model of:
``distributor/model/leases.py``, ``broker/leases/lease_holder.py``, ``broker/leases/gdrl_exchanges.py``,
``adaptor/gdrl/ledger.py``. What the model says after each step must be what the code says."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from broker.leases.gdrl_exchanges import Outgoing
from distributor.model.leases import MICRO, NOTHING, Amount, Holding, Leases
from srtm.control import DesiredTopic, Exchange, GdrlAnswer, GdrlMessage, Share, SyncAnswer
from tests.support.exchanging_broker import DEMAND, ExchangingBroker
from tests.support.lease_world import NAME, Answer, Clock, Request

UNIT = Amount(1, MICRO)  # what a broker keeps at least, of both
STEPS = {"send", "hear", "take", "kill", "restart", "prove", "leave", "enter", "join", "offer", "pay", "refuse",
         "again", "answer", "settle", "credit", "spurn", "credited"}  # fmt: skip
Slot = tuple[int, int, int, int]  # pool, asker, asked, number


def steps(run: str) -> list[tuple[str, list[int]]]:
    """(step, what the model says after it), from what ``spin`` prints. Without a step nothing has changed."""
    found, step = [], ""
    for line in filter(None, map(str.strip, run.splitlines())):
        if line.split()[0] in STEPS:
            step = line
        elif line.startswith("= ") and line.endswith("|") and step:  # spin may have been cut short
            found.append((step, [int(word) for word in line.replace("|", "").split()[1:]]))
            step = ""
    return found


class Replay:
    """As many brokers as the model has, and the distributor's store."""

    def __init__(self, brokers: int, units: int) -> None:
        self.leases = Leases(amount(units))
        self.units = units
        self.version = 0
        self.wants_pool = True
        self.known = [0] * brokers
        self.unheld = [0] * brokers  # version of "no share here"
        self.pools: list[int] = []  # epochs, in order
        self.lives = [1] * brokers
        self.said: dict[tuple[str, int, str, int, str], Outgoing] = {}  # {(asker, epoch, asked, number, step)}
        self.names = [str(b) for b in range(brokers)]
        self.target = dict.fromkeys(self.names, amount(units // brokers))
        self.leases = self.leases.with_target(self.leases.envelope, self.target)
        self.up: dict[int, ExchangingBroker] = {b: self._start(b) for b in range(brokers)}
        self.asked: dict[int, Request] = {}
        self.answers: dict[int, Answer] = {}
        self.replies: dict[Slot, GdrlAnswer] = {}

    def close(self) -> None:
        for broker in self.up.values():
            broker.close()

    def run(self, recorded: Iterable[tuple[str, list[int]]]) -> None:
        for number, (step, expected) in enumerate(recorded):
            self.do(step)
            assert self.state() == expected, f"after step {number}: {step}"

    def state(self) -> list[int]:
        shown = [self.leases.pool]
        for b, name in enumerate(self.names):
            held = self.leases.holdings.get(name) or Holding(self.unheld[b], NOTHING, NOTHING)
            broker = self.up.get(b)
            epoch = broker.epoch if broker is not None else 0
            shown += [units(broker.share) if broker is not None else 0, self.pools.index(epoch) + 1 if epoch else 0]
            shown += [held.version, units(held.share), units(held.bound)]
        return shown

    def do(self, step: str) -> None:
        what, *words = step.split()
        numbers = [int(word) for word in words]
        match what, numbers:
            case "send", [b]:
                self.asked[b] = self.up[b].request()
            case "hear", [b]:
                self._hear(b)
            case "take", [b]:
                self.up[b].take(self.answers[b])
            case "kill", [b]:
                self.up.pop(b).close()
            case "restart", [b]:
                self.lives[b] += 1
                self.up[b] = self._start(b)
            case "prove", [b]:
                self._prove(b)
            case "leave" | "enter" | "join", []:
                self._change(what)
            case "offer" | "pay", [i, j]:
                self._say(i, j, what)
            case _, [i, j, pool, number, *amounts]:
                self._among(what, (pool, i, j, number), amounts)

    def _among(self, what: str, slot: Slot, amounts: list[int]) -> None:
        pool, i, j, number = slot
        asker, address = self.up.get(i), (self.pools[pool - 1], self.names[j], number)
        match what:
            case "answer" | "again" | "refuse":
                gives, wants = amounts or (0, 0)
                message = self._offer(i, j, address, gives - wants)
                answer = self.up[j].exchanges.answer(message)
                told = (answer.accepted, answer.gives_rate, answer.gives_burst, answer.asks_rate, answer.asks_burst)
                assert told == (what != "refuse", gives, gives * MICRO, wants, wants * MICRO)
                if what == "answer":
                    self.replies[slot] = answer
            case "settle":
                assert asker is not None
                asker.exchanges.take(self._said(i, address, "offer"), self.replies[slot])
            case "credit" | "spurn":
                credit = self._said(i, address, "pay").message
                assert self.up[j].exchanges.answer(credit).accepted == (what == "credit")
            case "credited":
                assert asker is not None
                asker.exchanges.take(self._said(i, address, "pay"), GdrlAnswer(accepted=True))

    def _say(self, i: int, j: int, what: str) -> None:
        errand = self.up[i].say(self.names[j])
        assert errand is not None
        message = errand.message
        said = message.offer if what == "offer" else message.credit
        assert said is not None
        self.said[self.names[i], message.epoch, errand.partner, said.number, what] = errand

    def _said(self, i: int, address: tuple[int, str, int], kind: str) -> Outgoing:
        return self.said[self.names[i], *address, kind]

    def _offer(self, i: int, j: int, address: tuple[int, str, int], given: int) -> GdrlMessage:
        """As it was said, but for what the asker has and wants: such that the asked gives (below 0: wants) ``given``
        units, for what is right is not what the model is about."""
        message = self._said(i, address, "offer").message
        assert message.offer is not None
        has, theirs = units(self.up[j].share), 1 + max(0, -given)
        keeps = max(1, has - given)
        demand = DEMAND * (has + theirs - keeps) / keeps
        offer = msgspec.structs.replace(message.offer, rate=theirs, burst=theirs * MICRO, demand=demand)
        return msgspec.structs.replace(message, offer=offer)

    def _start(self, b: int) -> ExchangingBroker:
        return ExchangingBroker(self.names[b], self.lives[b], Clock(lambda: 0), None)

    def _hear(self, b: int) -> None:
        request, name = self.asked[b], self.names[b]
        if request.incarnation > self.known[b]:
            if self.known[b] and name in self.leases.holdings:
                self._become(self.leases.reissued(name, self.version + 1))
            self.known[b] = request.incarnation
        else:
            told = Amount(*request.held.get(NAME, (0, 0)))
            self.leases = self.leases.acknowledged(name, request.applied.get(NAME, 0), told)
        self._advance()
        self._begin()
        self.answers[b] = Answer(request, self._answer(b))

    def _answer(self, b: int) -> SyncAnswer:
        name = self.names[b]
        held = self.leases.holdings.get(name) or Holding(self.unheld[b], NOTHING, NOTHING)
        recall = self.leases.is_recalled(name)
        rate, burst = (0.0, 0.0) if recall else (held.share.rate / MICRO, held.share.burst / MICRO)
        share = Share(version=held.version, rate=rate, burst=burst, full=held.full, recall=recall)
        exchange = None
        if self.leases.pool and not recall and held.share.is_usable and name in self.leases.target:
            members = dict.fromkeys(self.names, "")
            rate = self.leases.envelope.rate / MICRO
            exchange = Exchange(epoch=self.leases.pool, rate=rate, members=members, indicator="fill")
        return SyncAnswer(version=held.version, topics=[DesiredTopic(topic=NAME, share=share, exchange=exchange)])

    def _prove(self, b: int) -> None:
        self.version += 1
        self.unheld[b] = self.version
        rest = [name for name in self.leases.target if name != self.names[b]]
        target = {name: amount(self.units // len(rest)) for name in rest} if rest else self.leases.target
        self.leases = self.leases.freed(self.names[b]).with_target(self.leases.envelope, target)
        self._advance()

    def _change(self, what: str) -> None:
        if what == "join":
            self.leases = self.leases.with_target(self.leases.envelope, self.target)
        else:
            self.wants_pool = what == "enter"
            self.leases = self.leases if self.wants_pool else self.leases.recalled()
            self._begin()
        self._advance()

    def _begin(self) -> None:
        if self.wants_pool:
            before, self.leases = self.leases.pool, self.leases.as_pool()
            self.pools += [self.leases.pool] if not before and self.leases.pool else []

    def _advance(self) -> None:
        self._become(self.leases.advanced(self.names, self.version + 1))

    def _become(self, leases: Leases) -> None:
        self.leases = leases
        self.version = max([self.version, *(held.version for held in leases.holdings.values())])


def amount(of: int) -> Amount:
    return Amount(of * UNIT.rate, of * UNIT.burst)


def units(of: Amount) -> int:
    assert of == amount(of.rate)
    return of.rate
