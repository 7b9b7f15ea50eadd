"""Pictures: what a curve says, and that a file depends on the result alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from matplotlib.figure import Figure

from bench.harness.results.plot import Curve, Places, Promise, curve_of_histogram, draw_latencies, draw_places, figure

PROMISE = Promise(0.99, 5.0)


def curve(scale: float = 1.0) -> Curve:
    """A thousand values at even distances, the largest 10 ms times ``scale``."""
    ranks = np.arange(1, 1001)
    return Curve("one", ranks * scale / 100, ranks / 1000)


def share_within(curve: Curve, latency_ms: float) -> float:
    return float(curve.share[np.searchsorted(curve.latency_ms, latency_ms, side="right") - 1])


def test_a_curve_of_a_histogram_agrees_with_its_percentiles() -> None:
    histogram = HdrHistogram(1, 10**9, 3)
    for value_us in range(1, 1001):
        histogram.record_value(value_us * 1000)
    drawn = curve_of_histogram("x", histogram.encode())
    assert share_within(drawn, 0.5) == pytest.approx(0.5, abs=0.002)
    assert share_within(drawn, 0.99) == pytest.approx(0.99, abs=0.002)
    assert drawn.share[-1] == 1.0


def test_an_empty_histogram_is_a_curve_without_points() -> None:
    assert len(curve_of_histogram("x", HdrHistogram(1, 10**9, 3).encode()).share) == 0


def test_the_promise_and_every_curve_are_within_the_axes() -> None:
    axes = Figure().subplots()
    draw_latencies(axes, [curve(), curve(0.1)], PROMISE, "title")
    low, high = axes.get_xlim()
    assert low < 0.1
    assert high > 10.0
    assert "promise: 99 % in 5 ms" in [text.get_text() for text in axes.texts]
    assert axes.get_xlabel() == "latency (ms, log scale)"


def test_a_map_names_a_broker_that_has_nobody() -> None:
    axes = Figure().subplots()
    draw_places(axes, Places("where", [34.0, 34.1], [-118.0, -118.1], [0, 0], ["b1", "b2"]))
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["b1: 2", "b2: 0"]


@pytest.mark.slow
def test_the_same_result_drawn_twice_is_the_same_file(tmp_path: Path) -> None:
    paths = [tmp_path / "one.png", tmp_path / "folder" / "two.png"]
    for path in paths:
        with figure(path, 5, 4) as drawing:
            draw_latencies(drawing.subplots(), [curve()], PROMISE, "title")
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_figure_that_fails_half_way_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), figure(tmp_path / "x.png", 5, 4):
        raise ZeroDivisionError
    assert not (tmp_path / "x.png").exists()
