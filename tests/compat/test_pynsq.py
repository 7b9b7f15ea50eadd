"""pynsq, unmodified, against our broker: its Writer and its Reader, found by address and through the distributor's
lookup routes, in clear and under every pair of TLS and compression."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from broker.config import BrokerConfig, EngineConfig
from broker.service import serve
from srtm.cluster.supervisor import Cluster, cluster
from srtm.net.http_server import Request, Response, json_response
from tests.support.http_server import serve_http

pytestmark = pytest.mark.slow
COUNT = 100
CERTIFICATES = Path(__file__).resolve().parents[1] / "certificates"


@pytest.fixture
async def two_brokers(tmp_path: Path) -> AsyncIterator[Cluster]:
    with trio.fail_after(50):
        async with cluster(brokers=2, mcap=10_000, data=tmp_path) as running:
            yield running


async def run_program(how: str, address: str, *lookups: str, settings: str = "") -> dict[str, object]:
    """See ``pynsq_program.py``; it ends by itself."""
    program = Path(__file__).with_name("pynsq_program.py")
    first = [f"--settings={settings}"] if settings else []
    command = [sys.executable, str(program), *first, how, address, "from-pynsq", str(COUNT), *lookups]
    ended = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    said: dict[str, object] = json.loads(ended.stdout)
    return said


def everything(wrapped: str) -> dict[str, object]:
    bodies = [str(number) for number in range(COUNT)]
    return {"bodies": bodies, "answers": {"OK": COUNT // 2 + 2}, "wrapped": wrapped}


ALL = everything("DefaultEncoder")


async def test_its_reader_finds_the_broker_by_address(two_brokers: Cluster) -> None:
    assert await run_program("by-address", two_brokers.brokers[0].tcp_address) == ALL


async def test_its_reader_finds_the_broker_by_the_distributors_lookup(two_brokers: Cluster) -> None:
    """The second broker, so that only a lookup can tell which."""
    assert await run_program("by-lookup", two_brokers.brokers[1].tcp_address, two_brokers.distributor) == ALL


@pytest.mark.parametrize(
    ("settings", "wrapped"),
    [
        ('{"deflate": true, "deflate_level": 9}', "DeflateEncoder"),
        ('{"snappy": true}', "SnappyEncoder"),
        ('{"tls_v1": true}', "TLS+DefaultEncoder"),
        ('{"tls_v1": true, "deflate": true}', "TLS+DeflateEncoder"),
        ('{"tls_v1": true, "snappy": true}', "TLS+SnappyEncoder"),
    ],
)
async def test_it_speaks_tls_and_compression(tmp_path: Path, settings: str, wrapped: str) -> None:
    config = BrokerConfig(
        name="b",
        tcp_address="127.0.0.1:0",
        http_address="127.0.0.1:0",
        data_path=str(tmp_path),
        tls_cert=str(CERTIFICATES / "server.pem"),
        tls_key=str(CERTIFICATES / "server.key"),
        engine=EngineConfig(tls_required="tcp-https" if wrapped.startswith("TLS") else "false"),
    )
    with trio.fail_after(50):
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(serve, config)
            assert await run_program("by-address", bound.tcp, settings=settings) == everything(wrapped)
            nursery.cancel_scope.cancel()


async def test_both_say_auth_where_it_is_required(tmp_path: Path, nursery: trio.Nursery) -> None:
    rule = {"topic": "^from-pynsq$", "channels": [".*"], "permissions": ["subscribe", "publish"]}
    asked = []

    async def answer(request: Request) -> Response:
        asked.append(request.query)
        return json_response({"ttl": 60, "identity": "pynsq", "authorizations": [rule]})

    config = BrokerConfig(
        name="b1",
        tcp_address="127.0.0.1:0",
        http_address="127.0.0.1:0",
        data_path=str(tmp_path),
        auth_http_addresses=(await serve_http(nursery, answer),),
    )
    bound = await nursery.start(serve, config)
    with trio.fail_after(40):
        said = await run_program("by-address", bound.tcp, settings='{"auth_secret": "s3cret"}')
    assert said == everything("DefaultEncoder")
    assert asked == ["common_name=&remote_ip=127.0.0.1&secret=s3cret&tls=false"] * 2
    nursery.cancel_scope.cancel()
