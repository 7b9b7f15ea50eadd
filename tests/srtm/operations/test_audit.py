"""``srtm audit``: what it asks for, and what it says was different."""

from __future__ import annotations

import pytest

from srtm.cli import main
from srtm.operations.audit_list import differences
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
        "    rate: 100.0 -> 200.0",
    ]
    distributor.answers["GET", "/v1/audit"] = (200, [])
    assert main(["audit"]) == 0
    assert capsys.readouterr().out == "no change is on record\n"


def test_what_came_or_went_is_said_in_a_word() -> None:
    assert differences(None, {"rate": 1}) == ["made"]
    assert differences({"rate": 1}, None) == ["removed"]
    assert differences(None, None) == []
    assert differences({"a": 1}, {"a": 1, "b": [1]}) == ["b: null -> [1]"]
