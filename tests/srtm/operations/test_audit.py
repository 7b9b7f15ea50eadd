"""``srtm audit``: what it asks for, and what it says was different."""

from __future__ import annotations

import pytest

from srtm.cli import main
from srtm.operations.audit_list import difference_lines
from tests.support.played_distributor import Distributor

ENTRY = {
    "number": 7,
    "at": 1_764_000_000.0,
    "who": "ann",
    "what": "PUT /v1/topics/roads",
    "source": "10.0.0.7:50000",
    "subject": "topic roads",
    "before": {"rate": 100.0, "burst": 5.0},
    "after": {"rate": 200.0, "burst": 5.0},
}


def test_a_change_is_shown_with_what_was_different(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    distributor.answers["GET", "/v1/audit"] = (200, [ENTRY])
    assert main(["audit", "--topic", "roads"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2025-11-24 16:00:00 UTC  ann from 10.0.0.7:50000: PUT /v1/topics/roads (topic roads)",
        "    rate: 100 -> 200",
    ]
    distributor.answers["GET", "/v1/audit"] = (200, [])
    assert main(["audit"]) == 0
    assert capsys.readouterr().out == "no change is on record\n"


def lines(before: object, after: object, **more: object) -> list[str]:
    return difference_lines({"before": before, "after": after, **more})


def test_what_came_or_went_is_said_in_a_word() -> None:
    assert lines(None, {"rate": 1}) == ["made"]
    assert lines({"rate": 1}, None) == ["removed"]
    assert lines(None, None) == []


def test_values_are_said_as_everywhere_else() -> None:
    before = {"rate": 33.33333333, "slo": {"percentile": 99.0, "latency_ms": 5.0}, "lists": [], "publishers": 200_000}
    after = {"rate": 1e6, "slo": {"percentile": 99.9, "latency_ms": 5.0}, "lists": ["a"], "on": True, "publishers": 1}
    assert lines(before, after) == [
        "rate: 33.3333 -> 1,000,000",
        "slo.percentile: 99 -> 99.9",
        'lists: [] -> ["a"]',
        "on: - -> true",
        "publishers: 200,000 -> 1",
    ]


def test_policies_are_compared_one_by_one() -> None:
    before = {"policies": [{"name": "a", "rate": 1.0}, {"name": "b", "rate": 2.0}]}
    after = {"policies": [{"name": "a", "rate": 1.0}, {"name": "b", "rate": 3.0}, {"name": "c", "quota": 5}]}
    assert lines(before, after) == ["policies.b.rate: 2 -> 3", 'policies.c: - -> {"name":"c","quota":5}']


def test_changed_publishers_are_named_and_the_rest_counted() -> None:
    full = {
        "rate": 2.5,
        "correlation_group": "g",
        "process": "periodic",
        "batch": 4,
        "contract": "cars",
        "latitude": 48.125,
        "longitude": 11.5,
    }
    first = [
        {"id": "a", "before": {"rate": 1.0}, "after": None},
        {"id": "b", "before": None, "after": full},
        {"id": "c", "before": {"rate": 1.0}, "after": {"rate": 2.0}},
    ]
    changes = {"added": 1_234, "removed": 1, "changed": 2, "first": first}
    assert lines({"publishers": 1}, {"publishers": 1_234}, publishers=changes) == [
        "publishers: 1 -> 1,234",
        "- a, 1 msg/s, poisson",
        "+ b, 2.5 msg/s, group g, periodic, 4 at once, contract cars, at 48.125, 11.5",
        "  and 1,233 more added",
        "~ c: 1 msg/s, poisson -> 2 msg/s, poisson",
        "  and 1 more changed",
    ]
