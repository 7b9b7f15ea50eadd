"""Both lease rules, from end to end, under everything that can go wrong: never above the envelope, nothing stranded.

What is let go is checked as it must hold: over every interval, by the reference's checker, over all brokers and
incarnations together. The engine here takes every token at the worst moment.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distributor.leases import NOTHING, Amount
from srtm.bucket import conforms_due
from tests.support.lease_world import ENVELOPE, MS, Answer, Book, BrokerProcess, Clock, Request, new_disk, spread

BROKERS = "abc"
LEASE_MS = 5_000
names = st.sampled_from(BROKERS)
speeds = st.integers(-500, 500)  # ppm: what a clock may be slewed at
offsets_ns = st.integers(0, 10**15)


class Protocol(RuleBasedStateMachine):
    @initialize(timed=st.booleans(), clocks=st.lists(st.tuples(offsets_ns, speeds), min_size=4, max_size=4))
    def start(self, timed: bool, clocks: list[tuple[int, int]]) -> None:
        self.now_ns = 0
        self.released_ns: list[int] = []  # of incarnations that have ended
        self.wire: list[Request | Answer] = []
        *brokers, distributor = (Clock(lambda: self.now_ns, *one) for one in clocks)
        self.clocks = dict(zip(BROKERS, brokers, strict=True))
        self.distributor_clock = distributor
        self.disk = new_disk(LEASE_MS if timed else None)
        self.book = Book(self.disk, distributor)
        self.deposed: list[Book] = []
        self.up = {name: BrokerProcess(name, 1, self.clocks[name], None) for name in BROKERS}
        self.dead: dict[str, BrokerProcess] = {}

    def running(self) -> list[BrokerProcess]:
        return [one for one in self.up.values() if not one.is_stopped]

    @rule(ms=st.sampled_from((1, 10, 100, 500, 1_000, 3_000, LEASE_MS)))
    def wait(self, ms: int) -> None:
        self.now_ns += ms * MS

    @rule(weights=st.lists(st.integers(0, 5), min_size=3, max_size=3))
    def aim(self, weights: list[int]) -> None:
        wanted = {name: Amount(weight, 0) for name, weight in zip(BROKERS, weights, strict=True) if weight}
        if wanted:
            self.book.aim(spread(wanted))

    @rule(timed=st.booleans(), factor=st.integers(1, 3))
    def change_the_rule(self, timed: bool, factor: int) -> None:
        self.book.last(factor * LEASE_MS if timed else None)

    @rule()
    def tick(self) -> None:
        for book in (self.book, *self.deposed):
            book.tick()

    @rule(name=names)
    def ask(self, name: str) -> None:
        if name in self.up and not self.up[name].is_stopped:
            self.wire.append(self.up[name].request())

    @rule(name=names)
    def exchange(self, name: str) -> None:
        """A sync without trouble."""
        self.ask(name)
        for _ in range(2):
            if self.wire:
                self.arrive(self.wire.pop())

    @rule(seconds=st.integers(1, 12), cut_off=st.sets(names, max_size=2), lost=st.sampled_from(("request", "answer")))
    def live_on(self, seconds: int, cut_off: set[str], lost: str) -> None:
        """Everybody does what it always does; some cannot be reached, or cannot reach the distributor."""
        for _ in range(2 * seconds):
            self.let_go()
            self.wait(500)
            for name in sorted(self.up):
                if name not in cut_off:
                    self.exchange(name)
                elif lost == "answer" and not self.up[name].is_stopped:
                    self.arrive(self.up[name].request())
            self.tick()
            self.the_bounds_are_within_the_envelope_and_hold_what_is_in_force()

    @precondition(lambda self: self.wire)
    @rule(data=st.data(), repeat=st.booleans())
    def deliver(self, data: st.DataObject, repeat: bool) -> None:
        at = data.draw(st.integers(0, len(self.wire) - 1))
        self.arrive(self.wire[at] if repeat else self.wire.pop(at))

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

    def arrive(self, message: Request | Answer) -> None:
        if isinstance(message, Request):
            answers = [book.hear(message) for book in (self.book, *self.deposed)]
            self.wire += [answer for answer in answers if answer is not None]
            return
        broker = self.up.get(message.to.broker)
        if broker is not None and not broker.is_stopped:
            broker.take(message)

    @rule()
    def let_go(self) -> None:
        for broker in self.running():
            broker.engine.release_all()

    @rule(name=names)
    def stop(self, name: str) -> None:
        if name in self.up:
            self.up[name].is_stopped = True

    @rule(name=names)
    def go_on(self, name: str) -> None:
        """The engine is awake before anything else of it is."""
        if name in self.up:
            self.up[name].is_stopped = False
            self.up[name].engine.release_all()

    @rule(name=names)
    def kill(self, name: str) -> None:
        if name in self.up:
            self.dead[name] = self.up.pop(name)
            self.released_ns += self.dead[name].close()

    @rule(name=names)
    def restart(self, name: str) -> None:
        self.kill(name)
        last = self.dead.pop(name)
        self.up[name] = BrokerProcess(name, last.incarnation + 1, self.clocks[name], last.remembered)

    @rule(name=names)
    def prove_death(self, name: str) -> None:
        if name in self.dead:
            self.book.free(name)

    @rule(offset_ns=offsets_ns, ppm=speeds)
    def take_over(self, offset_ns: int, ppm: int) -> None:
        """The leader is killed, stopped or cut off; it may wake up later and go on as if nothing had been."""
        self.deposed.append(self.book)
        self.book = Book(self.disk, Clock(lambda: self.now_ns, offset_ns, ppm))

    @invariant()
    def the_bounds_are_within_the_envelope_and_hold_what_is_in_force(self) -> None:
        holdings = self.disk.topic.leases.holdings
        assert self.disk.topic.leases.outstanding() <= ENVELOPE
        for name, broker in self.up.items():
            assert broker.share == NOTHING or broker.share <= holdings[name].bound

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
        leases_ms = [held.longest_ms for held in self.disk.topic.leases.holdings.values()]
        kept = None in [*leases_ms, self.disk.topic.leases.lease_ms]
        for name in self.dead if kept else ():
            self.prove_death(name)
        # At once on proof of death, else within three lease times.
        rounds = 4 if kept else 3 * max([LEASE_MS, *(one for one in leases_ms if one)]) // 500
        for _ in range(rounds):
            for name in self.up:
                self.exchange(name)
            self.tick()
            self.let_go()
            if not kept:
                self.wait(500)
        in_force = sum((broker.share for broker in self.up.values()), start=NOTHING)
        assert in_force == ENVELOPE


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
