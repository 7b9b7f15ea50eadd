"""What it takes for the default mode to leave the shares that there are: evidence, against what was declared."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptor.observations import Bin, Change, Envelope, Member, Shares
from adaptor.policies.expectation import Expected, expected
from adaptor.policies.fitted import Fitted
from srtm.token_bucket.exact_split import split_bucket
from srtm.token_bucket.fitted_split import Traffic, fitted_bucket
from srtm.units import MICRO

ENVELOPE = Envelope(rate_micro=2_080 * MICRO, burst_micro=214 * MICRO)
FLOOR = 0.02


def fitted_to(declared: list[float], envelope: Envelope = ENVELOPE) -> Shares:
    return fitted_bucket(envelope.rate_micro, envelope.burst_micro, [Traffic(rate=rate) for rate in declared])


def members_of(shares: Shares, declared: list[float]) -> list[Member]:
    return [
        Member(name=f"b{at}", share=share, declared=rate)
        for at, (share, rate) in enumerate(zip(shares, declared, strict=True))
    ]


def fed(
    declared: list[float], seen: list[list[int]], start: Shares | None = None, envelope: Envelope = ENVELOPE
) -> list[Shares]:
    """All that is proposed from ``start`` (else the split of ``declared``) on, while the arrivals of bin after bin come
    in."""
    policy, shares, found = Fitted(), start or fitted_to(declared, envelope), []
    for moment in seen:
        for at, arrivals in enumerate(moment):
            policy.observe(f"b{at}", [Bin(arrivals)])
        proposed = policy.propose(envelope, members_of(shares, declared), floor=FLOOR)
        if proposed is not None:
            shares = proposed
            found.append(proposed)
    return found


def poisson(rates: list[float], bins: int, seed: int) -> list[list[int]]:
    """Exactly Poisson: messages in a bin by the gaps between them."""
    dice = random.Random(seed)

    def count(mean: float) -> int:
        at, found = dice.expovariate(1), 0
        while at < mean:
            at, found = at + dice.expovariate(1), found + 1
        return found

    return [[count(rate / 10) for rate in rates] for _ in range(bins)]


@pytest.mark.parametrize("first", [[1, 0], [2, 0], [0, 6]])
def test_lone_messages_to_one_broker_leave_the_declared_split_of_an_idle_topic(first: list[int]) -> None:
    assert fed([1_000, 1_000], [first, *[[0, 0]] * 50, [1, 0], *[[0, 0]] * 150]) == []


@given(st.floats(0.05, 0.5), st.integers(0, 1_000), st.floats(0, 0.0005), st.integers(0, 1))
def test_next_to_no_traffic_leaves_any_declared_split_wherever_it_comes(
    part: float, seed: int, load: float, busy: int
) -> None:
    declared = [2_000 * part, 2_000 * (1 - part)]
    rates = [2_000 * load if at == busy else 0.0 for at in range(2)]
    assert fed(declared, poisson(rates, 120, seed)) == []


def test_few_messages_of_steady_traffic_seldom_move_the_shares_of_a_topic_with_much_slack() -> None:
    """A part of the slack goes with the root of a rate: a message more or less moves it by much."""
    declared = [1.0, 1.0, 2.0]
    assert len(fed(declared, poisson(declared, 600, 7))) <= 10


SMALL = Envelope(rate_micro=110 * MICRO, burst_micro=24 * MICRO)


@pytest.mark.parametrize("load", range(1, 11))
def test_steady_traffic_of_some_messages_a_second_on_six_brokers_moves_no_share_in_a_minute(load: int) -> None:
    declared = [load / 6] * 6
    assert [fed(declared, poisson(declared, 600, seed), envelope=SMALL) for seed in (1, 2)] == [[], []]


def test_few_messages_that_come_elsewhere_than_declared_move_the_shares_within_ten_seconds() -> None:
    declared = [10 / 6] * 6
    found = fed(declared, poisson([9.0, *[0.2] * 5], 100, 1), envelope=SMALL)
    assert 1 <= len(found) <= 4
    assert found[-1][0][0] > 3 * found[-1][1][0]


def test_a_change_that_proves_to_be_nothing_leaves_the_noise_of_the_other_brokers_what_it_is() -> None:
    declared, policy, found = [1.0, 1.0, 2.0], Fitted(), 0
    shares = fitted_to(declared)
    for number, moment in enumerate(poisson(declared, 300, 7)):
        for at, arrivals in enumerate(moment):
            policy.observe(f"b{at}", [Bin(arrivals)])
        if number % 20 == 10:
            policy.note_change("b0", Change(1, 0.5))
        proposed = policy.propose(ENVELOPE, members_of(shares, declared), floor=FLOOR)
        shares, found = (shares, found) if proposed is None else (proposed, found + 1)
    assert found <= 8


def test_the_few_messages_of_a_change_that_was_told_do_not_move_the_shares_by_themselves() -> None:
    policy, declared = Fitted(), [200.0, 200.0]
    for at in range(2):
        policy.observe(f"b{at}", [Bin(20)] * 50)
    shares = policy.propose(ENVELOPE, members_of(fitted_to(declared), declared), floor=FLOOR) or fitted_to(declared)
    policy.note_change("b0", Change(6, 0.02))  # 300 +- 120 msg/s
    assert policy.propose(ENVELOPE, members_of(shares, declared), floor=FLOOR) is None


@pytest.mark.slow
@given(st.floats(0.1, 0.5), st.integers(0, 1_000))
def test_traffic_as_declared_hardly_moves_the_declared_split(part: float, seed: int) -> None:
    declared = [1_900 * part, 1_900 * (1 - part)]
    found = fed(declared, poisson(declared, 150, seed))
    assert len(found) <= 4
    assert all(share[0] > rate * MICRO for shares in found for share, rate in zip(shares, declared, strict=True))


def test_traffic_that_is_elsewhere_than_declared_moves_the_shares_with_its_first_bins() -> None:
    steady = poisson([950, 950], 50, 1)
    assert fed([950, 950], [*steady, [20, 170], [19, 171]])[-1][1][0] > 1_700 * MICRO


@pytest.mark.slow
@given(st.integers(0, 1_000))
def test_shares_are_only_issued_again_where_one_of_them_is_wrong_by_a_twentieth_of_its_room_however_much_is_known(
    seed: int,
) -> None:
    policy, declared = Fitted(), [950.0, 950.0]
    shares = fitted_to(declared)
    for moment in [*poisson(declared, 50, seed), *poisson([190, 1_710], 150, seed + 1)]:
        for at, arrivals in enumerate(moment):
            policy.observe(f"b{at}", [Bin(arrivals)])
        proposed = policy.propose(ENVELOPE, members_of(shares, declared), floor=FLOOR)
        if proposed is not None:
            change = [abs(new - old) / MICRO for (new, _), (old, _) in zip(proposed, shares, strict=True)]
            room = [rate / MICRO - policy.rate(f"b{at}") for at, (rate, _) in enumerate(shares)]
            assert any(most > 0.0499 * its for most, its in zip(change, room, strict=True))
            shares = proposed


@pytest.mark.parametrize(("behind_s", "is_waited_for"), [(0.9, True), (2.0, False)])
def test_what_is_known_better_of_some_moves_shares_unless_the_next_report_may_say_as_much_of_another(
    behind_s: float, is_waited_for: bool
) -> None:
    policy, declared = Fitted(), [600.0] * 3

    def moves(shares: Shares) -> Shares | None:
        return policy.propose(ENVELOPE, members_of(shares, declared), floor=FLOOR)

    for at in range(3):
        policy.observe(f"b{at}", [Bin(60)] * 20)
    shares = moves(fitted_to([500.0, 600.0, 700.0]))
    assert shares is not None
    policy.note_change("b2", Change(6, 0.01))
    policy.observe("b2", [Bin(60)] * round(behind_s * 10))
    assert moves(shares) is None
    policy.observe("b2", [Bin(60)])
    for name, arrivals in (("b0", 63), ("b1", 57)):  # 615 and 585 msg/s, of twice as much as before
        policy.observe(name, [Bin(arrivals)] * 20)
    at_once = moves(shares)
    assert (at_once is None) == is_waited_for
    policy.observe("b2", [Bin(60)] * 20)
    assert (moves(at_once or shares) is None) != is_waited_for


def test_a_broker_that_was_never_heard_keeps_no_other_from_being_known_better() -> None:
    policy, declared, shares = Fitted(), [600.0, 600.0, 600.0, 0.0], fitted_to([500.0, 600.0, 700.0, 1.0])
    for arrivals in ((60, 60, 60), (63, 57, 60)):
        for name, count in zip(("b0", "b1", "b2"), arrivals, strict=True):
            policy.observe(name, [Bin(count)] * 20)
        found = policy.propose(ENVELOPE, members_of(shares, declared), floor=FLOOR)
        assert found is not None
        shares = found


def test_a_proposal_that_came_to_nothing_is_made_again() -> None:
    policy, declared, lost = Fitted(), [950.0, 950.0], 0
    shares = fitted_to(declared)
    for moment in [*poisson(declared, 50, 1), *poisson([190, 1_710], 150, 2)]:
        for at, arrivals in enumerate(moment):
            policy.observe(f"b{at}", [Bin(arrivals)])
        members = members_of(shares, declared)
        proposed = policy.propose(ENVELOPE, members, floor=FLOOR)
        if proposed is not None:
            assert policy.propose(ENVELOPE, members, floor=FLOOR) == proposed
            shares, lost = proposed, lost + 1
    assert lost > 3


def test_an_idle_topic_keeps_a_proportional_split_as_declared() -> None:
    declared = [1_800.0, 100.0]
    proportional = split_bucket(ENVELOPE.rate_micro, ENVELOPE.burst_micro, declared)
    assert fed(declared, [[0, 0]] * 150, proportional) == []
    assert fed(declared, poisson(declared, 40, 4), proportional) != []


def test_once_moved_traffic_has_ended_the_declared_split_comes_back() -> None:
    found = fed([950, 950], [*poisson([200, 1_700], 50, 2), *[[0, 0]] * 150])
    assert found[0][1][0] > 1_700 * MICRO
    assert [rate for rate, _ in found[-1]] == pytest.approx([1_040 * MICRO] * 2, rel=0.05)


def test_half_of_what_was_declared_on_one_broker_leaves_the_other_room_for_its_own() -> None:
    (idle, _), (busy, _) = fed([1_000, 1_000], poisson([0, 1_000], 120, 3))[-1]
    assert idle > 250 * MICRO
    assert busy > 1_500 * MICRO


rates = st.floats(0, 5_000)


@given(st.lists(st.tuples(rates, rates), min_size=1, max_size=6))
def test_what_is_expected_is_never_less_than_what_is_seen_and_sums_to_the_larger_of_seen_and_declared(
    pairs: list[tuple[float, float]],
) -> None:
    seen, declared = [Expected(rate, 1.0) for rate, _ in pairs], [rate for _, rate in pairs]
    found = expected(seen, declared)
    assert all(one.rate >= was.rate for one, was in zip(found, seen, strict=True))
    larger = max(sum(declared), sum(one.rate for one in seen))
    assert sum(one.rate for one in found) == pytest.approx(larger)


@given(st.lists(st.floats(0.001, 5_000), min_size=1, max_size=6))
def test_without_traffic_what_was_declared_is_expected(declared: list[float]) -> None:
    found = [one.rate for one in expected([Expected(0.0, 0.0)] * len(declared), declared)]
    assert found == pytest.approx(declared)
