"""Both lease rules, from end to end, under everything that can go wrong: never above the envelope, nothing stranded.

What is let go is checked as it must hold: over every interval, by the reference's checker, over all brokers and
incarnations together. The engine here takes every token at the worst moment.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from distributor.model.leases import NOTHING
from tests.support.faults import BROKERS, Faults, names, offsets_ns, speeds
from tests.support.lease_world import ENVELOPE, Clock, new_disk

LEASE_MS = 5_000


class Protocol(Faults):
    @initialize(timed=st.booleans(), clocks=st.lists(st.tuples(offsets_ns, speeds), min_size=4, max_size=4))
    def start(self, timed: bool, clocks: list[tuple[int, int]]) -> None:
        *brokers, distributor = (Clock(self.simulated_ns, *one) for one in clocks)
        self.begin(dict(zip(BROKERS, brokers, strict=True)), distributor, new_disk(LEASE_MS if timed else None))

    @rule(ms=st.sampled_from((1, 10, 100, 500, 1_000, 3_000, LEASE_MS)))
    def wait(self, ms: int) -> None:
        self.pass_ms(ms)

    @rule(timed=st.booleans(), factor=st.integers(1, 3))
    def change_the_rule(self, timed: bool, factor: int) -> None:
        self.book.last(factor * LEASE_MS if timed else None)

    @rule(seconds=st.integers(1, 12), cut_off=st.sets(names, max_size=2), lost=st.sampled_from(("request", "answer")))
    def live_on(self, seconds: int, cut_off: set[str], lost: str) -> None:
        """Everybody does what it always does; some cannot be reached, or cannot reach the distributor."""
        for _ in range(2 * seconds):
            self.let_go()
            self.wait(500)
            for name in sorted(self.up):
                if name not in cut_off:
                    self.sync(name)
                elif lost == "answer" and not self.up[name].is_stopped:
                    self.arrive(self.up[name].request())
            self.tick()
            self.the_bounds_are_within_the_envelope_and_hold_what_is_in_force()

    @invariant()
    def the_bounds_are_within_the_envelope_and_hold_what_is_in_force(self) -> None:
        holdings = self.disk.topic.leases.holdings
        assert self.disk.topic.leases.outstanding() <= ENVELOPE
        for name, broker in self.up.items():
            assert broker.share == NOTHING or broker.share <= holdings[name].bound

    def recover(self) -> None:
        self.wake_all()
        leases_ms = [held.longest_ms for held in self.disk.topic.leases.holdings.values()]
        kept = None in [*leases_ms, self.disk.topic.leases.lease_ms]
        for name in self.dead if kept else ():
            self.prove_death(name)
        # At once on proof of death, else within three lease times.
        rounds = 4 if kept else 3 * max([LEASE_MS, *(one for one in leases_ms if one)]) // 500
        for _ in range(rounds):
            for name in self.up:
                self.sync(name)
            self.tick()
            self.let_go()
            if not kept:
                self.wait(500)
        assert self.in_force() == ENVELOPE


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
