"""What the demo shows: two placements of one topic side by side, as tables, as one picture, as flat rows for JSON."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.data.sensors import read_detectors
from bench.demo.placement_result import BrokerPart, Side
from bench.harness.results.plot import (
    COLOURS,
    Curve,
    Places,
    Promise,
    curve_of_histogram,
    draw_latencies,
    draw_places,
    figure,
)
from srtm.console.tables import PeopleTable

COLOUR = {"lb": COLOURS[1], "srtm": COLOURS[0]}
DOCUMENT_COLUMNS = 80
_UNITS = (
    "together: the most that fire at one instant; r_l in msg/s, b_l in messages; p99 in ms: "
    "access delay, and end to end"
)
MEANING = {"lb": "spread evenly over all", "srtm": "placed by SRTM"}


def show(console: Console, sides: Sequence[Side], promise: Promise) -> None:
    console.print(_placement_table(sides))
    console.print(_UNITS)
    console.print(_outcome_table(sides, promise))


def plain(sides: Sequence[Side], promise: Promise) -> str:
    """The tables as text for a document."""
    console = Console(file=io.StringIO(), width=DOCUMENT_COLUMNS, record=True)
    show(console, sides, promise)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    return "```text\n" + "\n".join(lines) + "\n```"


def draw(path: Path, sides: Sequence[Side], promise: Promise) -> None:
    """One picture: latency distributions against the promise, and where the publishers went."""
    curves = [_curve(side) for side in sides]
    with figure(path, 11.5, 6.0) as drawing:
        grid = drawing.add_gridspec(2, 2, width_ratios=(1.45, 1.0))
        draw_latencies(drawing.add_subplot(grid[:, 0]), curves, promise, "Publisher to subscriber, measured end to end")
        for row, side in enumerate(sides):
            draw_places(drawing.add_subplot(grid[row, 1]), _places(side))


def _curve(side: Side) -> Curve:
    label = f"{side.placement}: {MEANING[side.placement]}\n{side.brokers} brokers, p99 {side.p99_ms:.1f} ms"
    return curve_of_histogram(label, side.histogram, COLOUR[side.placement], dashed=side.placement == "lb")


def _places(side: Side) -> Places:
    detectors, brokers = read_detectors(), [part.broker for part in side.parts]
    return Places(
        title=f"{side.placement}: {MEANING[side.placement]}",
        latitude=[detector.latitude for detector in detectors],
        longitude=[detector.longitude for detector in detectors],
        broker=[brokers.index(name) for name in side.places],
        brokers=brokers,
    )


def _placement_table(sides: Sequence[Side]) -> PeopleTable:
    return PeopleTable(
        title="Where the publishers went",
        columns=("", "broker", "publishers", "together", "r_l", "b_l", "access p99", "p99"),
        rows=[[side.placement, part.broker, *_part_cells(part)] for side in sides for part in side.parts],
        left=2,
    )


def _part_cells(part: BrokerPart) -> list[str]:
    if not part.publishers:
        return ["0", *["-"] * 5]
    numbers = [f"{part.rate:,.1f}", f"{part.burst:.1f}", f"{part.access_p99_ms:.2f}", f"{part.p99_ms:.2f}"]
    return [f"{part.publishers}", f"{part.together}", *numbers]


def _outcome_table(sides: Sequence[Side], promise: Promise) -> PeopleTable:
    return PeopleTable(
        title="What came of it",
        columns=("", *(f"{side.placement} ({side.brokers} brokers)" for side in sides)),
        rows=[[name, *cells] for name, cells in _outcome_rows(sides, promise)],
        left=1,
    )


def _outcome_rows(sides: Sequence[Side], promise: Promise) -> list[tuple[str, list[str]]]:
    percent = f"p{100 * promise.share:g}"
    milliseconds = [
        ("end to end p50, ms", [side.p50_ms for side in sides]),
        ("end to end p95, ms", [side.p95_ms for side in sides]),
        ("end to end p99, ms", [side.p99_ms for side in sides]),
        ("end to end p99, worst broker, ms", [side.worst_p99_ms for side in sides]),
        ("access delay p99, all brokers, ms", [side.access_p99_ms for side in sides]),
        ("access delay p99, worst broker, ms", [side.access_worst_p99_ms for side in sides]),
        ("access delay p99 in one bucket, ms", [side.one_bucket_p99_ms for side in sides]),
        ("DRL penalty, mean a message, ms", [side.penalty_ms for side in sides]),
        ("generator's lateness p99, ms", [side.lateness_p99_ms for side in sides]),
    ]
    return [
        ("messages sent", [f"{side.sent:,}" for side in sides]),
        ("received / lost", [f"{side.received:,} / {side.lost}" for side in sides]),
        *((name, [f"{value:.2f}" for value in values]) for name, values in milliseconds),
        (f"promise: {percent} <= {promise.latency_ms:g} ms", [_verdict(side, promise) for side in sides]),
    ]


def _verdict(side: Side, promise: Promise) -> str:
    return "kept" if side.kept(promise) else "broken"
