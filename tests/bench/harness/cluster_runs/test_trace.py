"""A broker's trace as columns."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.harness.cluster_runs.trace import decode_trace
from bench.harness.results.intervals import percentile_ms
from srtm.errors import PeerError

ANSWER = {
    "publishers": ["a", "b"],
    "publisher": [0, 1, 0],
    "arrival_ns": [10, 20, 30],
    "due_ns": [10, 25, 35],
    "released_ns": [11, 27, 35],
    "sent_ns": [12, 28, 0],
    "share_version": [1, 1, 2],
}


def test_delays_and_lateness_are_differences_of_columns() -> None:
    trace = decode_trace(json.dumps(ANSWER).encode())
    assert len(trace) == 3
    assert trace.access_ns.tolist() == [0, 5, 5]
    assert trace.lateness_ns.tolist() == [1, 2, 0]


def test_a_trace_since_an_instant_keeps_what_arrived_at_it_or_later() -> None:
    assert decode_trace(json.dumps(ANSWER).encode()).since(20).due_ns.tolist() == [25, 35]


@pytest.mark.parametrize("body", [b"", b"[]", json.dumps({**ANSWER, "due_ns": ["x"]}).encode()])
def test_an_answer_that_is_no_trace_is_the_brokers_fault(body: bytes) -> None:
    with pytest.raises(PeerError, match="no trace"):
        decode_trace(body)


def test_a_percentile_is_a_delay_that_occurred_and_zero_of_none() -> None:
    assert percentile_ms(np.arange(1, 101, dtype=np.int64) * 1_000_000, 99) == 99.0
    assert percentile_ms(np.zeros(0, dtype=np.int64), 99) == 0.0
