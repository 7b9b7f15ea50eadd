"""The service over a real server that is stopped, killed and started again; and over a cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from limiting.config import LimitConfig
from limiting.service import serve
from limiting.store.redis import opened
from limiting.store.rules import rules_of, subject_hash
from srtm.client.limit_service import LimitClient
from srtm.contracts.contract import read_contract
from srtm.errors import BadInput, Unavailable
from tests.support.ports import free_port
from tests.support.redis_server import RedisProcess, needs_redis

pytestmark = [needs_redis, pytest.mark.slow]

FILE = """
[[contracts]]
namespace = "api"
subject = "*"
policies = [{name = "burst", rate = 0.001, burst = 4}]
"""


def config(tmp_path: Path, url: str) -> LimitConfig:
    file = tmp_path / "contracts.toml"
    file.write_text(FILE)
    return LimitConfig(http_address="127.0.0.1:0", contracts=file, store=url, mode="store")


async def until(holds: Callable[[], Any]) -> None:
    with trio.fail_after(30):
        while not await holds():  # noqa: ASYNC110  (the answer is another process's)
            await trio.sleep(0.02)


async def test_nodes_share_what_subjects_have_used(tmp_path: Path, own_server: RedisProcess) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nodes = [await nursery.start(serve, config(tmp_path, own_server.url)) for _ in range(2)]
            async with LimitClient(f"http://{nodes[0].http}") as one, LimitClient(f"http://{nodes[1].http}") as other:

                async def decided(client: LimitClient) -> dict[str, Any]:
                    async def by_the_store() -> bool:
                        nonlocal found
                        found = await client.check("api", ["user"])
                        return not found["degraded"]

                    found: dict[str, Any] = {}
                    await until(by_the_store)  # a busy machine may take more than 200 ms
                    return found

                said = [await decided(one if number % 2 else other) for number in range(6)]
                assert [each["allowed"] for each in said] == [True] * 4 + [False] * 2
                assert {each["mode"] for each in said} == {"store"}
                await other.correct(said[0]["grant"], 0)
                assert (await decided(one))["allowed"], "a grant of one node is given back at the other"
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_it_goes_on_without_the_server_and_comes_back(tmp_path: Path, own_server: RedisProcess, how: str) -> None:
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            node = await nursery.start(serve, config(tmp_path, own_server.url))
            async with LimitClient(f"http://{node.http}") as client:

                async def degraded() -> bool:
                    return bool((await client.check("api", ["user"], peek=True))["degraded"])

                async def stored() -> bool:
                    return not await degraded()

                await until(stored)
                if how == "killed":
                    own_server.kill()
                else:
                    os.kill(own_server.process.pid, signal.SIGSTOP)
                for _ in range(3):
                    assert await degraded()
                said = [(await client.check("api", ["other"]))["allowed"] for _ in range(5)]
                assert said == [True] * 4 + [False], "by its part, the whole of a single node"
                if how == "killed":
                    own_server.start_again()
                else:
                    os.kill(own_server.process.pid, signal.SIGCONT)
                await until(stored)
            nursery.cancel_scope.cancel()


async def test_an_address_where_nothing_listens_is_unavailable_and_a_bad_one_refused(own_server: RedisProcess) -> None:
    own_server.kill()
    async with opened(own_server.url) as store:
        with pytest.raises(Unavailable, match="store 127"):
            await store.nodes()
    with pytest.raises(BadInput, match="store"):
        async with opened("http://127.0.0.1"):
            pass


async def test_a_server_that_wants_a_password_gets_it(tmp_path: Path) -> None:
    with RedisProcess(tmp_path, "--requirepass", "secret") as server:
        async with opened(server.url.replace("//", "//:secret@")) as store:
            await patient(store.nodes)
        for url in (server.url, server.url.replace("//", "//:wrong@")):
            async with opened(url) as store:
                with pytest.raises(Unavailable) as caught:
                    await patient(store.nodes)
                assert "wrong" not in str(caught.value)


async def test_a_cluster_decides_too(tmp_path: Path) -> None:
    rules = rules_of(
        read_contract(
            {
                "namespace": "api",
                "subject": "*",
                "policies": [
                    {"name": "burst", "rate": 1, "burst": 1},
                    {"name": "daily", "kind": "window", "quota": 5, "window": "1d"},
                ],
            }
        )
    )
    bus = str(free_port())  # else 10,000 above the server's port, which may be above 65,535
    options = ("--cluster-enabled", "yes", "--cluster-port", bus)
    with RedisProcess(tmp_path, *options) as server, server.asking() as ask:
        ask("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        with trio.fail_after(30):
            while b"cluster_state:ok" not in ask("CLUSTER", "INFO"):  # noqa: ASYNC110
                await trio.sleep(0.05)
        async with opened(server.url.replace("redis:", "redis+cluster:")) as store:
            nodes, _ = await patient(store.nodes)
            assert nodes == 1
            keys = rules.keys(subject_hash("api", "user"))
            words = ["take", rules.script, 1, "ab", 0, 1_795_000_000_000_000]
            answers = [(await patient(lambda: store.decide(keys, words)))[0] for _ in range(2)]
            assert answers == [1, 0]


async def patient(call: Callable[[], Any]) -> Any:
    """What a call gives, again while a busy machine takes more than 200 ms for it."""
    with trio.fail_after(30):
        while True:
            try:
                return await call()
            except Unavailable as error:
                if "no answer" not in str(error):
                    raise
