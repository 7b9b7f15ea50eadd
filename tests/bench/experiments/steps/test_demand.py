"""``srtm bench demand`` on a short morning, and its verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from bench.experiments.steps.demand import KINDS, DemandOptions, DemandRun, demand, judged, markdown
from bench.simulation.buckets import ONE_BUCKET


def of(kind: str, delay_sum_s: float, delay_p99_ms: float) -> DemandRun:
    return DemandRun(
        kind=kind,
        messages=1_000,
        delayed=10,
        delay_sum_s=delay_sum_s,
        delay_p99_ms=delay_p99_ms,
        left_waiting=0,
        unused_missed=3.0,
        control=7,
        conforms=True,
    )


RUNS = [of("static", 9.0, 9.0), of("proportional", 2.0, 3.0), of("fitted", 1.0, 2.0), of(ONE_BUCKET, 0.5, 0.5)]


def test_fitted_is_judged_against_the_other_modes_and_not_against_the_one_bucket() -> None:
    assert judged(RUNS).reached
    worse = judged([*RUNS[:2], of("fitted", 2.5, 2.0), RUNS[-1]])
    assert not worse.reached
    assert "2 s (proportional)" in worse.line


def test_a_run_that_let_more_go_than_the_envelope_spoils_the_verdict() -> None:
    verdict = judged([replace(RUNS[0], conforms=False), *RUNS[1:]])
    assert not verdict.valid
    assert "static" in verdict.line


def test_the_table_has_a_row_for_each_run() -> None:
    rows = markdown(RUNS).splitlines()
    assert rows[2] == "| static | 10 (1 %) | 9 | 9 | 0 | 3 | 7 |"
    assert len(rows) == 2 + len(RUNS)


def test_two_hours_of_a_night_run_under_every_mode_and_conform(tmp_path: Path) -> None:
    file = tmp_path / "demand.json"
    said: list[str] = []
    verdict = demand(DemandOptions(hours=2, seconds=1.0, json_file=str(file)), said.append)
    assert verdict.valid
    assert [run["kind"] for run in verdict.runs] == [*KINDS, ONE_BUCKET]
    assert len({run["messages"] for run in verdict.runs}) == 1
    by_kind = {run["kind"]: run for run in verdict.runs}
    assert by_kind["static"]["control"] == 0
    assert all(by_kind[kind]["control"] for kind in KINDS if kind != "static")
    assert msgspec.json.decode(file.read_bytes())["command"] == "bench demand"
    assert verdict.line in said[-1]
