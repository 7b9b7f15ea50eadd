"""Histograms as the files that HdrHistogram's own tools read: an interval log (``.hlog``), a percentile distribution
(``.hgrm``). Values are ns in the former, as the tools expect, and ms in the latter. Pure.

Formats: HistogramLogWriter 1.3 and AbstractHistogram.outputPercentileDistribution of github.com/HdrHistogram.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from bench.harness.load.run import Histograms, Interval, RunResult
from bench.harness.results.results import DIGITS, HIGHEST_NS, LOWEST_NS, merged

NS_PER_MS = 1e6
SECOND_NS = 1_000_000_000
Ints = NDArray[np.int64]
_TICKS_PER_HALF_DISTANCE = 5  # lines of an .hgrm from one power of two of 1 / (1 - percentile) to the next


@dataclass(frozen=True, kw_only=True)
class Curves:
    """The measured part of one run: latency by interval and in all, lateness and acknowledgement in all."""

    from_unix_ns: int  # when it began, wall clock
    duration_s: float
    timeline: Sequence[Interval]
    histograms: Histograms

    @classmethod
    def of(cls, result: RunResult, duration_s: float) -> Curves:
        return cls(
            from_unix_ns=result.measured_from_unix_ns,
            duration_s=duration_s,
            timeline=result.timeline,
            histograms=result.histograms,
        )


def encoded(values_ns: Ints) -> str:
    """A histogram of them, as results carry it."""
    made = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
    for value, count in zip(*np.unique(values_ns, return_counts=True), strict=True):
        made.record_value(max(int(value), LOWEST_NS), int(count))
    return str(made.encode().decode())


def by_second(instants_ns: Ints, values_ns: Ints) -> list[Interval]:
    """``values_ns`` by the second of their instants, which begin at 0."""
    seconds, found = instants_ns // SECOND_NS, []
    for start in range(int(seconds.max(initial=-1)) + 1):
        mine = values_ns[seconds == start]
        max_ms, histogram = float(mine.max(initial=0)) / NS_PER_MS, encoded(mine)
        found.append(Interval(start_s=float(start), length_s=1.0, count=len(mine), max_ms=max_ms, histogram=histogram))
    return found


def interval_log(title: str, curves: Curves) -> str:
    """Latency by interval without a tag, as tools take it by default; lateness and acknowledgement of the whole run
    tagged. Interval_Max is ms, as is customary."""
    started_s = curves.from_unix_ns / 1e9
    lines = [
        f"#[{' '.join(title.split())}; in ns]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {started_s:.3f} (seconds since epoch)]",
        f"#[BaseTime: {started_s:.3f} (seconds since epoch)]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for one in curves.timeline:
        lines.append(_line(one.start_s, one.length_s, one.max_ms, one.histogram))
    for tag in ("lateness", "ack"):
        histogram = getattr(curves.histograms, tag)
        max_ms = merged([histogram]).get_max_value() / NS_PER_MS
        lines.append(f"Tag={tag},{_line(0.0, curves.duration_s, max_ms, histogram)}")
    return "\n".join(lines) + "\n"


def _line(start_s: float, length_s: float, max_ms: float, histogram: str) -> str:
    return f"{start_s:.3f},{length_s:.3f},{max_ms:.3f},{histogram}"


def percentile_distribution(histogram: HdrHistogram) -> str:
    """What plotters of latency over percentiles read."""
    lines = [f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}", ""]
    for at in histogram.get_percentile_iterator(_TICKS_PER_HALF_DISTANCE):
        share, value_ms = at.percentile_level_iterated_to / 100, at.value_iterated_to / NS_PER_MS
        line = f"{value_ms:12.6f} {share:2.12f} {at.total_count_to_this_value:10d}"
        lines.append(line if share == 1 else f"{line} {1 / (1 - share):14.2f}")
    mean_ms, deviation_ms = histogram.get_mean_value() / NS_PER_MS, histogram.get_stddev() / NS_PER_MS
    max_ms, count = histogram.get_max_value() / NS_PER_MS, histogram.get_total_count()
    lines += [
        f"#[Mean    = {mean_ms:12.6f}, StdDeviation   = {deviation_ms:12.6f}]",
        f"#[Max     = {max_ms:12.6f}, TotalCount     = {count:12d}]",
        f"#[Buckets = {histogram.bucket_count:12d}, SubBuckets     = {histogram.sub_bucket_count:12d}]",
    ]
    return "\n".join(lines) + "\n"
