"""Results of runs of the load generator as benches get them, made up."""

from __future__ import annotations

from hdrh.histogram import HdrHistogram

from bench.harness.load.run import Histograms, RunResult, TargetResult
from bench.harness.results.results import DIGITS, HIGHEST_NS, LOWEST_NS


def recorded(*values_ms: float) -> HdrHistogram:
    made = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
    for value in values_ms:
        made.record_value(round(value * 1e6))
    return made


def histogram(*values_ms: float) -> str:
    """As results carry it."""
    return str(recorded(*values_ms).encode().decode())


EMPTY = histogram()


def target(topic: str = "t", **changes: object) -> TargetResult:
    """Nothing sent, nothing received; but for ``changes``."""
    blank = dict.fromkeys(TargetResult.__struct_fields__, 0)
    return TargetResult(**{**blank, "target": "h:1", "topic": topic, "histogram": EMPTY, **changes})  # type: ignore[arg-type]


def result(**changes: object) -> RunResult:
    """A hundred messages, all received, every latency 1 ms; but for ``changes``."""
    counts = dict.fromkeys(("offered", "sent", "acknowledged", "received"), 100)
    zeros = dict.fromkeys(
        ("refused", "lost", "duplicates", "foreign", "publisher_reconnects", "subscriber_reconnects"), 0
    )
    names = ("p50", "p95", "p99", "p999", "max", "lateness_p99", "lateness_max", "ack_p50", "ack_p99")
    times = {f"{name}_ms": 1.0 for name in names} | {"sender_cpu_s": 1.0, "receiver_cpu_s": 1.0}
    rest = {
        "valid": True,
        "reasons": [],
        "stopped": False,
        "rate": 10_000.0,
        "brokers": 1,
        "errors": {},
        "error_texts": [],
    }
    histograms = Histograms(latency=EMPTY, lateness=EMPTY, ack=EMPTY)
    parts = {"targets": [], "histograms": histograms, "measured_from_unix_ns": 0, "timeline": []}
    return RunResult(**{**counts, **zeros, **times, **rest, **parts, **changes})  # type: ignore[arg-type]
