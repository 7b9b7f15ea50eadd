"""Prometheus's conventions for metrics, as a check of a text that ``/metrics`` gives.

The rules are those of https://prometheus.io/docs/practices/naming/ and of ``promtool check metrics``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

NAME = re.compile(r"(srtm|process|python)(_[a-z0-9]+)+")
SUFFIXES = ("_total", "_count", "_sum", "_bucket", "_info")
# Words for what has a base unit: seconds, bytes, ratio.
OTHER_UNITS = {
    "ms", "us", "ns", "milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days",
    "kb", "mb", "gb", "kilobytes", "megabytes", "gigabytes", "bits", "percent", "percentage", "micro",
}  # fmt: skip
RATES = ("_rate", "_demand", "_mcap")  # of messages: there is no base unit for them
TYPES = {"gauge", "counter", "histogram", "summary"}


def broken_rules(text: str) -> list[str]:
    """What is wrong with a text in Prometheus's format, one sentence each."""
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    found = [f"{name}: stands there twice" for name in sorted({name for name in names if names.count(name) > 1})]
    typed = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    for family in families:
        found += [f"{family.name}: {what}" for what in _broken(family, typed)]
    return found


def _broken(family: Metric, typed: set[str]) -> Iterator[str]:
    words = set(family.name.split("_"))
    if not NAME.fullmatch(family.name):
        yield "must be lower case words, of which the first is srtm"
    if not family.documentation:
        yield "must have a help text"
    if family.type not in TYPES:
        yield f"must have a type, not {family.type!r}"
    if family.type == "counter" and f"{family.name}_total" not in typed:
        yield "is a counter, and must end in _total"
    is_info = family.name.endswith("_info") and all(sample.value == 1 for sample in family.samples)
    if family.type != "counter" and family.name.endswith(SUFFIXES) and not is_info:
        yield f"is a {family.type}, and must not end in {', '.join(SUFFIXES)}"
    if words & OTHER_UNITS:
        yield f"must be in a base unit (seconds, bytes, ratio), not {', '.join(words & OTHER_UNITS)}"
    if family.name.endswith("_share"):
        yield "is a share of something: must be a ratio, and end in _ratio"
    if family.name.endswith(RATES) and "msg/s" not in family.documentation:
        yield "is a rate of messages, and its help must name the unit, msg/s"
    if words & TYPES:
        yield "must not name its type"
    yield from _broken_samples(family)


def _broken_samples(family: Metric) -> Iterator[str]:
    series: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    seen: set[tuple[object, ...]] = set()
    for sample in family.samples:
        labels = tuple(sorted(sample.labels.items()))
        if (sample.name, labels) in seen:
            yield f"has the series {dict(labels)} twice"
        seen.add((sample.name, labels))
        if not all(re.fullmatch("[a-z][a-z0-9_]*", label) for label in sample.labels):
            yield f"must have labels in lower case, not {sorted(sample.labels)}"
        if family.type == "counter" and sample.value < 0:
            yield "is a counter, and must not be below 0"
        if family.type == "histogram" and sample.name.endswith("_bucket"):
            key = tuple(pair for pair in labels if pair[0] != "le")
            series.setdefault(key, []).append((float(sample.labels["le"]), sample.value))
    counts = {
        tuple(sorted(sample.labels.items())): sample.value
        for sample in family.samples
        if sample.name.endswith("_count")
    }
    for key, buckets in series.items():
        bounds, values = zip(*buckets, strict=True)
        if list(bounds) != sorted(set(bounds)) or bounds[-1] != float("inf"):
            yield f"must have ascending bounds up to +Inf at {dict(key)}"  # type: ignore[call-overload]
        if list(values) != sorted(values) or values[-1] != counts.get(key):
            yield f"must have counts that grow up to its _count at {dict(key)}"  # type: ignore[call-overload]
