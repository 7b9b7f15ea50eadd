"""Pictures of results in one look.

Colours are Okabe and Ito's, which stay apart for the colour-blind; what a colour says, a label or a line style says
too. Axes name their unit. A file written twice from the same result is the same file (no dates inside).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from bench.harness.results.results import cdf, merged

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
BROKER_COLOURS = COLOURS[2:]  # the first two are the placements
INK = "#222222"
FAINT = "#8a8a8a"
LOOK: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.dpi": 110,
    "savefig.dpi": 110,
}
NINES = (0.0, 0.5, 0.9, 0.99, 0.999)
NEVER = 1e-4  # where the axis of nines ends: 99.99 %


@dataclass(frozen=True)
class Curve:
    """A latency distribution: the share of messages, ascending, that took at most so long."""

    label: str
    latency_ms: NDArray[np.float64]
    share: NDArray[np.float64]  # 0..1, ends at 1
    colour: str = COLOURS[0]
    dashed: bool = False


@dataclass(frozen=True)
class Promise:
    """An SLO as a point of the picture: ``share`` of all messages within ``latency_ms``."""

    share: float
    latency_ms: float


@dataclass(frozen=True)
class Places:
    """Publishers on the map, and the number of the broker that has each."""

    title: str
    latitude: Sequence[float]
    longitude: Sequence[float]
    broker: Sequence[int]
    brokers: Sequence[str]  # their names; a name that nobody has is still in the legend


def curve_of_histogram(label: str, encoded: str, colour: str = COLOURS[0], dashed: bool = False) -> Curve:
    """The curve of an HDR V2 histogram (base64) of nanoseconds. Raises BadInput for text that is none."""
    latency_ms, share = cdf(merged([encoded]))
    return Curve(label, np.array(latency_ms), np.array(share), colour, dashed)


@contextmanager
def figure(path: Path, width_in: float, height_in: float) -> Iterator[Figure]:
    """A figure in the house look; written to ``path`` when the block ends without an error."""
    with mpl.rc_context(LOOK):
        drawing = Figure(figsize=(width_in, height_in), layout="constrained")
        yield drawing
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path, format="png", metadata={"Software": None})


def draw_latencies(axes: Axes, curves: Sequence[Curve], promise: Promise | None, title: str) -> None:
    """Latency CDFs: time on a log axis, share of messages on an axis of nines (the tail is where promises break)."""
    for curve in curves:
        style = "--" if curve.dashed else "-"
        axes.step(curve.latency_ms, _depth(curve.share), style, where="post", color=curve.colour, label=curve.label)
    axes.set_xscale("log")
    axes.set_xlim(*_span_ms(curves, promise))
    _axis_of_nines(axes)
    if promise is not None:
        _mark_promise(axes, promise)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_xlabel("latency (ms, log scale)")
    axes.set_title(title)
    axes.legend(loc="upper left", labelspacing=1.0)  # above every curve: they rise from the lower left


def draw_places(axes: Axes, places: Places) -> None:
    """Publishers on the map (equirectangular), a colour and a marker for each broker."""
    for number, (name, marker) in enumerate(zip(places.brokers, "os^D", strict=False)):
        mine = [i for i, broker in enumerate(places.broker) if broker == number]
        axes.plot(
            [places.longitude[i] for i in mine],
            [places.latitude[i] for i in mine],
            marker,
            color=BROKER_COLOURS[number],
            markersize=4,
            alpha=0.85,
            label=f"{name}: {len(mine)}",
        )
    axes.set_aspect(1 / np.cos(np.radians(np.mean(places.latitude))))
    axes.set_title(places.title)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.set_xlabel("longitude (°)")
    axes.set_ylabel("latitude (°)")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handletextpad=0.2)


def _depth(share: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many nines: 0 for 0 %, 1 for 90 %, 2 for 99 %."""
    return -np.log10(np.maximum(NEVER, 1.0 - share))


def _span_ms(curves: Sequence[Curve], promise: Promise | None) -> tuple[float, float]:
    """From the first percent to the last message; a delay of zero has no place on a log axis and starts at 10 us."""
    marks = [] if promise is None else [promise.latency_ms]
    first = min(float(np.interp(0.01, curve.share, curve.latency_ms)) for curve in curves)
    last = max([float(curve.latency_ms[-1]) for curve in curves] + marks)
    return max(0.01, first / 1.5), last * 1.5


def _axis_of_nines(axes: Axes) -> None:
    axes.yaxis.set_major_locator(FixedLocator([-float(np.log10(1 - share)) for share in NINES]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * (1 - 10.0**-y):.4g} %"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, -np.log10(NEVER))
    axes.set_ylabel("messages received within that time")


def _mark_promise(axes: Axes, promise: Promise) -> None:
    """The corner that a curve must pass on its left, and the region where the promise is broken."""
    depth = float(_depth(np.array([promise.share]))[0])
    axes.plot([promise.latency_ms] * 2, [0, depth], color=INK, linewidth=1.2)
    axes.axvspan(promise.latency_ms, axes.get_xlim()[1], ymax=depth / axes.get_ylim()[1], color=INK, alpha=0.07, lw=0)
    axes.plot([promise.latency_ms], [depth], "o", color=INK, markersize=5)
    text = f"promise: {100 * promise.share:g} % in {promise.latency_ms:g} ms"
    axes.annotate(text, (promise.latency_ms, 0), (6, 6), textcoords="offset points", fontsize=9)
