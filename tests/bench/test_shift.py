"""The simulation against the plain bucket, and the policies on traffic that moves (a small topic, for speed)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptor.observed import Shares
from adaptor.policy import Policy
from bench.shift import BIN_NS, Shift, SimulatedBroker, simulate
from srtm.adaptation import Adaptation, Mode
from srtm.bucket import Bucket, conforms_due
from srtm.replay import NEVER_NS
from srtm.splitting import MICRO, split_bucket

SMALL = Shift(load=2_000.0, rate=2_200.0, burst=25.0, at_s=8.0, ends_s=22.0)


def even(shift: Shift) -> Shares:
    return split_bucket(shift.envelope.rate_micro, shift.envelope.burst_micro, [1.0, 1.0])


@given(
    st.lists(st.integers(0, 3 * BIN_NS), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 20)), min_size=4, max_size=4),
)
def test_a_simulated_broker_lets_go_when_the_plain_bucket_does(
    arrivals: list[int], shares: list[tuple[int, int]]
) -> None:
    """Changes come at the ends of bins; a message that has not gone by then is re-timed."""
    arrivals = sorted(arrivals)
    parameters = [(rate * MICRO, burst * MICRO) for rate, burst in shares]
    broker = SimulatedBroker(np.array(arrivals, dtype=np.int64), parameters[0])
    plain = Bucket(*parameters[0], at_ns=0)
    due: list[int | None] = []
    coming = list(arrivals)
    for number, share in enumerate(parameters[1:], start=1):
        until_ns = number * BIN_NS
        broker.run(until_ns)
        while coming and coming[0] < until_ns:
            due.append(plain.take(1, coming.pop(0)))
        still = plain.set(*share, at_ns=until_ns)
        due[len(due) - len(still) :] = still
        broker.set(share)
    broker.run(10**13)
    due += [plain.take(1, at_ns) for at_ns in coming]
    assert broker.log()[1].tolist() == [NEVER_NS if one is None else one for one in due]


@pytest.mark.parametrize("mode", ["proportional", "fitted"])
def test_over_every_interval_no_more_than_the_envelope_is_let_go_while_shares_change(mode: Mode) -> None:
    run = simulate(SMALL, Policy(mode, Adaptation(window_s=1.0)), even(SMALL), seed=1)
    due = np.sort(np.concatenate(run.aftermath.due_ns))
    assert run.in_force
    assert conforms_due(due.tolist(), SMALL.envelope.rate_micro, SMALL.envelope.burst_micro) is None
    for shares in run.in_force:
        assert sum(rate for rate, _ in shares) == SMALL.envelope.rate_micro
        assert sum(burst for _, burst in shares) == SMALL.envelope.burst_micro


def test_fitted_is_back_soon_proportional_later_and_static_never() -> None:
    found = {
        mode: simulate(SMALL, Policy(mode, Adaptation(window_s=2.0)), even(SMALL), seed=2)
        for mode in ("static", "proportional", "fitted")
    }
    assert found["fitted"].aftermath.drained_s() < 2.0
    assert found["fitted"].aftermath.back_s() <= 3.0 < found["proportional"].aftermath.back_s()
    assert found["static"].aftermath.back_s() == float("inf")
    assert found["static"].aftermath.drained_s() == float("inf")


def test_fitted_says_little_before_the_shift_and_nothing_long_after() -> None:
    run = simulate(SMALL, Policy("fitted", Adaptation()), even(SMALL), seed=3)
    times = [at_s for at_s, _ in run.proposed]
    assert sum(at_s < SMALL.at_s for at_s in times) <= 8
    assert sum(SMALL.at_s <= at_s < SMALL.at_s + 1 for at_s in times) >= 3
    assert sum(at_s > SMALL.ends_s - 3 for at_s in times) <= 1
