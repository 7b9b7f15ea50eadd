"""Parts sum to the whole exactly, every share can hold a token, and what is no number is refused."""

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from srtm.errors import BadInput
from srtm.token_bucket.exact_split import split, split_bucket
from srtm.units import MICRO, from_micro, to_micro

weights = st.lists(st.one_of(st.just(0.0), st.integers(1, 10**6), st.floats(1e-6, 1e9)), min_size=1, max_size=20)


@given(st.integers(0, 10**15), weights)
def test_parts_sum_exactly_and_are_within_one_unit_of_their_proportion(total, weights):
    assume(any(weights))
    parts = split(total, weights)
    whole = sum(map(Fraction, weights))
    assert sum(parts) == total
    assert all(abs(part - total * Fraction(weight) / whole) < 1 for part, weight in zip(parts, weights, strict=True))


@given(st.integers(0, 10**15), weights, st.integers(0, 10**9))
def test_a_floor_is_kept_and_the_others_keep_their_proportion(total, weights, floor):
    active = sum(weight > 0 for weight in weights)
    assume(active and floor * active <= total)
    parts = split(total, weights, floor)
    assert sum(parts) == total
    assert all(part >= floor if weight > 0 else part == 0 for part, weight in zip(parts, weights, strict=True))
    above = [(part, Fraction(weight)) for part, weight in zip(parts, weights, strict=True) if part > floor]
    for part, weight in above:
        rest = sum(part for part, _ in above)
        share = rest * weight / sum(weight for _, weight in above)
        assert abs(part - share) <= len(parts)  # whole units, and parts that rounding leaves on the floor


def test_equal_remainders_go_to_the_first():
    assert split(10, [1, 1, 1]) == [4, 3, 3]
    assert split(5, [1, 0, 1]) == [3, 0, 2]


@given(
    st.integers(1, 10**15), st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e6)), min_size=1, max_size=12), st.data()
)
def test_a_bucket_splits_into_shares_that_are_nothing_or_hold_a_token(rate, assigned, data):
    active = sum(part > 0 for part in assigned)
    assume(active and rate >= active)
    burst = data.draw(st.integers(active * MICRO, 10**12))
    shares = split_bucket(rate, burst, assigned)
    assert (sum(r for r, _ in shares), sum(b for _, b in shares)) == (rate, burst)
    for share, part in zip(shares, assigned, strict=True):
        assert share == (0, 0) if part == 0 else share[0] >= 1 and share[1] >= MICRO


def test_shares_are_in_proportion_to_the_rate_assigned():
    assert split_bucket(11_000 * MICRO, 25 * MICRO, [6_000, 4_000, 0]) == [
        (6_600 * MICRO, 15 * MICRO),
        (4_400 * MICRO, 10 * MICRO),
        (0, 0),
    ]


def test_others_give_up_in_proportion_what_a_small_share_lacks_of_a_token():
    shares = split_bucket(1_000 * MICRO, 10 * MICRO, [600, 300, 1])
    assert [burst for _, burst in shares] == [6 * MICRO, 3 * MICRO, MICRO]


def test_a_burst_with_fewer_tokens_than_brokers_is_refused():
    with pytest.raises(BadInput, match=r"burst: 2\.9: cannot be split over 3 brokers"):
        split_bucket(10 * MICRO, 2_900_000, [1, 1, 1])


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], [math.nan], [math.inf, 1]])
def test_weights_that_divide_nothing_are_refused(weights):
    with pytest.raises(BadInput, match="weights"):
        split(10, weights)


@given(st.integers(1, 10**15))
def test_micro_messages_survive_the_way_through_a_float(micro):
    assert to_micro(from_micro(micro), "rate") == micro


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf, 1.1e9, 1e-7, 10**400])
def test_what_is_no_rate_is_refused_by_name(value):
    with pytest.raises(BadInput, match=r"^rate: "):
        to_micro(value, "rate")
