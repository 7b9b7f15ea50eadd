from __future__ import annotations

import json
from pathlib import Path

from bench.experiments.scale import ScaleOptions, run, scale

SMALL = ScaleOptions(brokers=20, publishers=10_000, group_size=25, seconds=2.0)


def test_every_message_of_every_broker_is_simulated_and_its_p99_kept() -> None:
    shown: list[str] = []
    found = run(SMALL, shown.append)
    assert 150_000 < found.messages < 250_000
    assert len(found.p99_ms) == len(found.access_p99_ms) == 20
    assert all(total >= access for total, access in zip(found.p99_ms, found.access_p99_ms, strict=True))
    assert list(found.took_s) == ["placement", "size of the bucket", "arrivals", "buckets and servers"]
    assert shown[-1].startswith("20 of 20 brokers")


def test_a_broker_with_nothing_to_count_has_no_p99() -> None:
    alone = ScaleOptions(brokers=2, publishers=1, group_size=1, seconds=5.0)
    assert len(run(alone, lambda _: None).p99_ms) <= 1


def test_the_results_say_how_large_and_how_long(tmp_path: Path) -> None:
    file = tmp_path / "scale.json"
    scale(ScaleOptions(brokers=5, publishers=1_000, seconds=2.0, json_file=str(file)), lambda _: None)
    written = json.loads(file.read_text())
    assert written["settings"]["brokers"] == 5
    assert written["runs"][0]["memory_bytes"] > 0
