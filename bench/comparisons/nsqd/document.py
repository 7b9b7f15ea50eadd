"""What ``srtm bench nsqd`` leaves behind: one file a row beside the document, and the table and picture made from all
of them, so that rows measured on different days stand in one table, each with its day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from matplotlib.axes import Axes

from bench.harness.results.comparison import Measured, MeasuredFigure
from bench.harness.results.document import markdown_table
from bench.harness.results.plot import COLOURS, INK, figure
from bench.harness.results.results import beside, keep_beside
from srtm.errors import BadInput

PICTURE = "bench-nsqd.png"
COLUMNS = 3
CAPTION = "Bars: medians; whiskers: their intervals; dotted: what had to be reached."
PAPER = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5}  # a number is read before a dotted line
SYSTEM_COLOURS = {"srtm": COLOURS[0], "nsqd": COLOURS[1], "floor": "#8a8a8a"}


def keep(document: Path, outcome: Measured) -> None:
    keep_beside(document, f"nsqd-{outcome.name}", outcome)


def kept(document: Path, names: Iterable[str]) -> list[Measured]:
    """Those of ``names`` that were measured. Raises BadInput for a file that is none of ours."""
    found = []
    for name in names:
        file = beside(document, f"nsqd-{name}")
        if file.exists():
            try:
                found.append(msgspec.json.decode(file.read_bytes(), type=Measured))
            except msgspec.DecodeError as error:
                raise BadInput("measured", file.name, f"must be what the bench wrote ({error})") from error
    return found


def markdown(outcomes: Sequence[Measured]) -> str:
    """All that had to be reached, then each row's figures."""
    rows = [check.cells for outcome in outcomes for check in outcome.checks]
    parts = [markdown_table(["", "measured", "must be", "reached"], rows), f"![What was measured]({PICTURE})", CAPTION]
    return "\n\n".join([*parts, *(_section(outcome) for outcome in outcomes)])


def _section(outcome: Measured) -> str:
    cells = [[figure.label, *(figure.cell(system) for system in outcome.systems)] for figure in outcome.figures]
    table = [markdown_table(["", *outcome.systems], cells)] if cells else []
    runs = f"{outcome.rounds} rounds of {outcome.seconds:g} s; medians, {100 * outcome.coverage:.0f} % intervals."
    note = [outcome.note] if outcome.note else []
    again = [f"Rounds measured again: {'; '.join(outcome.excluded)}."] if outcome.excluded else []
    last = " ".join([f"**{outcome.line}.**", runs, *note, *again, outcome.provenance])
    return "\n\n".join([f"### {outcome.name}", outcome.claim, *table, last])


def picture(document: Path, outcomes: Sequence[Measured]) -> None:
    """A panel for each figure that is drawn: medians with their intervals, a line for each system."""
    panels = [(outcome, drawn) for outcome in outcomes for drawn in outcome.figures if drawn.drawn]
    if not panels:
        return
    lines = -(-len(panels) // COLUMNS)
    with figure(document.parent / PICTURE, 4.0 * COLUMNS, 1.5 * lines + 0.3) as drawing:
        axes = drawing.subplots(lines, COLUMNS, squeeze=False).ravel()
        for one, (outcome, drawn) in zip(axes, panels, strict=False):
            _draw(one, outcome, drawn)
        for empty in axes[len(panels) :]:
            empty.set_axis_off()


def _draw(axes: Axes, outcome: Measured, drawn: MeasuredFigure) -> None:
    highest = max([found.high for found in drawn.systems.values()] + [mark.value for mark in drawn.marks])
    for place, system in enumerate(reversed(outcome.systems)):
        found = drawn.systems[system]
        colour = SYSTEM_COLOURS.get(system, COLOURS[2 + place])
        axes.barh(place, found.median, height=0.6, color=colour, alpha=0.85)
        axes.plot([found.low, found.high], [place, place], color=INK, linewidth=1.2, marker="|", markersize=6)
        text = f" {found.median:,.{drawn.digits}f}"
        axes.annotate(
            text, (found.high, place), (4, 0), textcoords="offset points", va="center", fontsize=9, bbox=PAPER
        )
        for mark in drawn.marks:
            if mark.system == system:
                axes.plot([mark.value] * 2, [place - 0.45, place + 0.45], color=INK, linestyle=":", linewidth=2.2)
    axes.set_yticks(range(len(outcome.systems)), list(reversed(outcome.systems)))
    axes.set_xlim(0, 1.3 * highest or 1.0)
    axes.set_title(drawn.label, fontsize=10)
    axes.grid(visible=False, axis="y")
    axes.locator_params(axis="x", nbins=4)
