"""The split that fits the traffic: sums exact, a token everywhere, small brokers helped."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from srtm.errors import BadInput
from srtm.token_bucket.dispersion import traffic_of
from srtm.token_bucket.exact_split import split_bucket
from srtm.token_bucket.fitted_split import Traffic, fitted_bucket, tail_of
from srtm.token_bucket.poisson import poisson_burst
from srtm.token_bucket.replay import access_delays
from srtm.topics.spec import parse_topic_json
from srtm.units import MICRO

RATE, BURST = 11_000 * MICRO, 25 * MICRO

parts = st.builds(
    Traffic,
    rate=st.one_of(st.just(0.0), st.floats(1e-3, 1e5)),
    dispersion=st.floats(1, 200),
    batch=st.integers(1, 30),
)


def poisson(part, batch=1, seconds=60, seed=3):
    """Arrivals of 10,000 Poisson msg/s on two brokers, and what each gets."""
    rng = np.random.default_rng(seed)
    at_ns = (np.sort(rng.random(10_000 * seconds // batch)) * seconds * 1e9).astype(np.int64)
    first = rng.random(len(at_ns)) < part
    traffic = [Traffic(rate=10_000 * one, dispersion=batch, batch=batch) for one in (part, 1 - part)]
    return traffic, [np.repeat(at_ns[first], batch), np.repeat(at_ns[~first], batch)]


def worst_p99_ns(arrivals_ns, shares):
    """The largest access delay of any broker at the 99th percentile; ``shares``: (rate, burst) of each, micro."""
    delays = [access_delays(came, *share) for came, share in zip(arrivals_ns, shares, strict=True)]
    return max(int(np.percentile(one, 99, method="inverted_cdf")) for one in delays)


@given(st.lists(parts, min_size=1, max_size=12), st.floats(0.5, 3), st.data(), st.sampled_from([50, 99, 99.9]))
def test_sums_are_exact_and_every_share_is_nothing_or_holds_a_token(traffic, ample, data, percentile):
    active = sum(one.rate > 0 for one in traffic)
    assume(active)
    rate = max(active, round(sum(one.rate for one in traffic) * ample * MICRO))
    burst = data.draw(st.integers(active * MICRO, 10**10))
    shares = fitted_bucket(rate, burst, traffic, percentile)
    assert (sum(r for r, _ in shares), sum(b for _, b in shares)) == (rate, burst)
    for share, one in zip(shares, traffic, strict=True):
        assert share == (0, 0) if one.rate == 0 else share[0] >= 1 and share[1] >= MICRO


@given(st.lists(parts, min_size=2, max_size=12), st.floats(1.001, 3))
def test_no_broker_gets_less_than_what_is_assigned_to_it(traffic, ample):
    load = sum(one.rate for one in traffic)
    assume(load > 1)
    shares = fitted_bucket(round(load * ample * MICRO), 1_000 * MICRO, traffic)
    assert all(rate >= one.rate * MICRO - 1 for (rate, _), one in zip(shares, traffic, strict=True))


@given(st.lists(parts, min_size=2, max_size=6))
def test_every_broker_can_hold_its_largest_batch_where_the_burst_suffices(traffic):
    load = sum(one.rate for one in traffic)
    assume(load > 1)
    batches = [one.batch if one.rate else 0 for one in traffic]
    shares = fitted_bucket(round(load * 1.1 * MICRO), (sum(batches) + 1) * MICRO, traffic)
    for (_, burst), batch in zip(shares, batches, strict=True):
        assert burst >= batch * MICRO - len(traffic)


def test_brokers_alike_get_equal_shares():
    shares = fitted_bucket(RATE, BURST, [Traffic(rate=5_000), Traffic(rate=5_000)])
    assert shares == [(RATE // 2, BURST // 2)] * 2


def test_slack_goes_by_the_root_of_the_rates():
    (small, _), (large, _) = fitted_bucket(RATE, BURST, [Traffic(rate=1_000), Traffic(rate=9_000)])
    assert (small, large) == (1_250 * MICRO, 9_750 * MICRO)


def test_bursty_traffic_gets_more_slack_and_more_burst():
    calm, bursty = fitted_bucket(RATE, 100 * MICRO, [Traffic(rate=5_000), Traffic(rate=5_000, dispersion=4.0)])
    assert bursty[0] == pytest.approx(5_000 * MICRO + 1_000 * MICRO * 2 / 3)
    assert bursty[1] > calm[1]


def test_without_slack_the_split_is_proportional():
    traffic = [Traffic(rate=9_000), Traffic(rate=2_000)]
    assert fitted_bucket(RATE, BURST, traffic) == split_bucket(RATE, BURST, [9_000, 2_000])


def test_a_rate_that_is_the_load_but_for_rounding_is_split_as_one_without_slack():
    traffic = [Traffic(rate=1 - 2**-53)] * 2
    assert fitted_bucket(2 * MICRO, 20 * MICRO, traffic) == split_bucket(2 * MICRO, 20 * MICRO, [1, 1])


@given(st.lists(st.floats(1e-3, 1e5), min_size=2, max_size=6), st.floats(0, 40))
def test_however_little_slack_there_is_sums_are_exact(rates, bits):
    rate_micro = max(round(sum(rates) * (1 + 2.0**-bits) * MICRO), len(rates))
    burst_micro = 20 * len(rates) * MICRO
    shares = fitted_bucket(rate_micro, burst_micro, [Traffic(rate=rate) for rate in rates])
    assert [sum(column) for column in zip(*shares, strict=True)] == [rate_micro, burst_micro]
    assert all(burst >= MICRO for _, burst in shares)


@given(st.floats(1e-3, 1e6), st.floats(1e-16, 1e3), st.floats(1, 200))
def test_tails_are_finite_and_fall(rate, margin, dispersion):
    tail = tail_of(Traffic(rate=rate, dispersion=dispersion), margin)
    assert 0 < tail.scale < math.inf
    assert abs(tail.shift) < math.inf
    assert tail.exceeded_by(0.01) >= tail.exceeded_by(0.1) >= 0


def test_a_burst_with_fewer_tokens_than_brokers_is_refused():
    with pytest.raises(BadInput, match="every share needs one token"):
        fitted_bucket(RATE, 1_500_000, [Traffic(rate=1), Traffic(rate=1)])


@given(st.floats(0.3, 0.98), st.floats(90, 99.9))
def test_poisson_work_at_a_percentile_is_what_theory_says_to_a_token(load, percentile):
    work = tail_of(Traffic(rate=load), 1 - load).exceeded_by((100 - percentile) / 100)
    assert poisson_burst(load, 1.0, percentile) - 1.1 <= work + 1 <= poisson_burst(load, 1.0, percentile) + 0.1


@given(st.floats(0, 1e6), st.floats(1e-9, 1e6), st.floats(0.1, 200), st.floats(1e-4, 0.5))
def test_a_tail_says_the_same_of_a_chance_and_of_the_work_that_it_exceeds(rate, margin, dispersion, chance):
    tail = tail_of(Traffic(rate=rate, dispersion=dispersion), margin)
    work = tail.exceeded_by(chance)
    assert tail.scale > 0
    assert work == 0 or tail.chance_above(work) == pytest.approx(chance, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4, 10])
def test_unequal_brokers_wait_alike_at_the_percentile(batch):
    traffic, arrivals = poisson(0.1, batch, seconds=60 * batch)
    shares = fitted_bucket(13_000 * MICRO, 6 * batch * MICRO, traffic)
    small, large = (worst_p99_ns([came], [share]) for came, share in zip(arrivals, shares, strict=True))
    assert small == pytest.approx(large, rel=0.15)


@pytest.mark.parametrize(("part", "batch", "burst"), [(0.1, 1, 25), (0.3, 1, 25), (0.1, 10, 243), (0.2, 10, 243)])
def test_the_worst_broker_waits_less_than_under_the_proportional_split(part, batch, burst):
    traffic, arrivals = poisson(part, batch)
    proportional = split_bucket(RATE, burst * MICRO, [one.rate for one in traffic])
    fitted = fitted_bucket(RATE, burst * MICRO, traffic)
    assert worst_p99_ns(arrivals, fitted) < 0.7 * worst_p99_ns(arrivals, proportional)


def test_dispersion_counts_messages_that_come_together_on_one_broker():
    block = {"ids": list("abcdef"), "rates": [10, 10, 10, 5, 20, 1], "groups": ["g", "g", "g", "g", "", ""]}
    topic = {"name": "t", "rate": 99, "burst": 9, "slo": {"percentile": 99, "latency_ms": 1}}
    publishers = parse_topic_json({**topic, "publishers": [{**block, "batch": [1, 1, 1, 1, 4, 1]}]}).publishers
    pair, mixed, single, none = traffic_of(publishers, np.array([0, 0, 1, 1, 2, -1]), 4)
    assert (pair.rate, pair.dispersion) == (20, 2)  # two at once, ten times a second
    assert (mixed.rate, mixed.dispersion) == (15, pytest.approx((5 * 4 + 5 * 1) / 15))  # two, or the faster alone
    assert (single.rate, single.dispersion, single.batch) == (20, 4, 4)
    assert (none.rate, none.dispersion) == (0, 1)
