"""The modes of the adaptor on demand that shifts for a day (``bench.experiments.steps.demand``): what each delays, and
how many messages it takes for it."""

from __future__ import annotations

from typing import Any

from bench.data.sensors import read_detectors
from bench.experiments.lab.figure import Effort, Experiment, Figure, Panel, Row, Series
from bench.experiments.steps.demand import BROKERS, BURST, PEAK, RATE, DemandOptions, DemandRun, judged, runs_of
from bench.simulation import demand_day as day
from bench.simulation.buckets import ONE_BUCKET

PART_OF_EFFORT = 1 / 3  # of a run's seconds is an hour played in


def figure(effort: Effort) -> Figure:
    options = DemandOptions(seconds=PART_OF_EFFORT * effort.seconds, seed=effort.seed)
    rates = day.demand(read_detectors(), BROKERS, options.hours, PEAK, options.seed)
    runs = []
    for run in runs_of(options, rates):
        effort.step(f"{run.kind}: {run.delay_p99_ms:,.3g} ms at p99")
        runs.append(run)
    length_s = options.hours * options.seconds
    return Figure(
        rows=[_row(run, length_s) for run in runs],
        panels=[_panel(runs, length_s)],
        checks=[*judged(runs).checks],
        conditions=f"{BROKERS} brokers, r = {RATE:,.0f}, b = {BURST:g}; {options.hours} hours, each in "
        f"{options.seconds:g} s",
    )


def _row(run: DemandRun, length_s: float) -> Row:
    row: dict[str, Any] = run.row()
    return {**row, "control_per_s": run.control / length_s}


def _panel(runs: list[DemandRun], length_s: float) -> Panel:
    return Panel(
        title="What a mode delays, and what it says",
        x_label="control messages a second",
        y_label="p99 of access delay (ms, log scale)",
        series=[
            Series(label=run.kind, x=[run.control / length_s], y=[run.delay_p99_ms], marks_only=run.kind == ONE_BUCKET)
            for run in runs
        ],
        slo_ms=None,
    )


EXPERIMENT = Experiment(
    name="modes",
    title="The modes of the adaptor on shifting demand",
    claim="fitted delays least of all modes; docs/adaptation.md says what each does.",
    columns={
        "mode": "kind",
        "messages delayed": "delayed",
        "sum of access delay, s": "delay_sum_s",
        "p99, ms": "delay_p99_ms",
        "left waiting at the end": "left_waiting",
        "tokens unused while messages waited elsewhere": "unused_missed",
        "control messages a second": "control_per_s",
    },
    run=figure,
    runs="one day",
    full=Effort(repetitions=1),
)
