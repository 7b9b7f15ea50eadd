"""What ``srtm bench peers`` leaves behind: a table of what each system promises, one of what it takes, a picture."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from bench.comparisons.peers.load_points import FIGURES, Outcome, Point
from bench.harness.results.page import Items, Page, Picture
from bench.harness.results.page import Table as PageTable
from bench.harness.results.panels import Panel, Series, draw
from bench.harness.results.provenance import Origin
from bench.harness.results.sources import PRODUCT
from bench.harness.systems.systems import OURS

PICTURE = "peers.png"
CLAIM = "Our broker was measured at every load and lost nothing; the others take the same load in turns."
TERMINAL = ("msg/s", "system", "p50", "p99", "p99.9", "CPU us", "MiB", "late", "lost", "runs")
PANELS = {"p50_ms": "p50, ms", "p99_ms": "p99, ms", "p999_ms": "p99.9, ms", "cpu_us": "server's CPU a message, us"}


def page_of(outcome: Outcome, origin: Origin) -> Page:
    promised = [[one.name, one.version, one.speaks, one.promises, one.settings] for one in outcome.systems]
    left_out = _left_out(outcome)
    return Page(
        title="Beside other brokers",
        claim=CLAIM,
        verdict=f"peers: {'reached' if outcome.whole(OURS) else 'fell short'}.",
        body=[
            PageTable(
                header=["system", "version", "speaks", "promises", "settings besides its defaults"], rows=promised
            ),
            Picture(file=PICTURE, about="Load against latency and processor time"),
            PageTable(header=_head(), rows=[_cells(point) for point in outcome.points]),
            *([Items(items=[f"{one}." for one in left_out])] if left_out else []),
            _conditions(outcome),
        ],
        sources=[*PRODUCT, "bench/comparisons/peers"],
        origin=origin,
    )


def _head() -> list[str]:
    return ["msg/s", "system", *(figure.label for figure in FIGURES), "lost", "runs"]


def _cells(point: Point) -> list[str]:
    cells = []
    for figure in FIGURES:
        found = point.figures.get(figure.key)
        cells.append(found.text(f",.{figure.digits}f") if found else "-")
    return [f"{point.rate:,}", point.system, *cells, f"{point.lost:,}", str(point.runs)]


def _left_out(outcome: Outcome) -> list[str]:
    """Systems that are not here, then runs that do not count, a sentence of each without its full stop."""
    few = [point for point in outcome.points if point.runs < outcome.runs]
    return [f"Left out: {said}" for said in outcome.absent] + [
        f"{point.system} at {point.rate:,} msg/s: {point.runs} of {outcome.runs} runs count; "
        + "; ".join(point.refused[:2])
        for point in few
    ]


def _conditions(outcome: Outcome) -> str:
    covered = sorted({round(100 * point.coverage) for point in outcome.points if point.runs})
    percent = f"{' or '.join(map(str, covered))} %" if covered else "no"
    return (
        f"Publishers at 10 msg/s each, Poisson, 100 bytes, one subscriber; runs of {outcome.seconds:g} s in turns, "
        f"each with a fresh process; medians ({percent} intervals) of the runs that count. Latency from the intended "
        "instant to the receipt, the generator's lateness in it; processor time (user and system) and memory of the "
        "server's process."
    )


def picture(folder: Path, outcome: Outcome) -> None:
    """A panel for each of PANELS, a line for each system through its medians."""
    panels = [_panel(outcome, key, label) for key, label in PANELS.items()]
    drawn = [panel for panel in panels if panel.series]
    if drawn:
        draw(folder / PICTURE, drawn, f"Medians of {outcome.runs} runs of {outcome.seconds:g} s at each load.")


def _panel(outcome: Outcome, key: str, label: str) -> Panel:
    series = []
    for system in outcome.systems:
        points = [point for point in outcome.of(system.name) if key in point.figures]
        if points:
            medians = [point.figures[key].median for point in points]
            series.append(Series(label=system.name, x=[point.rate for point in points], y=medians))
    return Panel(title=label, x_label="load (msg/s)", y_label=f"{label} (log scale)", series=series, slo_ms=None)


def table(outcome: Outcome) -> Table:
    """For the terminal, which has seen the runs: medians alone."""
    title = "Medians; latencies and the generator's lateness in ms"
    drawn = Table(*TERMINAL, title=title, header_style="bold", box=None, padding=(0, 2, 0, 0))
    for point in outcome.points:
        drawn.add_row(*(cell.split(" (", 1)[0] for cell in _cells(point)))
    return drawn
