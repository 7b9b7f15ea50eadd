"""A plan beside real minutes: what the topic is, what counts, and that the claim can fail."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from bench.experiments.promises import plan_minutes
from bench.experiments.promises.plan_minutes import (
    SENSORS,
    SLO_MS,
    Case,
    Minute,
    checks,
    document_of,
    minute_of,
    overlaps,
    row,
)
from bench.harness.cluster_runs.trace import Trace
from srtm.topics.spec import parse_topic_json

CASE = Case(slack=1.1, burst="auto")
PLAN = {"burst": 100.0, "promise": {"kept": {"chance": 0.97, "low": 0.95, "high": 0.98}}}
KEPT, BROKEN = Minute(worst_ms=SLO_MS, reasons=[]), Minute(worst_ms=SLO_MS + 0.1, reasons=[])


def trace(delays_ms: list[float]) -> Trace:
    arrival = np.arange(len(delays_ms), dtype=np.int64)
    due = arrival + np.array([round(one * 1e6) for one in delays_ms], dtype=np.int64)
    return Trace(["p"], np.zeros_like(arrival), arrival, due, due, due)


def test_sensors_close_together_are_a_group_of_the_topic() -> None:
    publishers = parse_topic_json(document_of(CASE, seed=1)).publishers
    assert len(publishers) == SENSORS
    sizes = Counter(publishers.group_names[at] for at in publishers.groups.tolist())
    assert 10 < len(sizes) < SENSORS / 2
    assert document_of(CASE, seed=1) != document_of(CASE, seed=2)


def test_the_latest_broker_decides_but_not_one_with_few_messages() -> None:
    late, early, few = trace([0.0] * 490 + [7.0] * 10), trace([0.0] * 500), trace([50.0] * 9)
    traces = [early, late, few]
    found = minute_of([], np.concatenate([one.arrival_ns for one in traces]), traces, rate=1_000.0)
    assert (found.worst_ms, found.kept, found.reasons) == (7.0, False, [])


def test_a_minute_that_the_machine_bunched_says_nothing() -> None:
    meant_ns, came = np.arange(1_000) * 1_000_000, trace([0.0] * 1_000)  # 1,000/s; all within 1 us
    assert minute_of([], meant_ns, [came], rate=1_000.0).reasons == [
        "bunched: 985 tokens for what arrived, 1 for what was meant"
    ]
    assert minute_of(["late"], came.arrival_ns, [came], rate=1_000.0).reasons == ["late"]


def test_minutes_that_say_nothing_are_left_out_and_counted() -> None:
    found = row(CASE, PLAN, 2, [KEPT, BROKEN, Minute(worst_ms=99.0, reasons=["late"])])
    assert (found["minutes"], found["kept"], found["left_out"]) == (2, 1, 1)


@pytest.mark.parametrize(("kept", "broken", "expected"), [(20, 0, True), (10, 10, False), (0, 0, False)])
def test_the_claim_can_fail(kept: int, broken: int, expected: bool) -> None:
    found = row(CASE, PLAN, 2, [KEPT] * kept + [BROKEN] * broken)
    assert overlaps(found) is expected
    assert [check.kept for check in checks([found])] == [expected]


def test_the_column_names_are_those_of_rows() -> None:
    found: dict[str, Any] = row(CASE, PLAN, 2, [KEPT])
    assert set(plan_minutes.EXPERIMENT.columns.values()) == set(found)
