"""What the audit log says of changed publishers."""

from __future__ import annotations

from typing import Any

import pytest

from distributor.views.publisher_changes import MOST_SHOWN, publisher_changes
from srtm.topics.publishers import Publishers
from srtm.topics.spec import parse_topic_json

BASE = {"id": "b", "rate": 1.0}


COLUMNS = {
    "id": "ids",
    "rate": "rates",
    "correlation_group": "groups",
    "latitude": "latitudes",
    "longitude": "longitudes",
}


def block(row: dict[str, Any]) -> dict[str, Any]:
    return {COLUMNS.get(key, key): [value] if key in COLUMNS else value for key, value in row.items()}


def publishers(*rows: dict[str, Any]) -> Publishers:
    slo = {"percentile": 99, "latency_ms": 5}
    return parse_topic_json(
        {"name": "t", "rate": 1_000.0, "burst": 5.0, "mode": "static", "slo": slo, "publishers": list(map(block, rows))}
    ).publishers


def test_the_same_in_another_order_is_no_change() -> None:
    rows = [{"id": "a", "rate": 1.0, "latitude": 1.0, "longitude": 2.0, "correlation_group": "g"}, BASE]
    assert publisher_changes(publishers(*rows), publishers(*reversed(rows))) is None
    assert publisher_changes(publishers(), publishers()) is None


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 2.0},
        {"correlation_group": "g"},
        {"process": "periodic"},
        {"batch": 3},
        {"contract": "cars"},
        {"latitude": 48.1, "longitude": 11.5},
    ],
)
def test_each_property_of_a_publisher_counts_both_ways(change: dict[str, Any]) -> None:
    plain, other = publishers(BASE), publishers({**BASE, **change})
    described = {"rate": 1.0, **change}
    for before, after, was, now in ((plain, other, {"rate": 1.0}, described), (other, plain, described, {"rate": 1.0})):
        found = publisher_changes(before, after)
        assert found is not None
        assert (found.added, found.removed, found.changed) == (0, 0, 1)
        assert (found.first[0].id, found.first[0].before, found.first[0].after) == ("b", was, now)


def test_very_many_are_counted_and_the_first_of_each_kind_shown() -> None:
    now = publishers(*({"id": str(number), "rate": 1.0} for number in range(100)))
    then = publishers(*({"id": str(number), "rate": 1.0 + (number < 80)} for number in range(50, 200)))
    found = publisher_changes(now, then)
    assert found is not None
    assert (found.added, found.removed, found.changed) == (100, 50, 30)
    ids = [one.id for one in found.first]
    shown = range(MOST_SHOWN)
    assert ids == [*(str(n) for n in shown), *(str(100 + n) for n in shown), *(str(50 + n) for n in shown)]
