"""One screen of ``srtm top``: it fits, whoever is in trouble stands first, and what is left out is counted."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from srtm.console.overview import screen


def topics(count: int, shown: int = 500, **other: object) -> dict[str, Any]:
    row = {
        "name": "roads",
        "promise": "kept",
        "percentile": 99.0,
        "slo_ms": 5.0,
        "latency_ms": 0.25,
        "rate": 2500.0,
        "demand": 1234.5,
        "backlog": 0,
        "brokers": 2,
        **other,
    }
    rows = [{**row, "name": f"{row['name']}-{n}"} for n in range(min(count, shown))]
    return {"all": count, "counts": {str(row["promise"]): count}, "rows": rows}


def brokers(count: int, shown: int = 500, **other: object) -> dict[str, Any]:
    row = {
        "name": "broker",
        "state": "live",
        "allocated": 650.0,
        "mcap": 1300.0,
        "mcap_assumed": False,
        "topics": 3,
        "backlog": 12,
        "broken": 1,
        "last_sync_s_ago": 0.5,
        **other,
    }
    rows = [{**row, "name": f"{row['name']}-{n}"} for n in range(min(count, shown))]
    return {"all": count, "counts": {str(row["state"]): count}, "rows": rows}


def drawn(of_topics: dict[str, Any], of_brokers: dict[str, Any], height: int | None, width: int = 80) -> list[str]:
    console = Console(width=width, height=height, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(screen(of_topics, of_brokers, "foot", width, height))
    return capture.get().splitlines()


def test_a_small_cluster_is_shown_whole() -> None:
    lines = drawn(topics(1, name="r"), brokers(2), 24)
    assert lines[0] == "1 topic: 0 broken, 0 unknown, 1 kept; 2 brokers: 2 live"
    assert lines[3].split() == ["r-0", "kept", "0.25", "p99", "5", "ms", "1,234", "2,500", "0", "2"]
    assert lines[6].split() == ["broker-0", "live", "50%", "1,300", "3", "12", "1", "0.5", "s", "ago"]
    assert lines[-1] == "foot"


@pytest.mark.parametrize("height", [10, 24, 50])
@pytest.mark.parametrize(("of_topics", "of_brokers"), [(10_000, 1_000), (10_000, 2), (1, 1_000), (0, 0)])
def test_a_screen_is_as_high_as_the_terminal_at_most_and_80_columns_wide(
    height: int, of_topics: int, of_brokers: int
) -> None:
    lines = drawn(topics(of_topics, name="a" * 60), brokers(of_brokers, name="b" * 60), height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "foot"
    listed = sum(line.startswith("aaa") for line in lines)
    assert (listed > 0) == (of_topics > 0)
    assert all(line.split()[1:3] == ["kept", "0.25"] for line in lines if line.startswith("aaa"))
    if listed < of_topics:
        assert any(line.startswith(f"and {of_topics - listed:,} more topic") for line in lines)


def test_without_a_height_all_rows_are_printed() -> None:
    assert sum(line.startswith("roads-") for line in drawn(topics(300), brokers(200), None)) == 300


def test_what_nobody_knows_is_a_dash() -> None:
    lines = drawn(
        topics(1, latency_ms=None, promise="unknown"),
        brokers(1, mcap=0.0, mcap_assumed=True, state="expected", last_sync_s_ago=None),
        24,
    )
    assert lines[0] == "1 topic: 0 broken, 1 unknown, 0 kept; 1 broker: 0 live, 1 expected"
    assert lines[3].split()[:3] == ["roads-0", "unknown", "-"]
    assert lines[6].split()[:4] == ["broker-0", "expected", "-", "-"]
    assert lines[6].split()[-1] == "-"
