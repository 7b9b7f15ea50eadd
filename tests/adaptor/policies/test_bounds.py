from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptor.observations import Envelope, Member
from adaptor.policies.bounds import bounded, limits
from srtm.errors import BadInput
from srtm.units import MICRO

TOTAL = 11_000 * MICRO


@st.composite
def bounds(draw: st.DrawFn) -> tuple[int, list[float], list[int], list[int]]:
    count = draw(st.integers(1, 12))
    least = draw(st.lists(st.integers(0, 1000), min_size=count, max_size=count))
    most = [low + draw(st.integers(0, 10**9)) for low in least]
    total = draw(st.integers(sum(least), 2 * 10**9))
    weights = draw(st.lists(st.floats(0, 1e9), min_size=count, max_size=count))
    return total, weights, least, most


@given(bounds())
def test_parts_sum_to_the_total_exactly_and_keep_their_bounds(
    given_bounds: tuple[int, list[float], list[int], list[int]],
) -> None:
    total, weights, least, most = given_bounds
    parts = bounded(total, weights, least, most)
    assert sum(parts) == min(total, sum(most))
    assert all(low <= part <= high for part, low, high in zip(parts, least, most, strict=True))


def test_parts_that_meet_no_bound_are_in_proportion() -> None:
    assert bounded(1000, [1.0, 3.0, 6.0], [0, 0, 0], [1000, 1000, 1000]) == [100, 300, 600]


def test_what_a_broker_cannot_process_goes_to_the_others_in_proportion() -> None:
    assert bounded(1000, [1.0, 3.0, 6.0], [0, 0, 0], [1000, 1000, 400]) == [150, 450, 400]


def test_the_floor_is_the_largest_of_two_per_cent_one_token_and_one_batch() -> None:
    small = Envelope(rate_micro=TOTAL, burst_micro=25 * MICRO)
    large = Envelope(rate_micro=TOTAL, burst_micro=1000 * MICRO)
    members = [Member(name="a"), Member(name="b", batch=5)]
    assert limits(small, members, 0.02).least_bursts == [MICRO, 5 * MICRO]
    assert limits(large, members, 0.02).least_bursts == [20 * MICRO, 20 * MICRO]
    assert limits(small, members, 0.02).least_rates == [220 * MICRO] * 2


def test_the_floor_gives_way_where_there_are_too_many_brokers_for_it() -> None:
    crowd = [Member(name=f"b{i}", batch=10) for i in range(40)]
    found = limits(Envelope(rate_micro=TOTAL, burst_micro=40 * MICRO), crowd, 0.5)
    assert sum(found.least_bursts) == 40 * MICRO
    assert sum(found.least_rates) <= TOTAL


def test_more_brokers_than_tokens_are_refused_with_the_rule() -> None:
    with pytest.raises(BadInput, match=r"burst.*every share needs one token"):
        limits(Envelope(rate_micro=TOTAL, burst_micro=2 * MICRO), [Member(name=str(i)) for i in range(3)], 0.02)
