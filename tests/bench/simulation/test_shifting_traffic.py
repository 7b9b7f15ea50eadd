"""The policies on traffic that moves (a small topic, for speed)."""

from __future__ import annotations

import numpy as np
import pytest

from adaptor.observations import Envelope, Shares
from adaptor.policy import Policy
from bench.harness.cluster_runs.recovery import SECOND_NS
from bench.simulation.broker_reports import Reporting
from bench.simulation.shifting_traffic import MEASURED, Shift, simulate
from srtm.token_bucket.bucket import conforms_due
from srtm.token_bucket.exact_split import split_bucket
from srtm.topics.adaptation import Adaptation, Mode
from srtm.units import MICRO

SMALL = Shift(load=2_000.0, rate=2_200.0, burst=25.0, at_s=8.0, ends_s=22.0)


def even(shift: Shift) -> Shares:
    return split_bucket(shift.envelope.rate_micro, shift.envelope.burst_micro, [1.0, 1.0])


@pytest.mark.parametrize("mode", ["proportional", "fitted"])
def test_over_every_interval_no_more_than_the_envelope_is_let_go_while_shares_change(mode: Mode) -> None:
    run = simulate(SMALL, Policy(mode, Adaptation(window_s=1.0)), even(SMALL), seed=1)
    due = np.sort(np.concatenate(run.aftermath.due_ns))
    assert run.in_force
    assert conforms_due(due.tolist(), SMALL.envelope.rate_micro, SMALL.envelope.burst_micro) is None
    for shares in run.in_force:
        assert sum(rate for rate, _ in shares) == SMALL.envelope.rate_micro
        assert sum(burst for _, burst in shares) == SMALL.envelope.burst_micro


@pytest.mark.slow
def test_fitted_is_back_soon_proportional_later_and_static_never() -> None:
    found = {
        mode: simulate(SMALL, Policy(mode, Adaptation(window_s=2.0)), even(SMALL), seed=2)
        for mode in ("static", "proportional", "fitted")
    }
    assert found["fitted"].aftermath.drained_s() < 2.0
    assert found["fitted"].aftermath.back_s() <= 3.0 < found["proportional"].aftermath.back_s()
    assert found["static"].aftermath.back_s() == float("inf")
    assert found["static"].aftermath.drained_s() == float("inf")


def test_fitted_says_little_before_the_shift_and_long_after() -> None:
    run = simulate(SMALL, Policy("fitted", Adaptation()), even(SMALL), seed=3)
    times = [at_s for at_s, _ in run.proposed]
    assert sum(at_s < SMALL.at_s for at_s in times) <= 8
    assert sum(SMALL.at_s <= at_s < SMALL.at_s + 1 for at_s in times) >= 3
    assert sum(at_s > SMALL.ends_s - 3 for at_s in times) <= 6  # twice a second


@pytest.mark.parametrize("phase_s", [0.003, 0.037, 0.071])
def test_shares_are_right_soon_after_a_swap_whenever_in_a_bin_it_comes(phase_s: float) -> None:
    """9,000 msg/s come where 1,000 were, and the reverse."""
    swap = Shift(before=(0.9, 0.1), after=(0.1, 0.9), at_s=6.0 + phase_s, ends_s=11.0)
    micro = swap.envelope.rate_micro
    start = split_bucket(micro, swap.envelope.burst_micro, [0.886, 0.114])
    run = simulate(swap, Policy("fitted", Adaptation()), start, seed=4, delay=MEASURED)
    soon = [shares for at_s, shares in run.proposed if swap.at_s < at_s <= swap.at_s + 0.15]
    assert len(soon) <= 3
    shares = soon[-1]
    assert shares[1][0] > 0.85 * micro
    assert run.aftermath.drained_s() < 2.0
    assert run.aftermath.back_s() < 3.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_publishers_that_are_all_at_a_broker_with_a_small_share_have_their_promise_from_five_seconds_on(
    seed: int,
) -> None:
    """20 publishers of 10 msg/s, r = 260; their broker has all, and another one where they publish has a floor."""
    rng = np.random.default_rng(seed)
    sent = np.sort((np.arange(150)[:, None] / 10 + rng.uniform(0, 0.1, 20) + rng.uniform(0, 0.01, (150, 20))).ravel())
    arrivals = [np.zeros(0, dtype=np.int64), (sent * SECOND_NS).astype(np.int64)]
    envelope = Envelope(rate_micro=260 * MICRO, burst_micro=25 * MICRO)
    start = [(256 * MICRO, 24 * MICRO), (4 * MICRO, MICRO)]
    run = Reporting(arrivals, envelope, Policy("fitted", Adaptation()), start, declared=[200.0, 0.0])
    run.run(15 * SECOND_NS)
    arrival_ns, due_ns = run.brokers[1].log()
    assert (due_ns < 15 * SECOND_NS).mean() >= 0.99
    later = arrival_ns >= 5 * SECOND_NS
    assert np.percentile((due_ns - arrival_ns)[later], 99) <= 0.02 * SECOND_NS


@pytest.mark.parametrize("burst", [2, 5, 25])
def test_publishers_that_fire_together_have_all_tokens_but_one_from_five_seconds_after_they_moved_together(
    burst: int,
) -> None:
    """20 publishers of 10 msg/s, r = 260, move after 5 s. With b = 2 they would be late in one bucket, too."""
    sent = np.repeat(np.arange(200) * SECOND_NS // 10, 20)
    moved = sent >= 5 * SECOND_NS
    envelope = Envelope(rate_micro=260 * MICRO, burst_micro=burst * MICRO)
    start = [(256 * MICRO, (burst - 1) * MICRO), (4 * MICRO, MICRO)]
    policy = Policy("fitted", Adaptation())
    run = Reporting([sent[~moved], sent[moved]], envelope, policy, start, declared=[200.0, 0.0])
    run.run(20 * SECOND_NS)
    arrival_ns, due_ns = run.brokers[1].log()
    assert len(due_ns) == np.count_nonzero(moved)
    assert (due_ns < 20 * SECOND_NS).mean() >= 0.99
    later = arrival_ns >= 10 * SECOND_NS
    missing = max(0, 20 - (burst - 1))  # tokens, when all fire
    assert np.percentile((due_ns - arrival_ns)[later], 99) <= missing / (0.9 * 260) * SECOND_NS
