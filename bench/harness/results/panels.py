"""Pictures of experiments: panels of lines side by side, in the house look (``bench.harness.results.plot``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.harness.results.plot import COLOURS, FAINT, INK, figure

_WIDTH_IN, _HEIGHT_IN = 5.2, 3.9
_ACROSS = 2
_CAPTION_WIDTH = 85  # characters below a panel
_MARKERS = "osD^v"
_LEAST_MS = 1e-3  # what a log axis shows of nothing
_DECADES = 200  # an axis that spans less has ticks between the powers of ten


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line. ``spread``: standard deviations; ``notes``: a word beside each point (the number of brokers)."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    notes: Sequence[str] = ()
    marks_only: bool = False  # values that somebody else printed


@dataclass(frozen=True, kw_only=True)
class Panel:
    title: str
    x_label: str
    y_label: str = "p99 latency (ms, log scale)"
    series: Sequence[Series]
    slo_ms: float | None = 1.0
    x_log: bool = False
    y_log: bool = True


def draw(path: Path, panels: Sequence[Panel], caption: str) -> None:
    """All panels in one PNG, two in a row; ``caption`` below them."""
    across = min(_ACROSS, len(panels))
    down = -(-len(panels) // across)
    with figure(path, _WIDTH_IN * across, _HEIGHT_IN * down + 0.3) as drawing:
        axes = drawing.subplots(down, across, squeeze=False).ravel()
        for place, panel in zip(axes, panels, strict=False):
            _draw_panel(place, panel)
        for place in axes[len(panels) :]:
            place.set_axis_off()
        drawing.supxlabel(fill(caption, _CAPTION_WIDTH * across), fontsize=8, color=FAINT)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    if panel.y_log:
        axes.set_yscale("log")
    if panel.x_log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    for number, series in enumerate(panel.series):
        _draw_series(axes, series, number)
    if panel.y_log:
        axes.set_ylim(bottom=min(max(_LEAST_MS, value) for series in panel.series for value in series.y) / 3)
    if panel.slo_ms is not None:
        axes.axhline(panel.slo_ms, color=INK, linewidth=1.0, linestyle=":", label=f"SLO {panel.slo_ms:g} ms")
    if panel.y_log:
        _mark_decades(axes)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_title(panel.title)
    axes.legend(fontsize=8)


def _mark_decades(axes: Axes) -> None:
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0,) if high > _DECADES * low else (1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(_tick))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _tick(y: float, _: int) -> str:
    """What is drawn where a log axis ends is nothing."""
    return "" if y < 0.9 * _LEAST_MS else "0" if y < 1.1 * _LEAST_MS else f"{y:,.9g}"


def _draw_series(axes: Axes, series: Series, number: int) -> None:
    y = [max(_LEAST_MS, value) for value in series.y]
    if series.marks_only:
        axes.plot(series.x, y, "x", color=INK, markersize=7, markeredgewidth=1.6, label=series.label, zorder=4)
        return
    colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
    if series.spread:
        below = [min(spread, value - _LEAST_MS) for spread, value in zip(series.spread, y, strict=True)]
        axes.errorbar(
            series.x,
            y,
            [below, list(series.spread)],
            fmt=f"-{marker}",
            color=colour,
            markersize=4,
            capsize=2,
            label=series.label,
        )
    else:
        line = "-" if len(y) > 1 else ""
        axes.plot(series.x, y, f"{line}{marker}", color=colour, markersize=4, label=series.label)
    for x, height, note in zip(series.x, y, series.notes, strict=False):
        above = 5 if number % 2 == 0 else -12
        axes.annotate(note, (x, height), (3, above), textcoords="offset points", fontsize=8, color=colour)
