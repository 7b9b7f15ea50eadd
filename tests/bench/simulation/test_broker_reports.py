"""What brokers report to a policy in simulation, and how often."""

from __future__ import annotations

import numpy as np
import pytest

from adaptor.observations import Envelope
from adaptor.policy import Policy
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from bench.simulation.broker_reports import Reporting
from bench.simulation.shifting_traffic import Shift, arrivals_of
from srtm.token_bucket.exact_split import split_bucket
from srtm.topics.adaptation import Adaptation, Mode
from srtm.units import MICRO

ENVELOPE = Envelope(rate_micro=2_200 * MICRO, burst_micro=50 * MICRO)
EVEN = split_bucket(ENVELOPE.rate_micro, ENVELOPE.burst_micro, [1.0, 1.0])


def regular(rate: int, from_s: float, to_s: float) -> Ints:
    return (np.arange(from_s * rate, to_s * rate) * (SECOND_NS // rate)).astype(np.int64)


def run(mode: Mode, arrivals: list[Ints], ends_s: int) -> Reporting:
    found = Reporting(arrivals, ENVELOPE, Policy(mode, Adaptation()), EVEN, declared=[1_000.0, 1_000.0])
    found.run(ends_s * SECOND_NS)
    return found


@pytest.mark.slow
def test_a_broker_whose_traffic_stays_reports_about_once_a_second_until_it_is_steady() -> None:
    steady = run("fitted", [regular(500, 0, 20), regular(500, 0, 20)], 20)
    assert 24 <= steady.reports <= 28
    still = run("proportional", [regular(500, 0, 20), regular(500, 0, 20)], 20)
    assert 36 <= still.reports <= 42


def test_traffic_that_changes_is_reported_more_often_and_moves_the_shares() -> None:
    moved = run(
        "fitted",
        [regular(500, 0, 20), np.concatenate([regular(200, 0, 10), regular(1_600, 10, 20)])],
        20,
    )
    assert moved.reports > 35
    assert moved.brokers[1].share[0] > 1_600 * MICRO
    assert moved.messages >= moved.reports + len(moved.proposed) + 2 * moved.told > moved.reports


def test_the_end_of_traffic_is_told_and_takes_the_tokens_along() -> None:
    moved = run("fitted", [regular(500, 0, 10), np.concatenate([regular(200, 0, 10), regular(2_100, 10, 20)])], 20)
    assert moved.brokers[1].share[0] > 2_100 * MICRO


@pytest.mark.slow
def test_little_traffic_that_stays_as_it_is_keeps_slack_and_moves_shares_seldom() -> None:
    dice = np.random.default_rng(1)
    little = np.sort(dice.integers(0, 40 * SECOND_NS, 12 * 40))
    found = run("fitted", [little, regular(500, 0, 40)], 40)
    assert all(shares[0][0] > 120 * MICRO for _, shares in found.proposed)
    assert len(found.proposed) < 6


@pytest.mark.slow
@pytest.mark.parametrize("apart_ms", [0, 5])
def test_publishers_at_a_broker_with_a_small_share_keep_their_promise_from_five_seconds_on(apart_ms: int) -> None:
    """20 publishers of 10 msg/s. What comes in the first half second waits for the small share."""
    fires = np.arange(150)[:, None] * (SECOND_NS // 10) + np.arange(20) * apart_ms * 1_000_000
    arrivals = np.maximum(np.sort(fires.ravel()), SECOND_NS // 2).astype(np.int64)
    envelope = Envelope(rate_micro=260 * MICRO, burst_micro=40 * MICRO)
    start = split_bucket(envelope.rate_micro, envelope.burst_micro, [0.9, 0.1])
    nobody = np.array([], dtype=np.int64)
    moved = Reporting(
        [nobody, arrivals], envelope, Policy("fitted", Adaptation()), start, declared=[200.0, 0.0], dispersions=[1, 1]
    )
    moved.run(15 * SECOND_NS)
    arrived_ns, due_ns = moved.gone(15 * SECOND_NS)
    waited_ns = (due_ns - arrived_ns)[arrived_ns >= 5 * SECOND_NS]
    assert np.percentile(waited_ns, 99) <= SECOND_NS / 1_000


def test_under_static_nobody_says_anything() -> None:
    still = run("static", [regular(500, 0, 3), regular(1_600, 0, 3)], 3)
    assert still.messages == 0
    assert [broker.share for broker in still.brokers] == EVEN


def test_shares_that_rest_on_the_first_moment_of_a_move_are_put_right_although_brokers_report_in_turn() -> None:
    shift = Shift(batch=10, burst=248.0, at_s=6.0, ends_s=9.0)
    start = split_bucket(shift.envelope.rate_micro, shift.envelope.burst_micro, [0.5, 0.5])
    moved = Reporting(
        arrivals_of(shift, seed=205),
        shift.envelope,
        Policy("fitted", Adaptation()),
        start,
        declared=[5_000.0, 5_000.0],
        batch=10,
    )
    moved.run(9 * SECOND_NS)
    last_s, [(smaller, _), _] = moved.proposed[-1]
    assert last_s >= shift.at_s + 1.0
    assert 1_150 * MICRO < smaller < 1_350 * MICRO  # 1,250 fit
