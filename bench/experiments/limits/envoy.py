"""Envoy's rate limit service v3 under the stock gRPC client: how many calls, and how late answers are at each rate."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import trio

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check, at_most
from bench.limit_cluster.envoy_service import measure
from bench.limit_peers.servers import environment

CALLS_A_SECOND, P99_MS = 3_000, 5.0  # to reach
ALWAYS_OPEN = 0
RATES = (500, 1_000, 2_000, CALLS_A_SECOND)
SECONDS = 10.0
NUMBERS = ("per_second", "p50_ms", "p99_ms", "cpu_us", "wrong")


def figure(effort: Effort) -> Figure:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(effort.repetitions):
            found = trio.run(measure, Path(folder) / str(number), SECONDS, (ALWAYS_OPEN, *RATES))
            rows += [one._asdict() for one in found]
            effort.step(f"round {number + 1}: {found[0].per_second:,.0f} calls/s, p99 {found[-1].p99_ms:.2f} ms")
    rows = middle(rows)
    return Figure(
        rows=rows,
        panels=[_panel(rows)],
        checks=checks(rows),
        conditions=f"{', '.join(environment())}; loads of {SECONDS:g} s, one after the other; the client is Python "
        "too, on the same processors; latencies count from the instants when calls were due",
    )


def middle(rows: Sequence[Row]) -> list[Row]:
    """Of each load the medians of all rounds; what was wrong in all of them together."""
    found = []
    for rate in dict.fromkeys(one["rate"] for one in rows):
        same = [one for one in rows if one["rate"] == rate]
        asked = "64 always open" if rate == ALWAYS_OPEN else f"{rate:,}/s, evenly"
        medians = {name: median(one[name] for one in same) for name in NUMBERS}
        found.append({"asked": asked, "rate": rate, **medians, "wrong": sum(one["wrong"] for one in same)})
    return found


def checks(rows: Sequence[Row]) -> list[Check]:
    by = {one["rate"]: one for one in rows}
    most = by[ALWAYS_OPEN]["per_second"]
    return [
        Check("calls, 64 always open", f"{most:,.0f}/s", f"at least {CALLS_A_SECOND:,}/s", kept=most >= CALLS_A_SECOND),
        at_most(f"p99 at {CALLS_A_SECOND:,}/s", by[CALLS_A_SECOND]["p99_ms"], P99_MS, "ms"),
        at_most("wrong or missing answers", sum(one["wrong"] for one in rows), 0, "calls"),
    ]


def _panel(rows: Sequence[Row]) -> Panel:
    due = [one for one in rows if one["rate"] != ALWAYS_OPEN]
    rates = [float(one["rate"]) for one in due]
    names = {"p50": "p50_ms", "p99": "p99_ms"}
    series = [Series(label=label, x=rates, y=[one[key] for one in due]) for label, key in names.items()]
    return Panel(title="Latency", x_label="calls a second", y_label="ms (log scale)", series=series, slo_ms=P99_MS)


EXPERIMENT = Experiment(
    name="envoy",
    title="Envoy's rate limit service",
    claim=f"The stock gRPC client gets the right answer to every call, at least {CALLS_A_SECOND:,} in a second. At "
    f"that rate 99 % of the answers come within {P99_MS:g} ms.",
    columns={
        "asked": "asked",
        "calls/s": "per_second",
        "p50, ms": "p50_ms",
        "p99, ms": "p99_ms",
        "processor time of the service for a call, us": "cpu_us",
        "wrong or missing": "wrong",
    },
    run=figure,
    how="Measured",
    runs="{repetitions} rounds, medians",
    sources=("limiting", "bench/limit_cluster", "bench/limit_peers", "bench/experiments/limits", "srtm"),
    full=Effort(seconds=0.0, repetitions=3),
)
