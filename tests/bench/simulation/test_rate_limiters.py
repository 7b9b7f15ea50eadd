"""Other people's limiters, on arrivals that can be followed by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptor.observations import Envelope
from bench.harness.cluster_runs.recovery import SECOND_NS
from bench.simulation import rate_limiters
from srtm.token_bucket.bucket import conforms_due
from srtm.units import MICRO

MS = 1_000_000


def envelope(rate: float, burst: float) -> Envelope:
    return Envelope(rate_micro=round(rate * MICRO), burst_micro=round(burst * MICRO))


def at_ms(*instants: float) -> np.ndarray:
    return np.array([round(instant * MS) for instant in instants], dtype=np.int64)


def steady(rate: float, seconds: float) -> np.ndarray:
    return (np.arange(round(rate * seconds)) * (SECOND_NS / rate)).astype(np.int64)


def test_an_even_split_refuses_what_finds_no_token_at_its_broker():
    found = rate_limiters.even([at_ms(0, 0, 0, 0), at_ms(0)], envelope(2_000, 4))
    assert (len(found.gone_ns), found.dropped, found.wire) == (3, 2, 0)


def test_an_even_split_lets_go_again_when_a_token_has_come():
    found = rate_limiters.even([at_ms(0, 0.5, 1.0), at_ms()], envelope(2_000, 2))
    assert (found.gone_ns / MS).tolist() == [0, 1]


def test_a_central_bucket_takes_a_round_trip_and_decides_in_turn():
    found = rate_limiters.central([at_ms(0, 1), at_ms(0)], envelope(1_000_000, 100), 2 * MS, MS // 4)
    assert (found.gone_ns / MS).tolist() == [2.25, 2.5, 3.25]
    assert (found.delay_ns / MS).tolist() == [2.25, 2.5, 2.25]
    assert (found.dropped, found.wire) == (0, 6)


def test_a_central_bucket_delays_what_finds_no_token():
    found = rate_limiters.central([at_ms(0, 0), at_ms(0)], envelope(1_000, 1), 0, 0)
    assert (found.gone_ns / MS).tolist() == [0, 1, 2]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 3))
def test_what_keeps_the_bucket_never_lets_more_go_than_the_envelope(gaps_ms, brokers):
    arrivals = np.cumsum(np.array(gaps_ms, dtype=np.int64) * MS)
    each = [arrivals[at::brokers] for at in range(brokers)]
    asked = envelope(40, 6)
    for found in (rate_limiters.even(each, asked), rate_limiters.central(each, asked, MS, 1_000)):
        assert conforms_due(found.gone_ns.tolist(), asked.rate_micro, asked.burst_micro) is None
        assert len(found.gone_ns) + found.dropped == len(arrivals)


def test_flow_proportional_share_follows_the_demand_that_it_was_told():
    asked = envelope(1_000, 20)
    one, nine = steady(90, 30), steady(810, 30)
    shares = rate_limiters.even([one, nine], asked)
    followed = rate_limiters.flow_proportional([one, nine], asked, 10.0, 30 * SECOND_NS)
    assert shares.dropped > 9_000  # 500 of 810 msg/s go
    assert followed.dropped < 2_000
    assert followed.wire == 2 * 60


def test_a_small_part_of_a_flow_proportional_share_still_holds_a_token():
    few, many = steady(20, 30) + 1, steady(400, 30)
    found = rate_limiters.flow_proportional([few, many], envelope(1_000, 20), 10.0, 30 * SECOND_NS)
    assert np.isin(few, found.gone_ns).mean() > 0.98  # its part of b is 0.4 messages


def test_random_drop_drops_what_all_are_above_the_rate_together_and_nothing_below_it():
    asked = envelope(1_000, 20)
    below = rate_limiters.random_drop([steady(400, 5), steady(400, 5)], asked, 5 * SECOND_NS, 1)
    above = rate_limiters.random_drop([steady(1_000, 20), steady(1_000, 20)], asked, 20 * SECOND_NS, 1)
    assert below.dropped == 0
    assert above.dropped == pytest.approx(0.5 * 40_000, rel=0.1)
    assert conforms_due(above.gone_ns.tolist(), asked.rate_micro, asked.burst_micro) is not None


def test_one_limiter_alone_has_all_and_tells_nobody():
    asked = envelope(100, 10)
    found = rate_limiters.flow_proportional([steady(90, 5)], asked, 10.0, 5 * SECOND_NS)
    assert (found.dropped, found.wire) == (0, 0)
