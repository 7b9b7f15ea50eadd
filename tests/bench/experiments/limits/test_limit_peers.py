"""The page of other limiters: each claim can fail, and what their tools print is read."""

from __future__ import annotations

import pytest

from bench.experiments.limits import limit_peers
from bench.experiments.limits.limit_peers import (
    OURS,
    REDIS,
    RESP,
    OverGubernator,
    checks,
    middle,
)
from bench.limit_peers.in_process import library, ours
from bench.limit_peers.redis_benchmark import Point, read
from srtm.errors import PeerError

PRINTED = """some notice
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"EVALSHA x","32840.72","0.027","0.016","0.023","0.031","0.055","9.343"
"""


def point(part: str, system: str, asked: str, per_second: float, p50_us: float, p99_us: float) -> dict[str, object]:
    named = {"part": part, "system": system, "asked": asked}
    return {**named, "per_second": per_second, "p50_us": p50_us, "p99_us": p99_us}


GOOD = [
    point(RESP, OURS, "1 at once", 30_000, 20, 50),
    point(RESP, REDIS, "1 at once", 30_000, 20, 55),
    point(RESP, OURS, "16 at once", 200_000, 20, 50),
    point(RESP, REDIS, "16 at once", 100_000, 20, 50),
]


def test_each_claim_can_fail() -> None:
    assert all(check.kept for check in checks(GOOD))
    for place, name, value in ((0, "p99_us", 56), (2, "per_second", 199_000)):
        rows = [{**one, name: value} if number == place else one for number, one in enumerate(GOOD)]
        assert sum(not check.kept for check in checks(rows)) == 1


def test_points_are_the_medians_of_rounds() -> None:
    rounds = [{**GOOD[0], "round": number, "p99_us": value} for number, value in enumerate((50, 90, 60))]
    (found,) = middle(rounds)
    assert (found["p99_us"], found["per_second"]) == (60, 30_000)
    assert set(limit_peers.EXPERIMENT.columns.values()) == set(found)


def test_what_the_peers_tool_prints_is_read() -> None:
    assert read(PRINTED) == Point(32840.72, pytest.approx(23), pytest.approx(55))
    with pytest.raises(PeerError, match="something else"):
        read("ERROR")


def test_gubernator_is_asked_with_the_limit() -> None:
    head, _, body = OverGubernator("h:1", "api").request("user:1").decode().partition("\r\n\r\n")
    assert f"Content-Length: {len(body)}" in head
    assert '"unique_key":"user:1"' in body


@pytest.mark.parametrize("strategy", ["fixed-window", "sliding-window-counter", "moving-window"])
def test_limiters_in_a_program_are_under_the_same_limit(strategy: str) -> None:
    ask, other = ours({"name": "b", "rate": 10, "burst": 20}), library(strategy)
    assert [ask("a") for _ in range(20)] == [other("a") for _ in range(20)] == [True] * 20
    assert not ask("a")
    assert not other("a")
