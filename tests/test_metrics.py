"""Metrics follow Prometheus's conventions, in all services."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.exposed_metrics import described, texts
from tests.support.metric_rules import broken_rules

SERVICES = ("broker", "distributor", "limit")


@pytest.mark.parametrize("service", SERVICES)
def test_metrics_follow_the_conventions(service: str) -> None:
    assert broken_rules(texts()[service]) == []


@pytest.mark.parametrize("service", SERVICES)
def test_promtool_finds_nothing_wrong_with_them(service: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    text = texts()[service].encode()
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=30, check=False)
    assert done.stderr.decode() == ""


@pytest.mark.parametrize("service", SERVICES)
def test_build_and_process_are_shown(service: str) -> None:
    names = {name for name, _, _ in described()[service]}
    assert {"srtm_build_info", "process_cpu_seconds_total", "process_resident_memory_bytes"} <= names


GOOD = "# HELP srtm_a_seconds Some\n# TYPE srtm_a_seconds gauge\nsrtm_a_seconds 1\n"
BUCKETS = """# HELP srtm_h_seconds Some
# TYPE srtm_h_seconds histogram
srtm_h_seconds_bucket{le="1"} 5
srtm_h_seconds_bucket{le="+Inf"} 6
srtm_h_seconds_count 6
srtm_h_seconds_sum 3
"""


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (GOOD.replace("srtm_a_seconds", "srtm_a_ms"), "base unit"),
        (GOOD.replace("srtm_a_seconds", "srtm_cpu_share"), "end in _ratio"),
        (GOOD.replace("srtm_a_seconds", "srtm_a_rate"), "name the unit, msg/s"),
        (GOOD.replace("srtm_a_seconds", "srtm_a_total"), "must not end in"),
        (GOOD.replace("srtm_a_seconds", "srtm_aB_seconds"), "lower case words"),
        (GOOD.replace("srtm_a_seconds", "other_seconds"), "first is srtm"),
        (GOOD.replace("srtm_a_seconds", "srtm_gauge_seconds"), "name its type"),
        (GOOD.replace(" gauge", " counter"), "must end in _total"),
        (GOOD.replace(" Some", ""), "help text"),
        (GOOD.replace("# TYPE srtm_a_seconds gauge\n", ""), "must have a type"),
        (GOOD + "srtm_a_seconds 2\n", "twice"),
        (GOOD.replace("srtm_a_seconds 1", 'srtm_a_seconds{Topic="x"} 1'), "labels in lower case"),
        (BUCKETS.replace('le="+Inf"', 'le="2"'), "up to +Inf"),
        (BUCKETS.replace("} 5", "} 7"), "counts that grow"),
        (BUCKETS.replace("count 6", "count 7"), "up to its _count"),
    ],
)
def test_what_breaks_a_convention_is_found(text: str, rule: str) -> None:
    assert [what for what in broken_rules(text) if rule in what]


def test_what_breaks_none_is_let_through() -> None:
    assert broken_rules(GOOD + BUCKETS) == []
