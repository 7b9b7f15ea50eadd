from __future__ import annotations

import numpy as np
import pytest

from bench.harness.cluster_runs.recovery import SECOND_NS, Aftermath, Ints


def instants(seconds: list[float]) -> Ints:
    return (np.array(seconds) * SECOND_NS).astype(np.int64)


def after(delays_s: list[float]) -> Aftermath:
    """A message every 10 ms for 20 s, delayed as the function of its second says; the change is at 10 s."""
    arrival = np.arange(0.0, 20.0, 0.01)
    delay = np.array([delays_s[int(at)] for at in arrival])
    due = np.maximum.accumulate(arrival + delay)  # first come, first served
    return Aftermath([instants(arrival.tolist())], [instants(due.tolist())], 10 * SECOND_NS, 20 * SECOND_NS)


def test_it_is_drained_when_as_few_wait_as_before_and_back_a_second_later() -> None:
    seen = after([0.02] * 10 + [0.5, 0.3] + [0.02] * 8)
    assert seen.drained_s() == pytest.approx(2.3, abs=0.1)
    assert seen.back_s() == pytest.approx(3.3, abs=0.11)


def test_what_never_ends_is_infinite() -> None:
    seen = after([0.02] * 10 + [0.5] * 10)
    assert seen.drained_s() == float("inf")
    assert seen.back_s() == float("inf")


def test_where_nothing_happens_it_is_over_at_once() -> None:
    seen = after([0.02] * 20)
    assert seen.drained_s() < 0.1
    assert seen.back_s() == 1.0


def test_the_worst_broker_counts() -> None:
    fine, late = after([0.02] * 20), after([0.08] * 20)
    both = Aftermath([*fine.arrival_ns, *late.arrival_ns], [*fine.due_ns, *late.due_ns], fine.at_ns, fine.ends_ns)
    assert both.worst_p99_ms(12 * SECOND_NS) == pytest.approx(80, abs=0.1)


def test_what_came_after_the_calm_is_not_compared_with() -> None:
    disturbed = after([0.02] * 9 + [0.3] + [0.02] * 10)
    calm = Aftermath(
        disturbed.arrival_ns, disturbed.due_ns, disturbed.at_ns, disturbed.ends_ns, 5 * SECOND_NS, 9 * SECOND_NS
    )
    assert disturbed.before_p99_ms() == pytest.approx(300, abs=1)
    assert calm.before_p99_ms() == pytest.approx(20, abs=1)
    assert disturbed.back_s() == 1.0 < calm.back_s()
