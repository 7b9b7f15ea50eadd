"""``burst = "paper"``: the smallest burst, judged by the exact bucket on the same simulated arrivals."""

import math

import numpy as np
import pytest

from srtm.token_bucket import burst_sizing as sizing
from srtm.token_bucket.burst_sizing import arrivals, smallest_burst
from srtm.token_bucket.replay import access_delays
from srtm.topics.spec import parse_topic_json

MICRO = 1_000_000


def publishers(*blocks):
    topic = {"name": "t", "rate": 1e9, "burst": "auto", "slo": {"percentile": 99, "latency_ms": 1}}
    return parse_topic_json({**topic, "publishers": list(blocks)}).publishers


FLEETS = {
    "poisson": publishers({"count": 100, "rate": 10}),
    "synchronized": publishers({"count": 100, "rate": 10, "group_size": 25}),
    "batches": publishers({"count": 10, "rate": 100, "batch": 7}),
    "periodic": publishers({"count": 100, "rate": 10, "process": "periodic", "group_size": 7}),
    "mixed": publishers(
        {"count": 50, "rate": 10, "group_size": 5, "id_prefix": "a"},
        {"count": 50, "rate": 4, "process": "periodic", "batch": 3, "id_prefix": "b"},
        {"ids": ["x", "y", "z"], "rates": [1, 100, 20], "groups": ["g", "g", "g"], "batch": [1, 4, 2]},
    ),
}


@pytest.fixture
def short_runs(monkeypatch):
    """A simulation of 100,000 messages in many slices: the same code, sooner."""
    monkeypatch.setattr(sizing, "MOST_ARRIVALS", 100_000)
    monkeypatch.setattr(sizing, "_SLICE", 7_000)


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("percentile", [50, 99, 99.9])
@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS)
def test_the_burst_is_the_smallest_with_no_access_delay_at_the_percentile(fleet, percentile):
    rate = 1.1 * fleet.load
    burst = smallest_burst(fleet, rate, percentile, seed=3)
    arrival_ns = np.concatenate(list(arrivals(fleet, seed=3)))

    def delayed(b):
        return int((access_delays(arrival_ns, round(rate * MICRO), b * MICRO) > 0).sum())

    may_be = len(arrival_ns) - math.ceil(len(arrival_ns) * percentile / 100)
    assert delayed(burst) <= may_be
    assert burst == fleet.largest_batch or delayed(burst - 1) > may_be


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS)
def test_simulated_publishers_send_at_their_rates_in_order_of_time(fleet):
    arrival_ns = np.concatenate(list(arrivals(fleet, seed=1)))
    assert len(arrival_ns) == pytest.approx(100_000, rel=0.05)
    assert (np.diff(arrival_ns) >= 0).all()
    assert arrival_ns[-1] / 1e9 == pytest.approx(100_000 / fleet.load, rel=0.01)


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("process", ["poisson", "periodic"])
def test_members_of_a_group_fire_together(process):
    fleet = publishers({"count": 100, "rate": 10, "group_size": 25, "process": process})
    arrival_ns = np.concatenate(list(arrivals(fleet, seed=1)))
    _, sizes = np.unique(arrival_ns, return_counts=True)
    assert (sizes % 25 == 0).all()


@pytest.mark.usefixtures("short_runs")
def test_slower_members_of_a_group_fire_with_the_fastest():
    fleet = publishers({"ids": ["slow", "fast"], "rates": [10, 40], "groups": ["g", "g"]})
    arrival_ns = np.concatenate(list(arrivals(fleet, seed=1)))
    _, sizes = np.unique(arrival_ns, return_counts=True)
    assert np.count_nonzero(sizes == 2) / len(sizes) == pytest.approx(0.25, abs=0.01)


@pytest.mark.usefixtures("short_runs")
def test_a_seed_gives_the_same_burst_again():
    fleet = FLEETS["mixed"]
    assert smallest_burst(fleet, fleet.load * 1.1, seed=5) == smallest_burst(fleet, fleet.load * 1.1, seed=5)


def test_splitting_a_group_makes_a_smaller_burst_do():
    together, apart = FLEETS["synchronized"], FLEETS["poisson"]
    assert smallest_burst(together, 1_100) > 5 * smallest_burst(apart, 1_100)


def test_without_messages_one_token_is_enough_and_a_batch_always_fits():
    assert smallest_burst(publishers(), 10) == 1
    assert smallest_burst(publishers({"count": 1, "rate": 1e-6, "batch": 40}), 10) == 40


@pytest.mark.slow
def test_ten_million_arrivals_give_the_burst_of_the_paper():
    fleet = publishers({"count": 1_000, "rate": 20})
    burst = smallest_burst(fleet, 22_000)
    # 10,000 Poisson msg/s with r = 11,000 needs b = 25 (main paper, section 5.3): only the ratio counts.
    assert 24 <= burst <= 28
