"""Histograms as the files that HdrHistogram's own tools read: an interval log (``.hlog``), a percentile distribution
(``.hgrm``). Values are ns in the former, as the tools expect, and ms in the latter. Pure.

Formats: HistogramLogWriter 1.3 and AbstractHistogram.outputPercentileDistribution of github.com/HdrHistogram.
"""

from __future__ import annotations

from hdrh.histogram import HdrHistogram

from bench.results import merged
from bench.run import RunResult

NS_PER_MS = 1e6
_TICKS_PER_HALF_DISTANCE = 5  # lines of an .hgrm from one power of two of 1 / (1 - percentile) to the next


def interval_log(title: str, result: RunResult, duration_s: float) -> str:
    """Latency by interval without a tag, as tools take it by default; lateness and acknowledgement of the whole run
    tagged. Interval_Max is ms, as is customary."""
    started_s = result.measured_from_unix_ns / 1e9
    lines = [
        f"#[{' '.join(title.split())}; in ns]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {started_s:.3f} (seconds since epoch)]",
        f"#[BaseTime: {started_s:.3f} (seconds since epoch)]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for one in result.timeline:
        lines.append(_line(one.start_s, one.length_s, one.max_ms, one.histogram))
    for tag in ("lateness", "ack"):
        histogram = getattr(result.histograms, tag)
        max_ms = merged([histogram]).get_max_value() / NS_PER_MS
        lines.append(f"Tag={tag},{_line(0.0, duration_s, max_ms, histogram)}")
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
