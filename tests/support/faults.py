"""What can go wrong between brokers and the distributors that take turns: messages lie in a bag (any may come at any
time, again, or never), processes are stopped, killed and started again, a leader is deposed and wakes up later. A
protocol's test is a machine on top, with the rules of its own and what must hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from distributor.model.leases import NOTHING, Amount
from srtm.token_bucket.bucket import conforms_due
from tests.support.lease_world import ENVELOPE, MS, Answer, Book, BrokerProcess, Clock, Disk, Request, spread

BROKERS = "abc"
names = st.sampled_from(BROKERS)
weights_of_all = st.lists(st.integers(0, 5), min_size=len(BROKERS), max_size=len(BROKERS))
offsets_ns = st.integers(0, 10**15)  # of a clock's zero
speeds = st.integers(-500, 500)  # ppm: what a clock may be slewed at


class Faults(RuleBasedStateMachine):
    """``begin`` it in an ``@initialize``. At the end ``recover`` is asked, then all that was let go is checked."""

    make_broker: ClassVar[type[BrokerProcess]] = BrokerProcess
    now_ns = 0  # of the simulation

    def begin(self, clocks: Mapping[str, Clock], distributor: Clock, disk: Disk) -> None:
        self.released_ns: list[int] = []  # of incarnations that have ended
        self.wire: list[Any] = []
        self.clocks = clocks
        self.disk = disk
        self.book = Book(disk, distributor)
        self.deposed: list[Book] = []
        self.up = {name: self.make_broker(name, 1, clocks[name], None) for name in BROKERS}
        self.dead: dict[str, BrokerProcess] = {}

    def simulated_ns(self) -> int:
        return self.now_ns

    def pass_ms(self, ms: int) -> None:
        self.now_ns += ms * MS

    def awake(self, name: str) -> Any:
        """The broker, if anything reaches it."""
        broker = self.up.get(name)
        return None if broker is None or broker.is_stopped else broker

    def arrive(self, message: Any) -> None:
        if isinstance(message, Request):
            answers = [book.hear(message) for book in (self.book, *self.deposed)]
            self.wire += [answer for answer in answers if answer is not None]
        elif isinstance(message, Answer):
            broker = self.awake(message.to.broker)
            if broker is not None and broker.take(message):
                self.taken(broker)

    def taken(self, broker: BrokerProcess) -> None:
        """It has put an answer in force."""

    def in_force(self) -> Amount:
        return sum((broker.share for broker in self.up.values()), start=NOTHING)

    @rule(weights=weights_of_all)
    def aim(self, weights: list[int]) -> None:
        """Brokers join and leave, or are to have other shares."""
        wanted = {name: Amount(weight, 0) for name, weight in zip(BROKERS, weights, strict=True) if weight}
        if wanted:
            self.aimed(set(wanted))
            self.book.aim(spread(wanted))

    def aimed(self, wanted: set[str]) -> None:
        """These alone are to have shares."""

    @rule()
    def tick(self) -> None:
        for book in (self.book, *self.deposed):
            book.tick()

    @rule(name=names)
    def ask(self, name: str) -> None:
        broker = self.awake(name)
        if broker is not None:
            self.wire.append(broker.request())

    @rule(name=names)
    def sync(self, name: str) -> None:
        """Without trouble."""
        before = len(self.wire)
        self.ask(name)
        while len(self.wire) > before:
            self.arrive(self.wire.pop())

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
        """The engine is awake before anything else of it is."""
        if name in self.up:
            self.up[name].is_stopped = False
            self.up[name].engine.release_all()

    @rule(name=names)
    def kill(self, name: str) -> None:
        if name in self.up:
            self.dead[name] = self.up.pop(name)
            self.released_ns += self.dead[name].close()
            self.died(name)

    def died(self, name: str) -> None:
        """It has ended with all that it had."""

    @rule(name=names)
    def restart(self, name: str) -> None:
        self.kill(name)
        last = self.dead.pop(name)
        self.up[name] = self.make_broker(name, last.incarnation + 1, self.clocks[name], last.remembered)

    @rule(name=names)
    def prove_death(self, name: str) -> None:
        if name in self.dead:
            self.book.free(name)

    @rule(offset_ns=offsets_ns, ppm=speeds)
    def take_over(self, offset_ns: int, ppm: int) -> None:
        """The leader is killed, stopped or cut off; it may wake up later and go on as if nothing had been."""
        self.deposed.append(self.book)
        self.book = Book(self.disk, Clock(self.simulated_ns, offset_ns, ppm))

    def recover(self) -> None:
        """The last fault is over: the dead stay dead, everybody else can talk. Asserts what comes back by itself."""
        raise NotImplementedError

    def wake_all(self) -> None:
        """There is at least one broker afterwards, and each is to have a part."""
        for name in self.up:
            self.go_on(name)
        if not self.up:
            self.restart("a")
        self.aim([1] * len(BROKERS))

    def teardown(self) -> None:
        if not hasattr(self, "up"):
            return
        self.recover()
        for broker in self.up.values():
            self.released_ns += broker.close()
        assert conforms_due(self.released_ns, ENVELOPE.rate, ENVELOPE.burst) is None
