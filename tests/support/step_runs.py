"""A run of a step of traffic that is as it should be, made up."""

from __future__ import annotations

from bench.experiments.steps.run import STEPS, StepRun

RUN = StepRun(
    step=STEPS["50-10"].name,
    mode="fitted",
    number=0,
    drained_s=1.2,
    back_s=2.2,
    worst_p99_ms=2.0,
    before_p99_ms=1.8,
    late_p99_ms=0.1,
    messages=100,
    before_s=6.0,
    watched_s=8.0,
    seed=1,
    commit="c0ffee",
    sources="5eed",
)
