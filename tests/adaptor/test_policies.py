"""Laws that every policy keeps, and what each does with traffic in bins."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adaptor.observations import Bin, Envelope, Member, Shares
from adaptor.policy import Policy
from srtm.topics.adaptation import Adaptation, Mode
from srtm.units import MICRO

ENVELOPE = Envelope(rate_micro=11_000 * MICRO, burst_micro=25 * MICRO)
EVEN: Shares = [(5_500 * MICRO, 12_500_000)] * 2


def members(shares: Shares, capacity: float = float("inf")) -> list[Member]:
    return [Member(name=f"b{at}", share=share, capacity=capacity) for at, share in enumerate(shares)]


def fed(mode: Mode, bins: list[list[Bin]], shares: Shares = EVEN, **settings: float) -> list[Shares]:
    """All that is proposed while ``bins`` (of each moment, one a broker) come in; the last one is in force."""
    policy, found = Policy(mode, Adaptation(**settings)), []  # type: ignore[arg-type]
    for number, moment in enumerate(bins):
        for at, one in enumerate(moment):
            policy.observe(f"b{at}", [one])
        proposed = policy.propose(number / 10, ENVELOPE, members(shares))
        if proposed is not None:
            shares = proposed
            found.append(proposed)
    return found


def poisson(rates: list[float], count: int, seed: int) -> list[list[Bin]]:
    """Bins whose arrivals are nearly Poisson: a normal variate, for speed."""
    dice = random.Random(seed)
    return [[Bin(max(0, round(dice.gauss(r / 10, (r / 10) ** 0.5)))) for r in rates] for _ in range(count)]


counts = st.integers(0, 3000)
moments = st.lists(
    st.tuples(*[st.builds(Bin, counts, st.integers(0, 5000), st.floats(0, 5000))] * 3), min_size=1, max_size=12
)


@given(st.sampled_from(["proportional", "fitted", "central"]), moments, st.floats(3000, 20_000))
def test_shares_sum_to_the_envelope_and_keep_floor_and_capacity(
    mode: Mode, seen: list[tuple[Bin, ...]], capacity: float
) -> None:
    policy = Policy(mode, Adaptation(interval_s=0.1))
    third = [(3_666_666_666, 8_333_333), (3_666_666_667, 8_333_333), (3_666_666_667, 8_333_334)]
    for number, moment in enumerate(seen):
        for at, one in enumerate(moment):
            policy.observe(f"b{at}", [one])
        shares = policy.propose(number / 10, ENVELOPE, members(third, capacity))
        if shares is not None:
            assert sum(burst for _, burst in shares) == ENVELOPE.burst_micro
            most = int(capacity * MICRO)
            assert sum(rate for rate, _ in shares) == min(ENVELOPE.rate_micro, 3 * most)
            least = (70 if mode == "fitted" else 220) * MICRO
            assert all(least <= rate <= most and burst >= MICRO for rate, burst in shares)


@pytest.mark.parametrize("mode", ["static", "gdrl"])
def test_where_nobody_adapts_nothing_is_proposed(mode: Mode) -> None:
    assert fed(mode, poisson([1_000, 9_000], 50, 1)) == []


@pytest.mark.slow
@given(st.integers(0, 10_000), st.floats(0.05, 0.5))
@example(8705, 0.5)  # the worst of 183 draws: 12 moves in 20 s
def test_fitted_settles_under_stationary_traffic_and_then_moves_shares_once_a_second_at_most(
    seed: int, part: float
) -> None:
    seen = poisson([10_000 * part, 10_000 * (1 - part)], 400, seed)
    settled = fed("fitted", seen[:200])
    assert len(settled) <= 20
    rates = [rate / MICRO for rate, _ in settled[-1]] if settled else [5_500.0, 5_500.0]
    assert all(rate > load for rate, load in zip(rates, [10_000 * part, 10_000 * (1 - part)], strict=True))
    assert len(fed("fitted", seen)) - len(settled) <= 20


def test_a_small_broker_gets_more_than_its_proportion_under_fitted_and_just_that_under_proportional() -> None:
    seen = [[Bin(100, work=10.0), Bin(900, work=20.0)]] * 100
    (small, _), _ = fed("fitted", seen)[0]
    (proportional, burst), _ = fed("proportional", seen)[-1]
    assert small > 1_200 * MICRO
    assert proportional == pytest.approx(1_100 * MICRO, rel=1e-6)
    assert burst == pytest.approx(25 * MICRO / 3, rel=1e-6)


def test_proportional_waits_for_its_interval_and_ignores_what_is_within_the_dead_band() -> None:
    moved = [[Bin(450, work=20.0), Bin(550, work=20.0)]] * 25
    assert len(fed("proportional", moved, interval_s=1.0, dead_band=0.05)) == 1
    assert fed("proportional", moved, interval_s=1.0, dead_band=0.2) == []


def test_after_a_pause_without_news_proportional_waits_for_its_interval_as_ever() -> None:
    policy, found = Policy("proportional", Adaptation(interval_s=1.0, window_s=1.0)), []
    for at_s, small in ((0.0, 100), (1.0, 100), (30.0, 300), (30.1, 900), (30.9, 900), (31.0, 900)):
        for name, arrivals in (("b0", small), ("b1", 1_000 - small)):
            policy.observe(name, [Bin(arrivals, work=1.0)] * 10)
        if policy.propose(at_s, ENVELOPE, members(EVEN)) is not None:
            found.append(at_s)
    assert found == [1.0, 30.0, 31.0]


def test_under_central_the_busiest_broker_owns_all_but_the_floors_and_keeps_it_while_demand_is_alike() -> None:
    shift = [[Bin(100), Bin(900)]] * 30
    back = [[Bin(520), Bin(480)]] * 30
    proposed = fed("central", [*shift, *back], window_s=1.0)
    assert proposed == [[(220 * MICRO, MICRO), (10_780 * MICRO, 24 * MICRO)]]


def test_a_backlogged_topic_is_split_anew_five_times_a_second_however_often_its_brokers_report() -> None:
    policy, shares, found = Policy("fitted", Adaptation()), EVEN, []
    for number in range(100):
        at_s = 5.0 + number / 50
        policy.observe("b0", [Bin(500, waiting=800 * (number // 10 % 2))])
        policy.observe("b1", [Bin(500, waiting=800 * (1 - number // 10 % 2))])
        proposed = policy.propose(at_s, ENVELOPE, members(shares))
        if proposed is not None:
            shares = proposed
            found.append(at_s)
    assert 8 <= len(found) <= 10
    assert all(after - before >= 0.2 - 1e-9 for before, after in pairwise(found))
