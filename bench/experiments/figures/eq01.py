"""Eq. (1): the mean access delay of independent Poisson messages, M/D/1's tail by the formula, against the exact
bucket."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check, within
from bench.simulation.brokers import Ints
from bench.simulation.traffic import Fleet
from srtm.token_bucket.poisson import exact_mean_delay_s, mean_delay_s
from srtm.token_bucket.replay import access_delays
from srtm.units import MICRO

LOAD, RATE = 10_000, 11_000  # msg/s
BURSTS = (1, 2, 5, 10, 25)
MEAN_TIMES = 60  # the mean of a rare delay needs that much more traffic than a percentile


def figure(effort: Effort) -> Figure:
    rows = [_mean_row(burst, effort) for burst in BURSTS]
    return Figure(
        rows=rows,
        panels=[_panel(rows)],
        checks=_mean_checks(rows),
        conditions=f"{MEAN_TIMES} times longer traffic; {LOAD:,} Poisson msg/s, r = {RATE:,}; b in the rows",
    )


def _mean_row(burst: int, effort: Effort) -> Row:
    effort.step(f"Eq. (1), b = {burst}")
    fleet = Fleet(count=LOAD // 10)
    sums, counts = 0, 0
    for seed in effort.seeds():
        delays = access_delays(arrivals(fleet, MEAN_TIMES * effort.seconds, seed), RATE * MICRO, burst * MICRO)
        sums, counts = sums + int(delays.sum()), counts + len(delays)
    return {
        "burst": burst,
        "formula_ms": 1_000 * mean_delay_s(LOAD, RATE, burst),
        "exact_ms": 1_000 * exact_mean_delay_s(LOAD, RATE, burst),
        "simulated_ms": sums / counts / 1e6,
        "messages": counts,
    }


def arrivals(fleet: Fleet, seconds: float, seed: int) -> Ints:
    everybody = np.zeros(fleet.count, dtype=np.int64)
    return fleet.arrivals(everybody, 1, seconds, np.random.default_rng([seed, 0xE]))[0]


def _mean_checks(rows: Sequence[Row]) -> list[Check]:
    """Exact for b = 1; within 5 % for b = 5 and 25."""
    close = {1: 0.02, 5: 0.05, 25: 0.05}
    return [
        within(
            f"mean access delay, b = {row['burst']}", row["simulated_ms"], row["formula_ms"], close[row["burst"]], "ms"
        )
        for row in rows
        if row["burst"] in close
    ]


def _panel(rows: Sequence[Row]) -> Panel:
    bursts = [row["burst"] for row in rows]
    return Panel(
        title="Eq. (1): mean access delay",
        x_label="burst b (messages)",
        y_label="mean access delay (ms, log scale)",
        series=[
            Series(label="exact bucket", x=bursts, y=[row["simulated_ms"] for row in rows]),
            Series(label="Eq. (1)", x=bursts, y=[row["formula_ms"] for row in rows], marks_only=True),
        ],
        slo_ms=None,
    )


EXPERIMENT = Experiment(
    name="eq01",
    title="Eq. (1) on the exact bucket",
    claim="The mean access delay follows Eq. (1): exactly for b = 1, within 5 % for b = 5 and 25.",
    columns={
        "b": "burst",
        "Eq. (1), ms": "formula_ms",
        "exactly, ms": "exact_ms",
        "simulated, ms": "simulated_ms",
        "messages": "messages",
    },
    run=figure,
)
