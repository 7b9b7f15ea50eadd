from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptor.gdrl.exchange import Supply, exchange, floored, indicator, spread
from adaptor.gdrl.partners import neighbours, partner
from srtm.topics.adaptation import Indicator
from srtm.units import MICRO
from tests.support.gdrl_rounds import as_printed, random_rounds, ring, ring_rounds, start

supplies = st.builds(
    Supply,
    rate=st.integers(1, 10**11),
    burst=st.integers(MICRO, 10**9),
    demand=st.floats(0.01, 1e5),
    dispersion=st.floats(0.1, 50),
    capacity=st.one_of(st.just(float("inf")), st.floats(1, 1e5)),
)
measures = st.sampled_from(["fill", "slack"])


def test_the_exchange_of_a_pair_is_the_exact_one() -> None:
    mine, other = (Supply(rate=r * MICRO, burst=4 * MICRO, demand=d) for r, d in [(600, 200.0), (500, 800.0)])
    given_away = exchange("fill", mine, other)
    assert given_away.rate == (600 * 800 - 500 * 200) * MICRO // 1000


@given(measures, supplies, supplies)
def test_what_one_gives_the_other_gets_and_no_share_is_left_without_a_token(
    measure: Indicator, mine: Supply, other: Supply
) -> None:
    there = exchange(measure, mine, other)
    rates = mine.rate - there.rate, other.rate + there.rate
    bursts = mine.burst - there.burst, other.burst + there.burst
    assert sum(rates) == mine.rate + other.rate
    assert sum(bursts) == mine.burst + other.burst
    assert min(rates) >= 1
    assert min(bursts) >= MICRO
    for before, after, capacity in [(mine.rate, rates[0], mine.capacity), (other.rate, rates[1], other.capacity)]:
        assert after <= max(before, capacity * MICRO + 1)


@given(measures, supplies)
def test_a_newcomer_with_nothing_gets_a_share_of_whoever_it_meets(measure: Indicator, other: Supply) -> None:
    newcomer = Supply(rate=0, burst=0, demand=100.0)
    there = exchange(measure, newcomer, other)
    if other.burst >= 2 * MICRO and other.rate >= 2:
        assert -there.rate >= 1
        assert -there.burst >= MICRO
    else:
        assert (there.rate, there.burst) == (0, 0) or other.burst >= 2 * MICRO


@pytest.mark.parametrize("measure", ["fill", "slack"])
def test_after_an_exchange_both_have_the_same_indicator(measure: Indicator) -> None:
    mine, other = (Supply(rate=r * MICRO, burst=9 * MICRO, demand=d) for r, d in [(5_500, 1_000.0), (5_500, 9_000.0)])
    there = exchange(measure, mine, other)
    after = [
        indicator(measure, Supply(rate=rate, burst=MICRO, demand=demand))
        for rate, demand in [(mine.rate - there.rate, 1_000.0), (other.rate + there.rate, 9_000.0)]
    ]
    assert after[0] == pytest.approx(after[1], rel=1e-6)


def test_a_broker_without_demand_counts_as_one_with_a_little() -> None:
    assert floored(Supply(rate=1, burst=MICRO, demand=0.0), 1_000 * MICRO).demand == 20.0


@pytest.mark.parametrize(("brokers", "most"), [(6, 35), (64, 100)])
@pytest.mark.parametrize("measure", ["fill", "slack"])
def test_random_partners_agree_soon(measure: Indicator, brokers: int, most: int) -> None:
    for seed in range(3):
        dice = random.Random(seed)
        count = random_rounds(measure, start(brokers, dice), dice, most)
        assert count is not None


def test_the_printed_formula_diverges_where_the_exchange_converges() -> None:
    supplies = start(6, random.Random(7))
    printed, spread_then = ring_rounds(as_printed(supplies), supplies, 100_000)
    conserving, _ = ring_rounds(ring(supplies), supplies, 500_000)
    assert printed is None
    assert spread_then > 1e6
    assert conserving is not None


def test_on_the_ring_everybody_has_two_neighbours_and_asks_them_in_turn() -> None:
    ring = ["c", "a", "d", "b"]
    assert neighbours(ring, "a") == ["b", "d"]
    assert [partner("ring", ring, "a", turn, random.Random(1)) for turn in range(3)] == ["b", "d", "b"]
    assert neighbours(["a", "b"], "a") == ["b"]
    assert partner("random", ["a"], "a", 0, random.Random(1)) is None


def test_random_partners_are_all_others_alike() -> None:
    dice = random.Random(1)
    met = [partner("random", ["a", "b", "c"], "b", turn, dice) for turn in range(300)]
    assert set(met) == {"a", "c"}
    assert 100 < met.count("a") < 200


def test_spread_is_relative_to_the_mean() -> None:
    pair = [Supply(rate=rate * MICRO, burst=MICRO, demand=100.0) for rate in (90, 110)]
    assert spread("fill", pair) == pytest.approx(0.2)
