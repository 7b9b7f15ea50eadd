"""What a table of rows leaves behind: a data file a row, and the page and picture made from all of them, so that rows
measured on different days stand in one table, each with its day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from matplotlib.axes import Axes

from bench.harness.results.comparison import Measured, MeasuredFigure, Row
from bench.harness.results.page import Block, Page, Picture, Table, checked
from bench.harness.results.plot import COLOURS, INK, figure
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import data_file, write_data
from bench.harness.results.sources import PRODUCT
from srtm.errors import BadInput

COLUMNS = 3
CAPTION = "Bars: medians; whiskers: their intervals; dotted: what had to be reached."
PAPER = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5}  # a number is read before a dotted line
SYSTEM_COLOURS = {"srtm": COLOURS[0], "nsqd": COLOURS[1], "mosquitto": COLOURS[1], "floor": "#8a8a8a"}


@dataclass(frozen=True)
class RowTable:
    """Rows that stand on one page. ``name``: of the page, its data and its picture."""

    name: str
    title: str
    claim: str
    rows: Mapping[str, Row]
    sources: Sequence[str]  # that its rows are made of, besides the product

    @property
    def picture(self) -> str:
        return f"{self.name}.png"


def keep(table: RowTable, folder: Path, outcome: Measured) -> None:
    write_data(folder, f"{table.name}-{outcome.name}", outcome)


def kept(table: RowTable, folder: Path) -> list[Measured]:
    """Rows that were measured. Raises BadInput for a file that is none of ours."""
    found = []
    for name in table.rows:
        file = data_file(folder, f"{table.name}-{name}")
        if file.exists():
            try:
                found.append(msgspec.json.decode(file.read_bytes(), type=Measured))
            except msgspec.DecodeError as error:
                raise BadInput("measured", file.name, f"must be what the bench wrote ({error})") from error
    return found


def page_of(table: RowTable, outcomes: Sequence[Measured], origin: Origin) -> Page:
    """All that had to be reached, then each row's figures. ``origin``: of the last that was measured."""
    checks = [check for outcome in outcomes for check in outcome.checks]
    short = [outcome.line for outcome in outcomes if not outcome.reached]
    return Page(
        title=table.title,
        claim=table.claim,
        verdict=f"{table.name}: {'; '.join(short) or 'reached'}.",
        body=[
            checked(checks),
            Picture(file=table.picture, about="What was measured"),
            CAPTION,
            *(block for outcome in outcomes for block in _section(outcome)),
        ],
        sources=[*PRODUCT, *table.sources],
        origin=origin,
    )


def _section(outcome: Measured) -> list[Block]:
    cells = [[figure.label, *(figure.cell(system) for system in outcome.systems)] for figure in outcome.figures]
    table = [Table(header=["", *outcome.systems], rows=cells)] if cells else []
    runs = f"{outcome.rounds} rounds of {outcome.seconds:g} s; medians, {100 * outcome.coverage:.0f} % intervals."
    note = [outcome.note] if outcome.note else []
    again = [f"Rounds measured again: {'; '.join(outcome.excluded)}."] if outcome.excluded else []
    last = " ".join([f"**{outcome.line}.**", runs, *note, *again, outcome.provenance])
    return [f"## {outcome.name}", outcome.claim, *table, last]


def picture(table: RowTable, folder: Path, outcomes: Sequence[Measured]) -> None:
    """A panel for each figure that is drawn: medians with their intervals, a line for each system."""
    panels = [(outcome, drawn) for outcome in outcomes for drawn in outcome.figures if drawn.drawn]
    if not panels:
        return
    lines = -(-len(panels) // COLUMNS)
    with figure(folder / table.picture, 4.0 * COLUMNS, 1.5 * lines + 0.3) as drawing:
        axes = drawing.subplots(lines, COLUMNS, squeeze=False).ravel()
        for one, (outcome, drawn) in zip(axes, panels, strict=False):
            _draw(one, outcome, drawn)
        for empty in axes[len(panels) :]:
            empty.set_axis_off()


def _draw(axes: Axes, outcome: Measured, drawn: MeasuredFigure) -> None:
    highest = max([found.high for found in drawn.systems.values()] + [mark.value for mark in drawn.marks])
    for place, system in enumerate(reversed(outcome.systems)):
        found = drawn.systems[system]
        colour = SYSTEM_COLOURS.get(system.partition("-")[0], COLOURS[(2 + place) % len(COLOURS)])
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
    axes.set_title(f"{outcome.name}: {drawn.label}", fontsize=9)
    axes.grid(visible=False, axis="y")
    axes.locator_params(axis="x", nbins=4)
