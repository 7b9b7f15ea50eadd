"""The DRL penalty of recordings: Proposition 1, one clock, and what a trace says since its share came into force."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.analysis.drl_penalty import Recording, recorded_penalty, recording_of, window_of
from srtm.errors import BadInput

MICRO = 1_000_000


def recording(broker: str, *arrivals_ms: float, rate: float = 500.0, burst: float = 1.0) -> Recording:
    arrival_ns = np.array([round(at * 1e6) for at in arrivals_ms], dtype=np.int64)
    return Recording(
        broker=broker,
        arrival_ns=arrival_ns,
        waited_ns=np.zeros_like(arrival_ns),
        share_micro=(round(rate * MICRO), round(burst * MICRO)),
    )


def trace(*rows: tuple[int, int, int]) -> bytes:
    """(arrival, due, share version)"""
    names = ("arrival_ns", "due_ns", "share_version")
    return json.dumps({name: [row[at] for row in rows] for at, name in enumerate(names)}).encode()


def test_what_waits_under_its_share_and_not_in_one_bucket_is_the_penalty():
    # The second message on x finds one bucket of two tokens with one in it, and its own share of one token empty.
    parts = [recording("x", 0, 0.5, 10), recording("y", 0.6, 9)]
    found = recorded_penalty(parts, 1000 * MICRO, 2 * MICRO)
    assert (found.messages, found.one_mean_ms) == (2, 0)
    assert found.sum_ms == 0
    together = recorded_penalty([recording("x", 0, 0, 10), recording("y", 0, 10)], 1000 * MICRO, 2 * MICRO)
    assert together.messages == 5
    assert together.sum_ms == pytest.approx(2.0 - 1.0)  # a token each 2 ms in a share of half, each 1 ms in the whole


arrivals = st.lists(st.integers(0, 10**8), min_size=2, max_size=40).map(sorted)


@given(arrivals, arrivals, st.integers(1, 99), st.integers(2, 10))
def test_the_sum_is_never_negative(left, right, percent, burst):
    rate = 1000 * MICRO
    part = rate * percent // 100
    one = MICRO + (burst - 2) * MICRO * percent // 100
    shares = [(part, one), (rate - part, burst * MICRO - one)]
    parts = [
        Recording(
            broker=name,
            arrival_ns=np.array([0, *came, 10**8], dtype=np.int64),  # all recorded the same time
            waited_ns=np.zeros(len(came) + 2, dtype=np.int64),
            share_micro=share,
        )
        for name, came, share in zip("xy", (left, right), shares, strict=True)
    ]
    found = recorded_penalty(parts, rate, burst * MICRO)
    assert found.sum_ms >= 0
    assert found.messages == len(left) + len(right) + 4


def test_only_the_time_that_all_recorded_counts():
    found = recorded_penalty([recording("x", 0, 50, 60, 200), recording("y", 40, 90, 100)], 1000 * MICRO, 2 * MICRO)
    assert [(one.broker, one.messages) for one in found.brokers] == [("x", 2), ("y", 3)]
    assert found.seconds == pytest.approx(0.06)
    with pytest.raises(BadInput, match="some time in common"):
        recorded_penalty([recording("x", 0, 1), recording("y", 5, 6)], 1000 * MICRO, 2 * MICRO)


def test_a_broker_that_heard_nothing_and_a_topic_without_traffic_cost_nothing():
    one = recorded_penalty([recording("x", 0, 1, 2, rate=1000, burst=2), recording("y")], 1000 * MICRO, 2 * MICRO)
    assert (one.messages, one.sum_ms, one.p99_ms) == (3, 0, 0)
    assert recorded_penalty([], 1000 * MICRO, 2 * MICRO).messages == 0


def test_a_trace_counts_since_its_share_came_into_force():
    body = trace((0, 5, 1), (10, 10, 2), (12, 12, 1), (20, 25, 3), (30, 40, 0), (25, 45, 3))
    found = recording_of(body, "x", 3, (1, 2))
    assert found.arrival_ns.tolist() == [20, 30, 30]  # the late stamp counts as that of the one before it
    assert found.waited_ns.tolist() == [5, 10, 15]
    assert len(recording_of(trace((0, 5, 1)), "x", 3, (1, 2)).arrival_ns) == 0


@pytest.mark.parametrize("body", [b"", b"[]", b'{"arrival_ns": [1], "due_ns": [], "share_version": []}', b"{}"])
def test_what_is_no_trace_is_refused_with_the_brokers_name(body):
    with pytest.raises(BadInput, match="trace: 'x'"):
        recording_of(body, "x", 1, (1, 1))


def test_a_window_holds_what_was_let_go_lately_under_whichever_shares():
    second = 10**9
    columns = {"arrival_ns": [n * second for n in range(8)], "share_version": [3, 3, 4, 5, 5, 5, 0, 0]}
    trace = json.dumps({**columns, "due_ns": [n * second + 7 for n in range(6)] + [0, 0]}).encode()
    window = window_of(trace, "a", 3.0)
    assert window.arrival_ns.tolist() == [2 * second, 3 * second, 4 * second, 5 * second]
    assert window.waited_ns is not None
    assert (window.waited_ns.tolist(), window.share_micro) == ([7] * 4, None)
    empty = json.dumps({"arrival_ns": [], "due_ns": [], "share_version": []}).encode()
    assert len(window_of(empty, "a", 3.0).arrival_ns) == 0
