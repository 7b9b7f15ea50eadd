"""The modes of the adaptor on a short night, and what decides between them."""

from __future__ import annotations

from dataclasses import replace

from bench.experiments.figures.modes import KINDS, ModeRun, checks, runs_of
from bench.simulation.buckets import ONE_BUCKET


def of(kind: str, delay_sum_s: float, delay_p99_ms: float) -> ModeRun:
    return ModeRun(
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
    assert all(check.kept for check in checks(RUNS))
    worse, *others = checks([*RUNS[:2], of("fitted", 2.5, 2.0), RUNS[-1]])
    assert not worse.kept
    assert "2 s (proportional)" in worse.bound
    assert all(check.kept for check in others)


def test_a_mode_that_lets_more_go_than_the_envelope_is_found() -> None:
    assert [check.kept for check in checks([replace(RUNS[0], conforms=False), *RUNS[1:]])] == [True, True, False]


def test_two_hours_of_a_night_run_under_every_mode_and_conform() -> None:
    runs = list(runs_of(hours=2, hour_s=1.0, seed=1))
    assert [run.kind for run in runs] == [*KINDS, ONE_BUCKET]
    assert len({run.messages for run in runs}) == 1
    assert all(run.conforms for run in runs)
    assert all((run.control > 0) is (run.kind not in ("static", ONE_BUCKET)) for run in runs)
