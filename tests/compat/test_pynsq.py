"""pynsq, unmodified, against our broker: its Writer and its Reader, found by address and through the distributor's
lookup routes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from broker import service
from broker.config import BrokerConfig
from srtm.http_api import HttpServer, Request, Response, json_response
from srtm.log import Log
from srtm.supervisor import Cluster, cluster

pytestmark = pytest.mark.slow
COUNT = 100


@pytest.fixture
async def two_brokers(tmp_path: Path) -> AsyncIterator[Cluster]:
    with trio.fail_after(50):
        async with cluster(brokers=2, mcap=10_000, data=tmp_path) as running:
            yield running


async def run_program(how: str, address: str, *lookups: str, **environment: str) -> dict[str, object]:
    """See ``pynsq_program.py``; it ends by itself."""
    program = Path(__file__).with_name("pynsq_program.py")
    command = [sys.executable, str(program), how, address, "from-pynsq", str(COUNT), *lookups]
    env = {**os.environ, **environment}
    ended = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False, env=env)
    assert ended.returncode == 0, ended.stderr.decode()
    said: dict[str, object] = json.loads(ended.stdout)
    return said


ALL = {"bodies": [str(number) for number in range(COUNT)], "answers": {"OK": COUNT // 2 + 2}}


async def test_its_reader_finds_the_broker_by_address(two_brokers: Cluster) -> None:
    assert await run_program("by-address", two_brokers.brokers[0].tcp_address) == ALL


async def test_its_reader_finds_the_broker_by_the_distributors_lookup(two_brokers: Cluster) -> None:
    """The second broker, so that only a lookup can tell which."""
    assert await run_program("by-lookup", two_brokers.brokers[1].tcp_address, two_brokers.distributor) == ALL


async def test_both_say_auth_where_it_is_required(tmp_path: Path, nursery: trio.Nursery) -> None:
    rule = {"topic": "^from-pynsq$", "channels": [".*"], "permissions": ["subscribe", "publish"]}
    asked = []

    async def answer(request: Request) -> Response:
        asked.append(request.query)
        return json_response({"ttl": 60, "identity": "pynsq", "authorizations": [rule]})

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(HttpServer(answer, Log("auth", lambda _line: None)).serve, listeners)
    auth = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    config = BrokerConfig(
        name="b1",
        tcp_address="127.0.0.1:0",
        http_address="127.0.0.1:0",
        data_path=str(tmp_path),
        auth_http_addresses=(auth,),
    )
    bound = await nursery.start(service.serve, config)
    with trio.fail_after(40):
        assert await run_program("by-address", bound.tcp, AUTH_SECRET="s3cret") == ALL
    assert asked == ["common_name=&remote_ip=127.0.0.1&secret=s3cret&tls=false"] * 2
    nursery.cancel_scope.cancel()
