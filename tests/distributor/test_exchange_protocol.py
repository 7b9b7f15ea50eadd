"""Brokers that exchange tokens, and the distributor that lets them, under everything that can go wrong: never above the
envelope, nobody without a share, nothing stranded.

Messages, among brokers too, lie in a bag: any may come at any time, again, or never. What is let go is checked over
every interval, by the reference's checker; the engine here takes every token at the worst moment.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.exchanges import Errand
from distributor.leases import NOTHING, Amount
from srtm.bucket import conforms_due
from srtm.control import GdrlAnswer
from tests.support.exchanging_broker import ExchangingBroker
from tests.support.lease_world import ENVELOPE, MS, Answer, Book, Clock, Request, new_disk, spread

BROKERS = "abc"
names = st.sampled_from(BROKERS)
pairs = st.permutations(BROKERS).map(lambda order: (order[0], order[1]))


@dataclass(frozen=True)
class Reply:
    """To what ``asker`` said."""

    asker: str
    errand: Errand
    answer: GdrlAnswer


@dataclass(frozen=True)
class Said:
    asker: str
    errand: Errand


class Protocol(RuleBasedStateMachine):
    @initialize(offsets_ns=st.lists(st.integers(0, 10**15), min_size=4, max_size=4))
    def start(self, offsets_ns: list[int]) -> None:
        self.now_ns = 0
        self.released_ns: list[int] = []  # of incarnations that have ended
        self.wire: list[Request | Answer | Said | Reply] = []
        *brokers, distributor = (Clock(lambda: self.now_ns, one) for one in offsets_ns)
        self.clocks = dict(zip(BROKERS, brokers, strict=True))
        self.disk = new_disk(None, "gdrl")
        self.book = Book(self.disk, distributor)
        self.deposed: list[Book] = []
        self.up = {name: ExchangingBroker(name, 1, self.clocks[name], None) for name in BROKERS}
        self.dead: dict[str, ExchangingBroker] = {}
        self.served: set[str] = set()  # who has been given a share, and is to have one
        self.aim([1, 1, 1])
        self.live_on(2, set(), set())

    @rule(ms=st.sampled_from((1, 10, 100, 1_000)))
    def wait(self, ms: int) -> None:
        self.let_go()
        self.now_ns += ms * MS

    @rule(weights=st.lists(st.integers(0, 5), min_size=3, max_size=3))
    def aim(self, weights: list[int]) -> None:
        """Brokers join and leave, or are to have other shares."""
        wanted = {name: Amount(weight, 0) for name, weight in zip(BROKERS, weights, strict=True) if weight}
        if wanted:
            self.served &= wanted.keys()
            self.book.aim(spread(wanted))

    @rule(mode=st.sampled_from(("gdrl", "gdrl", "static")))
    def switch(self, mode: str) -> None:
        self.book.follow_mode("gdrl" if mode == "gdrl" else "static")

    @rule(name=names, waiting=st.sampled_from((0, 10, 1_000, 100_000)))
    def demand(self, name: str, waiting: int) -> None:
        if name in self.up:
            self.up[name].engine.waiting = waiting
            self.up[name].look()

    @rule()
    def tick(self) -> None:
        for book in (self.book, *self.deposed):
            book.tick()

    @rule(name=names)
    def sync(self, name: str) -> None:
        """Without trouble."""
        if name in self.up and not self.up[name].is_stopped:
            self.wire.append(self.up[name].request())
            for _ in range(2):
                self.arrive(self.wire.pop())

    @rule(name=names)
    def ask(self, name: str) -> None:
        if name in self.up and not self.up[name].is_stopped:
            self.wire.append(self.up[name].request())

    @rule(pair=pairs)
    def say(self, pair: tuple[str, str]) -> None:
        asker = self.up.get(pair[0])
        errand = asker.say(pair[1]) if asker is not None and not asker.is_stopped else None
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

    @precondition(lambda self: self.wire)
    @rule(data=st.data(), repeat=st.booleans())
    def deliver(self, data: st.DataObject, repeat: bool) -> None:
        at = data.draw(st.integers(0, len(self.wire) - 1))
        self.arrive(self.wire[at] if repeat else self.wire.pop(at))

    @precondition(lambda self: self.wire)
    @rule(latest_first=st.booleans())
    def deliver_all(self, latest_first: bool) -> None:
        """What was held up comes at once."""
        held_up, self.wire = self.wire, []
        for message in reversed(held_up) if latest_first else held_up:
            self.arrive(message)
        self.let_go()

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.wire.pop(data.draw(st.integers(0, len(self.wire) - 1)))

    def arrive(self, message: Request | Answer | Said | Reply) -> None:
        match message:
            case Request():
                answers = [book.hear(message) for book in (self.book, *self.deposed)]
                self.wire += [answer for answer in answers if answer is not None]
            case Answer():
                broker = self.awake(message.to.broker)
                if broker is not None and broker.take(message) and broker.share.usable:
                    self.served |= {broker.name} & self.disk.topic.leases.target.keys()
            case Said(asker, errand):
                broker = self.awake(errand.partner)
                if broker is not None:
                    self.wire.append(Reply(asker, errand, broker.exchanges.answer(errand.message)))
            case Reply(asker, errand, answer):
                broker = self.awake(asker)
                if broker is not None:
                    broker.exchanges.take(errand, answer)

    def awake(self, name: str) -> ExchangingBroker | None:
        broker = self.up.get(name)
        return None if broker is None or broker.is_stopped else broker

    @rule()
    def let_go(self) -> None:
        for broker in self.up.values():
            if not broker.is_stopped:
                broker.engine.release_all()

    @rule(name=names)
    def stop(self, name: str) -> None:
        if name in self.up:
            self.up[name].is_stopped = True

    @rule(name=names)
    def go_on(self, name: str) -> None:
        if name in self.up:
            self.up[name].is_stopped = False
            self.up[name].engine.release_all()

    @rule(name=names)
    def kill(self, name: str) -> None:
        if name in self.up:
            self.served.discard(name)
            self.dead[name] = self.up.pop(name)
            self.released_ns += self.dead[name].close()

    @rule(name=names)
    def restart(self, name: str) -> None:
        self.kill(name)
        last = self.dead.pop(name)
        self.up[name] = ExchangingBroker(name, last.incarnation + 1, self.clocks[name], last.remembered)

    @rule(name=names)
    def prove_death(self, name: str) -> None:
        if name in self.dead:
            self.book.free(name)

    @rule(offset_ns=st.integers(0, 10**15))
    def take_over(self, offset_ns: int) -> None:
        self.deposed.append(self.book)
        self.book = Book(self.disk, Clock(lambda: self.now_ns, offset_ns))

    @invariant()
    def never_above_the_envelope(self) -> None:
        assert self.disk.topic.leases.outstanding() <= ENVELOPE
        assert self.in_force() <= ENVELOPE

    @invariant()
    def whoever_was_given_a_share_has_one(self) -> None:
        assert all(self.up[name].share.usable for name in self.served)

    def in_force(self) -> Amount:
        return sum((broker.share for broker in self.up.values()), start=NOTHING)

    def teardown(self) -> None:
        """The last fault is over: the dead stay dead, everybody else can talk."""
        if not hasattr(self, "up"):
            return
        self.recover()
        for broker in self.up.values():
            self.released_ns += broker.close()
        assert conforms_due(self.released_ns, ENVELOPE.rate, ENVELOPE.burst) is None

    def recover(self) -> None:
        for name in self.up:
            self.go_on(name)
        if not self.up:
            self.restart("a")
        self.aim([1, 1, 1])
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
