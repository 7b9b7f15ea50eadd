"""The comparison of placements: what is sent where, what is made of it, what makes it fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from bench.experiments.placement import run_all as module
from bench.experiments.placement.run import (
    MCAP,
    PUBLISHERS,
    RESERVED,
    SIDES,
    WORKLOADS,
    PlacementRun,
    Scale,
    Workload,
    run_of,
    shortcomings,
)
from bench.experiments.placement.view import block, draw
from bench.harness.cluster_runs.trace import Trace
from distributor.placement import planner
from distributor.placement.allocation import BrokerCapacity
from srtm.topics.spec import parse_topic_json
from tests.support.run_results import EMPTY, histogram, result, target

RUN = PlacementRun(
    workload="poisson-1", side="lb", brokers=6, assigned=[1000.0, 9000.0], burst=121.0, sent=10, received=10, lost=0,
    duplicates=0, p50_ms=0.5, p99_ms=4.0, p999_ms=6.0, worst_p99_ms=6.0, access_p99_ms=5.5, processing_p99_ms=0.25,
    predicted_access_p99_ms=None, replayed_access_p99_ms=5.25, penalty_sum_ms=2000.0, penalty_mean_ms=0.125,
    penalty_p99_ms=5.0, one_bucket_p99_ms=0.0, lateness_p99_ms=0.1, histogram=EMPTY,
)  # fmt: skip


def trace(*arrivals_ms: float, wait_ms: float = 0.0, took_ms: float = 0.0) -> Trace:
    arrival = np.array([round(at * 1e6) for at in arrivals_ms])
    due = arrival + round(wait_ms * 1e6)
    return Trace(["a"], np.zeros_like(arrival), arrival, due, due, due + round(took_ms * 1e6))


@pytest.mark.parametrize("workload", WORKLOADS.values())
@pytest.mark.parametrize("side", SIDES)
def test_every_placement_of_every_workload_is_a_topic_that_can_be_placed_beside_the_reservations(workload, side):
    offered = [BrokerCapacity(name=f"b{at}", mcap=MCAP, allocated=rate) for at, rate in enumerate(RESERVED)]
    document = module._document(workload, side, 100 * workload.batch, Scale(PUBLISHERS))
    spec = parse_topic_json(document)
    _, placed, _ = planner.place_anew(spec, offered)
    assert placed.state == "placed"
    assert len(placed.brokers) == (6 if side.placement == "lb" else 2)
    assert (spec.publishers.largest_batch, bool(spec.publishers.periodic.all())) == (
        workload.batch,
        workload.process == "periodic",
    )


def test_a_run_is_told_by_its_worst_broker_and_its_penalty_against_one_bucket():
    share = {"rate": 500.0, "burst": 1.0, "rate_assigned": 450.0}
    view = {"rate": 1000.0, "burst": 2.0, "brokers": [{"broker": name, **share} for name in ("x", "y")]}
    measured = {"x": trace(0, 0, wait_ms=2.0, took_ms=0.5), "y": trace(100, took_ms=1.0)}
    targets = [target(p99_ms=p99_ms) for p99_ms in (3.0, 7.0)]
    run = run_of(Workload("poisson", 1), SIDES[0], view, result(targets=targets), measured, 4.0, 3.0)
    assert (run.brokers, run.assigned, run.worst_p99_ms, run.kept) == (2, [450.0, 450.0], 7.0, False)
    assert (run.access_p99_ms, run.processing_p99_ms, run.predicted_access_p99_ms) == (2.0, 1.0, 4.0)
    assert (run.penalty_sum_ms, run.penalty_mean_ms) == (2.0, pytest.approx(2 / 3))  # the second one waits 1 / 500 s
    msgspec.json.encode(run.row())


def test_it_fails_where_a_run_does_not_count_or_loses_or_srtm_costs_more_than_lb():
    fine = [RUN, replace(RUN, side="srtm", penalty_mean_ms=0.01)]
    assert shortcomings(fine) == []
    assert "the generator was late" in shortcomings([RUN, replace(fine[1], reasons=["the generator was late"])])[0]
    assert "3 messages were lost" in shortcomings([replace(RUN, lost=3), fine[1]])[0]
    assert "not below that of lb" in shortcomings([RUN, replace(fine[1], penalty_mean_ms=0.2)])[0]


def test_what_is_written_names_every_run_and_what_does_not_count(tmp_path: Path):
    runs = [RUN, replace(RUN, side="srtm", worst_p99_ms=1.0), replace(RUN, side="conc", reasons=["late"])]
    text = block(runs, Scale(1000, "with 2,000 runs do not count"), 20.0)
    assert "| poisson-1 | 121 | lb | 6 | 1,000, 9,000 | 6 | 5.5 | 5.25 | - | 0 | 0.25 | 2 | 0.125 | broken |" in text
    assert "| kept |" in text
    assert "| does not count |" in text
    assert "poisson-1, conc: late" in text
    assert "1,000 publishers of 10 msg/s in groups of 5 that fire together (with 2,000 runs do not count);" in text
    assert "reserved 7,500, 7,500, 7,000, 7,000, 6,500, 500;" in text
    with_messages = [replace(run, histogram=histogram(1)) for run in runs]
    draw(tmp_path / "p.png", with_messages)
    for name in ("p.png", "p-latencies.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
