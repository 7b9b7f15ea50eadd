"""One point of Fig. 7 to 11: what runs of one placement found, the columns of it, and the panels that show it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.experiments.lab.figure import Row
from bench.experiments.lab.layouts import SLO_NS, Envelope, Result, ms, residual, text_of
from bench.harness.results.panels import Panel, Series
from bench.simulation.traffic import Fleet

AS_MANY = "maxmin, as many"  # max-min on as many brokers as SRTM takes
LABELS = {"lb": "LB", "conc": "Conc", "maxmin": "Max-Min", AS_MANY: "Max-Min, brokers of SRTM", "srtm": "SRTM"}
COLUMNS = {
    "placement": "strategy",
    "brokers": "brokers",
    "worst broker's p99, ms": "worst_p99_ms",
    "deviation, ms": "p99_deviation_ms",
    "its access p99, ms": "access_p99_ms",
    "p99 of all, ms": "p99_ms",
    "runs that keep 1 ms": "kept",
    "capacity left, msg/s": "residual",
    "bucket": "bucket",
}


def point(fleet: Fleet, strategy: str, found: Sequence[Result], before: Sequence[Fleet] = ()) -> Row:
    """Means of the runs ``found``, beside the load that was there ``before``."""
    p99 = [ms(one.worst.p99_ns) for one in found]
    return {
        "process": fleet.process,
        "batch": fleet.batch,
        "strategy": strategy,
        "brokers": statistics.mode(len(one.used) for one in found),
        "worst_p99_ms": statistics.fmean(p99),
        "p99_deviation_ms": statistics.pstdev(p99),
        "p99_ms": statistics.fmean(ms(one.pooled.p99_ns) for one in found),
        "access_p99_ms": statistics.fmean(ms(one.worst.access_p99_ns) for one in found),
        "kept": sum(one <= ms(SLO_NS) for one in p99),
        "runs": len(p99),
        "residual": statistics.fmean(residual(fleet, strategy, one.loads, before) for one in found),
        **bucket_of(found),
    }


def bucket_of(found: Sequence[Result]) -> Row:
    """Each run has its own."""
    bursts = [one.bucket.burst_micro for one in found]
    return {
        "bucket": text_of([one.bucket for one in found]),
        "rate_micro": found[0].bucket.rate_micro,
        "least_burst_micro": min(bursts),
        "largest_burst_micro": max(bursts),
    }


def buckets(rows: Sequence[Row]) -> str:
    """Of all ``rows``, as a caption says it."""
    ends = ("least_burst_micro", "largest_burst_micro")
    return text_of([Envelope(rate_micro=row["rate_micro"], burst_micro=row[end]) for row in rows for end in ends])


def of(rows: Sequence[Row], part: str, strategy: str) -> list[Row]:
    return [row for row in rows if (row["part"], row["strategy"]) == (part, strategy)]


def keeps(row: Row) -> bool:
    """The SLO, in the mean of its runs."""
    kept: bool = row["worst_p99_ms"] <= ms(SLO_NS)
    return kept


def panel(part: str, what: str, rows: Sequence[Row], x: str, x_label: str) -> Panel:
    """The worst broker's p99 over ``x``, a key of a row: of each placement, the number of brokers beside each point."""
    series = [
        Series(
            label=label,
            x=[row[x] for row in mine],
            y=[row["worst_p99_ms"] for row in mine],
            spread=[row["p99_deviation_ms"] for row in mine],
            notes=[str(row["brokers"]) for row in mine],
        )
        for strategy, label in LABELS.items()
        if (mine := of(rows, part, strategy))
    ]
    return Panel(
        title=f"Fig. {part}: {what}",
        x_label=x_label,
        y_label="worst broker's p99 (ms, log scale)",
        series=series,
    )
