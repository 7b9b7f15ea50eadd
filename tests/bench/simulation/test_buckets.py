"""Simulated brokers against the plain bucket, and where their tokens go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adaptor.observations import Bin, Shares
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from bench.simulation.buckets import BIN_NS, SimulatedBroker, Stepped
from srtm.token_bucket.bucket import TOKEN, Bucket
from srtm.token_bucket.replay import NEVER_NS
from srtm.units import MICRO


class Unmoved(Stepped):
    """Keeps the bins that it is told."""

    def __init__(self, arrivals_ns: Sequence[Ints], start: Shares) -> None:
        super().__init__(arrivals_ns, start)
        self.bins: dict[int, list[Bin]] = {}  # {their end, ns: one of each broker}

    def _slot_over(self, now_ns: int, came: list[int]) -> None:
        pass

    def _bin_over(self, now_ns: int, bins: list[Bin]) -> None:
        self.bins[now_ns] = bins


@given(
    st.lists(st.integers(0, 3 * BIN_NS), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 20)), min_size=4, max_size=4),
)
@example([0, 200_000_001], [(1, 1), (1, 1), (9, 1), (1, 1)])  # tokens come before the first message of a portion does
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


def test_a_token_that_no_message_took_spills_once_the_bucket_is_full() -> None:
    broker = SimulatedBroker(np.array([0, 0, BIN_NS], dtype=np.int64), (100 * MICRO, 5 * MICRO))
    broker.run(SECOND_NS)
    assert broker.spilled == (100 - 3) * TOKEN


def test_tokens_that_a_shrink_clamps_off_are_spilled() -> None:
    broker = SimulatedBroker(np.zeros(0, dtype=np.int64), (100 * MICRO, 5 * MICRO))
    broker.set((100 * MICRO, 2 * MICRO))
    assert broker.spilled == 3 * TOKEN


def test_tokens_are_missed_only_while_messages_wait_on_another_broker() -> None:
    """Fifteen wait for ten a second each; the other spills its own ten a second."""
    came = np.zeros(16, dtype=np.int64)
    idle = np.zeros(0, dtype=np.int64)
    run = Unmoved([came, idle], [(10 * MICRO, MICRO), (10 * MICRO, MICRO)])
    run.run(3 * SECOND_NS)
    assert run.brokers[0].waiting == 0
    assert 14 * TOKEN <= run.missed <= 15 * TOKEN
    assert run.bins[BIN_NS][0].arrivals == 16
    assert run.bins[2 * BIN_NS][0] == Bin(arrivals=0, waiting=15, work=pytest.approx(15, abs=1))


def test_a_run_goes_on_from_where_it_was() -> None:
    came = np.arange(0, SECOND_NS, SECOND_NS // 40)
    whole, parts = (Unmoved([came], [(30 * MICRO, 2 * MICRO)]) for _ in range(2))
    whole.run(2 * SECOND_NS)
    parts.run(SECOND_NS // 3)
    parts.run(2 * SECOND_NS)
    assert parts.bins == whole.bins
    assert parts.brokers[0].log()[1].tolist() == whole.brokers[0].log()[1].tolist()
