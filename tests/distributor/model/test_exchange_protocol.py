"""Brokers that exchange tokens, and the distributor that lets them, under everything that can go wrong: never above the
envelope, nobody without a share, nothing stranded.

Messages among brokers lie in the same bag as the others. What is let go is checked over every interval, by the
reference's checker; the engine here takes every token at the worst moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from broker.leases.gdrl_exchanges import Outgoing
from srtm.control import GdrlAnswer
from tests.support.exchanging_broker import ExchangingBroker
from tests.support.faults import BROKERS, Faults, names, offsets_ns
from tests.support.lease_world import ENVELOPE, Clock, new_disk

pairs = st.permutations(BROKERS).map(lambda order: (order[0], order[1]))


@dataclass(frozen=True)
class Reply:
    """To what ``asker`` said."""

    asker: str
    errand: Outgoing
    answer: GdrlAnswer


@dataclass(frozen=True)
class Said:
    asker: str
    errand: Outgoing


class Protocol(Faults):
    make_broker = ExchangingBroker

    @initialize(offsets=st.lists(offsets_ns, min_size=4, max_size=4))
    def start(self, offsets: list[int]) -> None:
        *brokers, distributor = (Clock(self.simulated_ns, one) for one in offsets)
        self.served: set[str] = set()  # who has been given a share, and is to have one
        self.begin(dict(zip(BROKERS, brokers, strict=True)), distributor, new_disk(None, "gdrl"))
        self.aim([1, 1, 1])
        self.live_on(2, set(), set())

    def aimed(self, wanted: set[str]) -> None:
        self.served &= wanted

    def taken(self, broker: ExchangingBroker) -> None:
        if broker.share.is_usable:
            self.served |= {broker.name} & self.disk.topic.leases.target.keys()

    def died(self, name: str) -> None:
        self.served.discard(name)

    @rule(ms=st.sampled_from((1, 10, 100, 1_000)))
    def wait(self, ms: int) -> None:
        self.let_go()
        self.pass_ms(ms)

    @rule(mode=st.sampled_from(("gdrl", "gdrl", "static")))
    def switch(self, mode: str) -> None:
        self.book.follow_mode("gdrl" if mode == "gdrl" else "static")

    @rule(name=names, waiting=st.sampled_from((0, 10, 1_000, 100_000)))
    def demand(self, name: str, waiting: int) -> None:
        if name in self.up:
            self.up[name].engine.waiting = waiting
            self.up[name].look()

    @rule(pair=pairs)
    def say(self, pair: tuple[str, str]) -> None:
        asker = self.awake(pair[0])
        errand = None if asker is None else asker.say(pair[1])
        if errand is not None:
            self.wire.append(Said(pair[0], errand))

    @rule(pair=pairs, times=st.integers(1, 2))
    def exchange(self, pair: tuple[str, str], times: int) -> None:
        """An offer and its credit; each message comes so often."""
        for _ in range(2):
            before = len(self.wire)
            self.say(pair)
            while len(self.wire) > before:
                message = self.wire.pop()
                for _ in range(times):
                    self.arrive(message)
                self.let_go()

    @rule(
        rounds=st.integers(1, 8),
        apart=st.sets(names, max_size=2),
        unheard=st.sets(names, max_size=2),
        times=st.integers(1, 2),
    )
    def live_on(self, rounds: int, apart: set[str], unheard: set[str], times: int = 1) -> None:
        """Everybody does what it always does; ``apart`` cannot reach the others, nor the distributor ``unheard``."""
        for _ in range(rounds):
            self.wait(100)
            for one in BROKERS:
                for other in BROKERS:
                    if one != other and (one in apart) == (other in apart):
                        self.exchange((one, other), times)
                if one not in unheard:
                    self.sync(one)
            self.tick()
            self.never_above_the_envelope()

    def arrive(self, message: Any) -> None:
        match message:
            case Said(asker, errand):
                broker = self.awake(errand.partner)
                if broker is not None:
                    self.wire.append(Reply(asker, errand, broker.exchanges.answer(errand.message)))
            case Reply(asker, errand, answer):
                broker = self.awake(asker)
                if broker is not None:
                    broker.exchanges.take(errand, answer)
            case _:
                super().arrive(message)

    @invariant()
    def never_above_the_envelope(self) -> None:
        assert self.disk.topic.leases.outstanding() <= ENVELOPE
        assert self.in_force() <= ENVELOPE

    @invariant()
    def whoever_was_given_a_share_has_one(self) -> None:
        assert all(self.up[name].share.is_usable for name in self.served)

    def recover(self) -> None:
        self.wake_all()
        for name in self.dead:
            self.prove_death(name)
        self.live_on(8, set(), set())
        assert self.in_force() == ENVELOPE
        self.switch("static")
        self.live_on(8, set(), set())
        assert self.in_force() == ENVELOPE
        assert self.disk.topic.leases.pool == 0


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
