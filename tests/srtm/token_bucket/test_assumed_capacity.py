"""What is assumed of a broker of which nothing is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.token_bucket.assumed_capacity import MOST, SERVICE_NS, assumed_mcap
from srtm.token_bucket.poisson import delayed_part
from srtm.topics.spec import PERCENTILES, Slo


def test_it_is_the_largest_rate_at_which_md1_keeps_the_promise():
    slo = Slo(percentile=99, latency_ms=0.03)  # two services: one message may be ahead
    rate = assumed_mcap([slo])
    assert 0 < rate < MOST
    assert delayed_part(rate * SERVICE_NS / 1e9, 2) <= 0.01 < delayed_part((rate + 1) * SERVICE_NS / 1e9, 2)


@given(st.sampled_from(PERCENTILES), st.floats(0.016, 1e5), st.floats(1, 10))
def test_it_is_finite_and_a_shorter_promise_never_has_more(percentile, latency_ms, more):
    rate = assumed_mcap([Slo(percentile=percentile, latency_ms=latency_ms)])
    assert 0 < rate <= assumed_mcap([Slo(percentile=percentile, latency_ms=latency_ms * more)]) <= MOST


@pytest.mark.parametrize("promises", [[], [Slo(percentile=99, latency_ms=5)], [Slo(percentile=99, latency_ms=0.001)]])
def test_it_is_at_most_20_000(promises):
    assert assumed_mcap(promises) == 20_000.0


def test_the_hardest_promise_decides():
    easy, hard = Slo(percentile=99, latency_ms=5), Slo(percentile=99, latency_ms=0.03)
    assert assumed_mcap([easy, hard]) == assumed_mcap([hard])
