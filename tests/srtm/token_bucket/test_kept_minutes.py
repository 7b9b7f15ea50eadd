"""The burst that a minute needs, against the exact bucket and server; and the formula against drawn minutes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.token_bucket.dispersion import traffic_of
from srtm.token_bucket.fitted_split import Traffic
from srtm.token_bucket.kept_minutes import (
    Promise,
    Server,
    chance_by_formula,
    minute,
    needed_burst,
    needed_bursts,
    processing_s,
    split,
)
from srtm.token_bucket.replay import access_delays
from srtm.topics.spec import parse_topic_json

MICRO = 1_000_000
gaps_us = st.lists(st.integers(0, 30_000), min_size=1, max_size=120)


def publishers(*blocks):
    topic = {"name": "t", "rate": 1e9, "burst": 1, "slo": {"percentile": 99, "latency_ms": 1}}
    return parse_topic_json({**topic, "publishers": list(blocks)}).publishers


def late(arrival_us, rate, burst, service_us, latency_us):
    """Messages that take longer than the latency, by the exact bucket and one server after it."""
    due_us = arrival_us + access_delays(arrival_us * 1000, rate * MICRO, round(burst * MICRO)) / 1000
    free, count = 0.0, 0
    for came, due in zip(arrival_us, due_us, strict=True):
        free = max(free, due) + service_us
        count += free - came > latency_us + 0.01
    return count


@given(gaps_us, st.integers(20, 400), st.sampled_from([0, 15, 900]), st.sampled_from([50, 90, 99]))
def test_it_is_the_smallest_burst_with_which_the_exact_bucket_keeps_the_promise(gaps, rate, service_us, percentile):
    arrival_us = np.cumsum(np.array(gaps, dtype=np.int64))
    promise = Promise(percentile=percentile, latency_s=5_000e-6)
    needed = needed_burst(arrival_us / 1e6, Server(rate=rate, service_s=service_us / 1e6), promise)
    may_be = len(gaps) - math.ceil(len(gaps) * percentile / 100)
    if needed == math.inf:
        assert late(arrival_us, rate, 1e6, service_us, 5_000) > may_be
        return
    assert late(arrival_us, rate, max(1.0, needed + 1e-4), service_us, 5_000) <= may_be
    if needed > 1.01:
        assert late(arrival_us, rate, needed - 0.01, service_us, 5_000) > may_be


@given(gaps_us, st.integers(20, 400), st.integers(0, 200), st.integers(0, 5_000))
def test_more_rate_needs_no_more_burst_and_more_latency_needs_less(gaps, rate, more, more_us):
    arrival_s = np.cumsum(np.array(gaps)) / 1e6
    promise = Promise(percentile=90, latency_s=0.002)
    longer = Promise(percentile=90, latency_s=0.002 + more_us / 1e6)
    needed = needed_burst(arrival_s, Server(rate=rate, service_s=15e-6), promise)
    if needed > 1:
        assert needed_burst(arrival_s, Server(rate=rate + more, service_s=15e-6), promise) <= needed + 1e-6
    assert needed_burst(arrival_s, Server(rate=rate, service_s=15e-6), longer) <= needed + 1e-6


def test_nobody_needs_nothing_and_a_share_without_rate_never_does():
    promise = Promise(percentile=99, latency_s=0.005)
    assert needed_burst(np.zeros(0), Server(rate=1.0, service_s=0.0), promise) == 0.0
    assert needed_burst(np.zeros(1), Server(rate=0.0, service_s=0.0), promise) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize(("group", "burst"), [(1, 30), (9, 60), (9, 150), (9, 250)])
def test_the_formula_is_close_to_what_is_drawn(group, burst):
    fleet = publishers({"count": 180, "rate": 10, "group_size": group})
    promise, server = Promise(percentile=99, latency_s=0.005), Server(rate=1_980.0, service_s=15e-6)
    at = np.zeros(180, dtype=np.int64)
    kept = sum(needed_bursts(split(minute(fleet, seed), at, 1), [server], promise)[0] <= burst for seed in range(100))
    assert chance_by_formula(traffic_of(fleet, at, 1), [server], [burst], promise) == pytest.approx(
        kept / 100, abs=0.15
    )


@given(st.floats(1, 1e6), st.floats(1, 30), st.floats(1, 1e4), st.floats(1.01, 3), st.floats(0, 1e4))
def test_the_formula_is_a_chance_that_grows_with_the_burst(rate, dispersion, burst, more, more_burst):
    traffic, server = [Traffic(rate=rate, dispersion=dispersion)], [Server(rate=rate * more, service_s=1e-7)]
    promise = Promise(percentile=99, latency_s=0.005)
    less = chance_by_formula(traffic, server, [burst], promise)
    assert 0 <= less <= chance_by_formula(traffic, server, [burst + more_burst], promise) + 1e-9 <= 1 + 1e-9


def test_without_slack_the_formula_keeps_nothing_and_an_idle_broker_keeps_all():
    promise, server = Promise(percentile=99, latency_s=0.005), Server(rate=10.0, service_s=15e-6)
    assert chance_by_formula([Traffic(rate=10.0)], [server], [5], promise) == 0.0
    assert chance_by_formula([Traffic(rate=0.0)], [server], [5], promise) == 1.0
    assert processing_s(Traffic(rate=100.0), 0.01, 99) == math.inf
