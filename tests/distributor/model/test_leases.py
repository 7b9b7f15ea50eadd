"""The rule "keep": shares never add up to more than the envelope, whatever is lost, delayed, restarted or killed."""

from dataclasses import dataclass
from itertools import combinations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distributor.model.leases import MICRO, NOTHING, Amount, Leases

ENVELOPE = Amount(100 * MICRO, 20 * MICRO)


def amount(rate: float, burst: float) -> Amount:
    return Amount(round(rate * MICRO), round(burst * MICRO))


def settle(leases: Leases) -> Leases:
    for broker, holding in leases.holdings.items():
        leases = leases.acknowledged(broker, holding.version)
    return leases


def first_grant(**shares: Amount) -> Leases:
    return Leases(ENVELOPE).with_target(ENVELOPE, shares).advanced(shares, 1)


def test_the_first_grant_starts_full_and_no_later_one_does():
    leases = first_grant(a=amount(60, 12), b=amount(40, 8))
    assert all(held.full for held in leases.holdings.values())
    leases = settle(leases).with_target(ENVELOPE, {"c": ENVELOPE}).advanced("abc", 2)
    leases = settle(leases).advanced("abc", 3)
    assert leases.holdings["c"].share == ENVELOPE
    assert not any(held.full for held in leases.holdings.values())


def test_a_topic_name_that_had_a_grant_before_starts_empty_when_it_comes_again():
    leases = settle(first_grant(a=ENVELOPE)).closed().freed("a")
    again = leases.with_target(ENVELOPE, {"a": ENVELOPE}).advanced("a", 2)
    assert again.holdings["a"].share == ENVELOPE
    assert not again.holdings["a"].full


def test_growth_waits_until_the_shrink_is_acknowledged():
    leases = settle(first_grant(a=ENVELOPE)).with_target(ENVELOPE, {"a": amount(50, 10), "b": amount(50, 10)})
    leases = leases.advanced("ab", 2)
    assert leases.holdings["a"].share == amount(50, 10)
    assert "b" not in leases.holdings
    assert leases.acknowledged("a", 1).advanced("ab", 3) is not None
    assert "b" not in leases.acknowledged("a", 1).advanced("ab", 3).holdings
    assert leases.acknowledged("a", 2).advanced("ab", 3).holdings["b"].share == amount(50, 10)


def test_a_share_that_grows_in_one_component_and_shrinks_in_the_other_goes_through_the_minimum():
    leases = settle(first_grant(a=amount(60, 12), b=amount(40, 8)))
    leases = leases.with_target(ENVELOPE, {"a": amount(70, 10), "b": amount(30, 10)}).advanced("ab", 2)
    assert leases.holdings["a"].share == amount(60, 10)
    assert leases.holdings["b"].share == amount(30, 8)
    leases = settle(leases).advanced("ab", 3)
    assert {name: held.share for name, held in leases.holdings.items()} == leases.target


def test_a_silent_broker_keeps_its_tokens_and_the_others_grow_by_what_there_is():
    leases = settle(first_grant(a=amount(50, 10), b=amount(50, 10)))
    leases = leases.with_target(ENVELOPE, {"c": ENVELOPE}).advanced("bc", 2).acknowledged("b", 2).advanced("bc", 3)
    assert leases.holdings["c"].share == amount(50, 10)
    assert leases.outstanding() == ENVELOPE


def test_proof_of_death_frees_the_share_of_the_dead_one():
    leases = settle(first_grant(a=amount(50, 10), b=amount(50, 10)))
    leases = leases.freed("a").with_target(ENVELOPE, {"b": ENVELOPE}).advanced("b", 2)
    assert leases.holdings["b"].share == ENVELOPE


def test_a_new_incarnation_gets_its_share_back_empty():
    leases = first_grant(a=ENVELOPE).reissued("a", 2)
    held = leases.holdings["a"]
    assert (held.share, held.version, held.full, held.is_acknowledged) == (ENVELOPE, 2, False, False)


def test_nothing_to_do_issues_nothing():
    leases = settle(first_grant(a=ENVELOPE))
    assert leases.advanced("a", 2) == leases
    assert leases.acknowledged("a", 99) == leases
    assert leases.acknowledged("stranger", 1) == leases


def test_a_smaller_envelope_shrinks_first():
    small = amount(50, 10)
    leases = settle(first_grant(a=amount(50, 10), b=amount(50, 10)))
    leases = leases.with_target(small, {"a": amount(40, 8), "b": amount(10, 2)}).advanced("ab", 2)
    assert leases.holdings["a"].share + leases.holdings["b"].share == small


def test_a_silent_broker_that_keeps_more_of_one_than_the_new_envelope_has_stops_no_growth_of_the_other():
    leases = settle(first_grant(a=amount(50, 10), b=amount(50, 10)))
    leases = leases.with_target(amount(120, 16), {"a": amount(60, 8), "b": amount(60, 8)}).advanced("a", 2)
    assert leases.holdings["a"].share == amount(50, 8)
    leases = leases.acknowledged("a", 2).advanced("a", 3)
    assert leases.holdings["a"].share == amount(60, 8)
    assert leases.holdings["b"].bound == amount(50, 10)


@dataclass
class Bucket:
    """What a broker has in force: continuous refill in whole micro-units, one second a tick."""

    version: int = 0
    share: Amount = NOTHING
    fill: int = 0
    exists: bool = False

    def apply(self, version: int, share: Amount, full: bool) -> None:
        if version < self.version:
            return
        self.fill = min(self.fill, share.burst) if self.exists else share.burst if full else 0
        self.version, self.share, self.exists = version, share, True


BROKERS = "abcd"
ENVELOPES = (ENVELOPE, amount(120, 16), amount(80, 30), amount(50, 10))


class Cluster(RuleBasedStateMachine):
    """Brokers that hear late or never, die and come again; messages that take every token there is at any moment."""

    @initialize()
    def start(self) -> None:
        self.version = 0
        self.leases = Leases(ENVELOPE)
        self.envelope, self.widest = ENVELOPE, ENVELOPE
        self.buckets = {name: Bucket() for name in BROKERS}
        self.in_flight: list[tuple[str, int, Amount, bool]] = []
        self.now = 0
        self.released: list[tuple[int, int]] = []  # (second, micro-messages)
        self.dead: set[str] = set()
        self.live = set(BROKERS)
        self.weights = [0] * len(BROKERS)

    def advance(self) -> None:
        self.version += 1
        self.leases = self.leases.advanced(self.live, self.version)

    @rule(weights=st.lists(st.integers(0, 5), min_size=4, max_size=4), live=st.sets(st.sampled_from(BROKERS)))
    def aim(self, weights: list[int], live: set[str]) -> None:
        self.weights, self.live = weights, live
        self.retarget()

    @rule(envelope=st.sampled_from(ENVELOPES), live=st.sets(st.sampled_from(BROKERS)))
    def resize(self, envelope: Amount, live: set[str]) -> None:
        """What is out then may still be as wide as before."""
        self.envelope, self.live = envelope, live
        self.widest = Amount(max(self.widest.rate, envelope.rate), max(self.widest.burst, envelope.burst))
        self.retarget()

    def retarget(self) -> None:
        total = sum(self.weights) or 1
        shares = {
            name: Amount(self.envelope.rate * weight // total, self.envelope.burst * weight // total)
            for name, weight in zip(BROKERS, self.weights, strict=True)
            if weight and name not in self.dead
        }
        self.leases = self.leases.with_target(self.envelope, shares)
        self.advance()

    @rule(name=st.sampled_from(BROKERS))
    def answer(self, name: str) -> None:
        held = self.leases.holdings.get(name)
        if held and name not in self.dead:
            self.in_flight.append((name, held.version, held.share, held.full))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), acknowledge=st.booleans())
    def arrive(self, data: st.DataObject, acknowledge: bool) -> None:
        name, *what = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))
        self.buckets[name].apply(*what)
        if acknowledge:
            self.acknowledge(name)

    @rule(name=st.sampled_from(BROKERS))
    def acknowledge(self, name: str) -> None:
        if self.buckets[name].exists:
            self.leases = self.leases.acknowledged(name, self.buckets[name].version)
            self.advance()

    @rule(name=st.sampled_from(BROKERS))
    def restart(self, name: str) -> None:
        """A new incarnation: its answers in flight went to the old one, and its bucket is gone."""
        self.kill(name)
        self.dead.discard(name)
        self.version += 1
        self.leases = self.leases.reissued(name, self.version)

    @rule(name=st.sampled_from(BROKERS))
    def bury(self, name: str) -> None:
        """Proof of death, and it does not come back in time."""
        self.kill(name)
        target = {broker: share for broker, share in self.leases.target.items() if broker != name}
        self.leases = self.leases.freed(name).with_target(self.envelope, target)
        self.advance()

    def kill(self, name: str) -> None:
        self.dead.add(name)
        self.buckets[name] = Bucket()
        self.in_flight = [one for one in self.in_flight if one[0] != name]

    @rule()
    def remove_and_create_again(self) -> None:
        self.leases = self.leases.closed()
        self.advance()

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        for bucket in self.buckets.values():
            bucket.fill = min(bucket.share.burst, bucket.fill + bucket.share.rate * seconds)

    @rule(name=st.sampled_from(BROKERS))
    def release_all(self, name: str) -> None:
        self.released.append((self.now, self.buckets[name].fill))
        self.buckets[name].fill = 0

    @invariant()
    def bounds_hold_what_is_in_force_and_stay_within_the_envelope(self) -> None:
        assert self.leases.outstanding() <= self.widest
        for name, bucket in self.buckets.items():
            assert bucket.share == NOTHING or bucket.share <= self.leases.holdings[name].bound

    @invariant()
    def no_interval_lets_more_than_the_burst_and_the_rate_go(self) -> None:
        for first, last in combinations(range(len(self.released) + 1), 2):
            interval = self.released[first:last]
            allowed = self.widest.burst + self.widest.rate * (interval[-1][0] - interval[0][0])
            assert sum(amount for _, amount in interval) <= allowed

    @invariant()
    def every_share_is_nothing_or_usable(self) -> None:
        for held in self.leases.holdings.values():
            assert held.share == NOTHING or held.share.is_usable

    def teardown(self) -> None:
        """Once everybody hears and answers, the target is reached, except for what would be under a token."""
        self.live = set(BROKERS)
        self.advance()
        for _ in range(4):
            for name in BROKERS:
                self.answer(name)
            while self.in_flight:
                name, *what = self.in_flight.pop(0)
                self.buckets[name].apply(*what)
                self.acknowledge(name)
        for name, share in self.leases.target.items():
            assert not share.is_usable or self.leases.holdings[name].share == share


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
