"""What ``srtm bench placement`` found: a table for people and documents, and two pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from bench.experiments.placement.run import PERCENTILE, PROMISE_MS, PlacementRun, Scale
from bench.harness.results.document import markdown_table
from bench.harness.results.plot import COLOURS, Promise, curve_of_histogram, draw_latencies, figure

BLOCK = "placement"
PROMISE = Promise(PERCENTILE / 100, PROMISE_MS)
LOWEST_MS = 0.01  # of a logarithmic axis: what is below stands on it
CLAIM = (
    "{publishers:,} publishers of 10 msg/s in groups of 5 that fire together{why}; r 10 % above their load, b the "
    "smallest without access delay (p99) in one bucket, over ten minutes of the process and over the part of them that "
    "is sent; six brokers of {mcap:,.0f} msg/s, of which silent topics have reserved {reserved}; {service_us:g} us of "
    "laboratory service time a message; promise p99 <= 5 ms; {seconds:g} s a run. Times are in ms, delays those of the "
    'worst broker; lb to srtm split the bucket by rate. "one bucket": what the recorded arrivals wait in one (r, b); '
    'above 0 where they did not come at the instants at which they were meant to. "planned": by the plan, before '
    'anything is sent, from 20 s or less of the same process with other phases. "replayed": by the rule of the bucket, '
    "from the instants at which messages were meant to be sent."
)
COLUMNS = (
    "workload",
    "b",
    "placement",
    "brokers",
    "msg/s of each",
    "p99 end to end",
    "p99 access",
    "replayed",
    "planned",
    "one bucket",
    "p99 processing",
    "DRL penalty, sum, s",
    "a message",
    "promise",
)


def claim_of(scale: Scale, seconds: float) -> str:
    """``seconds``: measured in a run."""
    return CLAIM.format(
        publishers=scale.publishers,
        why=f" ({scale.why})" if scale.why else "",
        seconds=seconds,
        mcap=scale.mcap,
        reserved=", ".join(f"{rate:,.0f}" for rate in scale.reserved),
        service_us=scale.service_us,
    )


def block(runs: Sequence[PlacementRun], scale: Scale, seconds: float) -> str:
    """The text between the markers of the document."""
    pictures = [f"![Delays and penalties](img/{BLOCK}.png)", f"![Latencies](img/{BLOCK}-latencies.png)"]
    spoilt = [f"{run.workload}, {run.side}: {reason}" for run in runs for reason in run.reasons]
    notes = [f"Runs that do not count: {'; '.join(spoilt)}."] if spoilt else []
    return "\n\n".join([claim_of(scale, seconds), table(runs), *notes, *pictures])


def table(runs: Sequence[PlacementRun]) -> str:
    return markdown_table(list(COLUMNS), [_cells(run) for run in runs])


def _cells(run: PlacementRun) -> list[str]:
    return [
        run.workload,
        f"{run.burst:,.0f}",
        run.side,
        f"{run.brokers}",
        ", ".join(f"{rate:,.0f}" for rate in run.assigned),
        f"{run.worst_p99_ms:.3g}",
        f"{run.access_p99_ms:.3g}",
        f"{run.replayed_access_p99_ms:.3g}",
        "-" if run.predicted_access_p99_ms is None else f"{run.predicted_access_p99_ms:.3g}",
        f"{run.one_bucket_p99_ms:.3g}",
        f"{run.processing_p99_ms:.3g}",
        f"{run.penalty_sum_ms / 1e3:.4g}",
        f"{run.penalty_mean_ms:.3g}",
        "does not count" if run.reasons else "kept" if run.kept else "broken",
    ]


def draw(path: Path, runs: Sequence[PlacementRun]) -> None:
    """``path``: delays and penalties side by side; beside it ``...-latencies.png``, a panel for each workload."""
    with figure(path, 11.5, 4.2) as drawing:
        left, right = drawing.subplots(1, 2)
        _bars(left, runs, lambda run: run.access_p99_ms, "p99 access delay, worst broker (ms)")
        _bars(right, runs, lambda run: run.penalty_mean_ms, "DRL penalty, mean a message (ms)")
        left.axhline(PROMISE.latency_ms, color="#222222", linewidth=1.2, linestyle=":")
        left.legend(loc="upper left", ncols=2, fontsize=9)
    workloads = _workloads(runs)
    lines = -(-len(workloads) // 2)
    with figure(path.with_name(f"{path.stem}-latencies.png"), 11.5, 4.4 * lines) as drawing:
        axes = drawing.subplots(lines, 2, squeeze=False).ravel()
        for one, workload in zip(axes, workloads, strict=False):
            here = [run for run in runs if run.workload == workload]
            curves = [curve_of_histogram(run.side, run.histogram, COLOURS[i]) for i, run in enumerate(here)]
            draw_latencies(one, curves, PROMISE, workload)
        for empty in axes[len(workloads) :]:
            empty.set_axis_off()


def _workloads(runs: Sequence[PlacementRun]) -> list[str]:
    return list(dict.fromkeys(run.workload for run in runs))


def _bars(axes: Axes, runs: Sequence[PlacementRun], of: Callable[[PlacementRun], float], label: str) -> None:
    """A cluster of bars for each workload; logarithmic, and what is nothing has no bar but its figure."""
    workloads = _workloads(runs)
    sides = list(dict.fromkeys(run.side for run in runs))
    width = 0.8 / len(sides)
    for number, side in enumerate(sides):
        values = [of(run) for run in runs if run.side == side]
        places = [at + (number - (len(sides) - 1) / 2) * width for at in range(len(workloads))]
        axes.bar(places, [max(value, LOWEST_MS) for value in values], width, color=COLOURS[number], label=side)
        for place, value in zip(places, values, strict=True):
            text = "0" if value < LOWEST_MS / 10 else f"{value:.2g}" if value < 10 else f"{value:,.0f}"
            at = (place, max(value, LOWEST_MS))
            axes.annotate(text, at, (0, 2), textcoords="offset points", ha="center", fontsize=7, rotation=60)
    axes.set_yscale("log")
    axes.set_ylim(LOWEST_MS, 20 * max([LOWEST_MS, *(of(run) for run in runs)]))
    axes.set_xticks(range(len(workloads)), workloads)
    axes.grid(visible=False, axis="x")
    axes.set_title(label)
