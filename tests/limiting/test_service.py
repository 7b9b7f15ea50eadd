"""The limit service on real sockets, by its command: start, checks by both protocols, contracts that outlive it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from limiting.config import LimitConfig, header_families
from limiting.service import BoundAddresses, serve
from srtm.client.limit_service import LimitClient
from srtm.errors import BadInput, NotFound, Unavailable
from srtm.log import Log
from srtm.net.renewals import Renewals
from srtm.net.tokens import Tokens
from srtm.operations.limit_load import Plan, bench_service

pytestmark = pytest.mark.slow

PEM, KEY = (str(Path(__file__).parent.parent / "certificates" / f"distributor.{end}") for end in ("pem", "key"))
FILE = """
[[contracts]]
namespace = "api"
subject = "user:*"
policies = [{name = "burst", rate = 0.001, burst = 2}]
"""
PLANS = """
[[contracts]]
namespace = "plans"
subject = "*"
policies = [{name = "burst", rate = 1, burst = 2}]
"""


def config(tmp_path: Path, **changes: object) -> LimitConfig:
    file = tmp_path / "contracts.toml"
    file.write_text(FILE)
    ports = {"http_address": "127.0.0.1:0", "resp_address": "127.0.0.1:0"}
    return LimitConfig(**{**ports, "contracts": file, "data": tmp_path / "data", **changes})


async def test_it_answers_http_and_redis_clients_and_keeps_contracts(tmp_path: Path) -> None:
    with trio.fail_after(30):
        for attempt in range(2):
            async with trio.open_nursery() as nursery:
                bound: BoundAddresses = await nursery.start(serve, config(tmp_path))
                async with LimitClient(f"http://{bound.http}") as client:
                    said = [(await client.check("api", ["user:a/b"]))["allowed"] for _ in range(3)]
                    assert said == [True, True, False]
                    contracts = [each["subject"] for each in await client.contracts()]
                    assert contracts == ["user:*"] if attempt == 0 else ["*", "user:*"]
                    document = {"namespace": "api", "subject": "*", "policies": [{"name": "p", "rate": 1, "burst": 1}]}
                    version = (await client.put(document))["version"]
                    assert (await client.contract("api", "*"))["version"] == version
                    assert (await client.ban("api", "."))["allowed"] is False
                    await client.reset("api", ".")
                    assert (await client.subject("api", "."))["allowed"]
                    assert (await client.usage())[0]["refused"] == 1
                    with pytest.raises(NotFound):
                        await client.remove("api", "none")
                assert bound.resp is not None
                await throttled(bound.resp)
                nursery.cancel_scope.cancel()


async def test_what_was_used_of_a_policy_that_persists_outlives_the_service(tmp_path: Path) -> None:
    settings = config(tmp_path, resp_address=None, contracts=persisting(tmp_path))
    with trio.fail_after(30):
        for allowed in ([True, True, True], [True, False, False]):
            async with trio.open_nursery() as nursery:
                bound: BoundAddresses = await nursery.start(serve, settings)
                async with LimitClient(f"http://{bound.http}") as client:
                    said = [(await client.check("api", ["user:1"]))["allowed"] for _ in range(3)]
                    assert said == allowed
                nursery.cancel_scope.cancel()
    with pytest.raises(BadInput, match=r"policies\[?.*persist.*--data"):
        await serve(config(tmp_path, data=None, contracts=persisting(tmp_path)))


def persisting(tmp_path: Path) -> Path:
    file = tmp_path / "persisting.toml"
    file.write_text(FILE.replace("burst = 2", "burst = 4, persist = true"))
    return file


async def throttled(address: str) -> None:
    host, _, port = address.rpartition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    await stream.send_all(b"CL.THROTTLE user:1 0 1 60\r\n")
    assert bytes(await stream.receive_some()).startswith(b"*5\r\n:0\r\n:1\r\n")
    await stream.aclose()


async def test_ports_in_use_and_bad_contracts_are_refused(tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            bound: BoundAddresses = await nursery.start(serve, config(tmp_path))
            for option, address in (("http_address", bound.http), ("resp_address", bound.resp)):
                with pytest.RaisesGroup(Unavailable, allow_unwrapped=True, flatten_subgroups=True) as caught:
                    await serve(config(tmp_path, data=None, **{option: address}))
                assert option in repr(caught.value)
            nursery.cancel_scope.cancel()
    (tmp_path / "bad.toml").write_text(FILE.replace("burst = 2", "burst = 0"))
    with pytest.raises(BadInput, match="burst"):
        await serve(config(tmp_path, contracts=tmp_path / "bad.toml"))


async def test_a_client_without_a_known_token_is_refused(tmp_path: Path) -> None:
    tokens = Tokens.of_one("secret")
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            bound: BoundAddresses = await nursery.start(serve, config(tmp_path, tokens=tokens))
            async with LimitClient(f"http://{bound.http}", token="wrong") as client:
                with pytest.raises(BadInput, match="token"):
                    await client.check("api", ["user:1"])
            async with LimitClient(f"http://{bound.http}", token="secret") as client:
                assert (await client.check("api", ["user:1"]))["allowed"]
            nursery.cancel_scope.cancel()
    async with LimitClient(f"http://{bound.http}") as client:
        with pytest.raises(Unavailable):
            await client.contracts()


async def test_it_is_measured_by_both_protocols(tmp_path: Path) -> None:
    plan = Plan(rate=100, seconds=0.5, connections=2, subjects=3)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            bound: BoundAddresses = await nursery.start(serve, config(tmp_path, tokens=Tokens.of_one("secret")))
            await put_for_all(bound)
            for url, resp in ((f"http://{bound.http}", None), (None, bound.resp)):
                found = await bench_service(url, resp, "api", "secret", plan)
                assert (found["decisions"], found["errors"]) == (len(list(plan.instants())), 0)
                assert found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
                wrong = await bench_service(url, resp, "api", "wrong", plan)
                assert (wrong["decisions"], wrong["errors"]) == (0, found["decisions"])
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_with_a_certificate_the_redis_protocol_speaks_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    plan = Plan(rate=100, seconds=0.2, connections=2, subjects=3)
    settings = config(tmp_path, tokens=Tokens.of_one("secret"), tls_cert=PEM, tls_key=KEY)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            bound: BoundAddresses = await nursery.start(serve, settings)
            assert bound.resp is not None
            address = bound.resp.replace("127.0.0.1", host)
            with pytest.raises(Unavailable, match="from nobody who is trusted here"):
                await bench_service(None, f"rediss://{address}", "api", "secret", plan)
            monkeypatch.setenv("SRTM_CA_FILE", PEM)
            found = await bench_service(None, f"rediss://{address}", "api", "secret", plan)
            assert (found["decisions"], found["errors"]) == (len(list(plan.instants())), 0)
            with pytest.raises(Unavailable, match="closed the connection"):
                await bench_service(None, address, "api", "secret", plan)
            nursery.cancel_scope.cancel()


async def test_with_a_certificate_checks_and_all_other_routes_have_one_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRTM_CA_FILE", PEM)
    settings = config(tmp_path, tls_cert=PEM, tls_key=KEY)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            bound: BoundAddresses = await nursery.start(serve, settings)
            async with LimitClient(f"https://{bound.http}") as client:
                for allowed in (True, True, False):
                    assert (await client.check("api", ["user:1"]))["allowed"] is allowed
                    assert [each["subject"] for each in await client.contracts()] == ["user:*"]
            nursery.cancel_scope.cancel()


CHECK = b'{"namespace": "api", "subject": "user:1"}'
HEAD = b"POST /limit/v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 41\r\n"
UNUSUAL = [
    (HEAD + b"\r\n" + CHECK, 200),
    (HEAD.replace(b"\r\n", b"\n") + b"\n" + CHECK, 200),
    (HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n" + CHECK, 200),
    (HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Connection: keep-alive\r\n\r\n" + CHECK, 200),
    (HEAD + b"Expect: 100-continue\r\n\r\n" + CHECK, 100),
    (
        HEAD.replace(b"Content-Length: 41", b"Transfer-Encoding: chunked") + b"\r\n29\r\n" + CHECK + b"\r\n0\r\n\r\n",
        200,
    ),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\n29\r\n" + CHECK + b"\r\n0\r\n\r\n", 400),
    (HEAD + b"Content-Length: 40\r\n\r\n" + CHECK, 400),
    (HEAD + b"X: \0\r\n\r\n" + CHECK, 400),
    (HEAD + b"X: " + b"x" * (64 << 10) + b"\r\n\r\n" + CHECK, 431),
    (b"GET /limit/v1/check?subject=" + b"x" * (64 << 10) + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
    (HEAD.replace(b"41", b"5000000") + b"\r\n" + b" " * 5_000_000, 413),
    (HEAD.replace(b"41", b"100000") + b"\r\n" + CHECK + b" " * (100_000 - 41), 200),
    (HEAD.replace(b"Host: a\r\n", b"") + b"\r\n" + CHECK, 400),
    (b"nothing\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 200),
]


async def test_what_is_unusual_is_answered_by_the_server_behind(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            bound: BoundAddresses = await nursery.start(serve, config(tmp_path))
            host, _, port = bound.http.rpartition(":")
            for request, status in UNUSUAL:
                async with await trio.open_tcp_stream(host, int(port)) as stream, trio.open_nursery() as sending:
                    sending.start_soon(_send, stream, HEAD + b"\r\n" + CHECK + request)
                    said = b""
                    while len(statuses := re.findall(rb"HTTP/1.1 (\d+)", said)) < 2:
                        said += await stream.receive_some()
                    assert statuses[:2] == [b"200", b"%d" % status], request[:200]
                    sending.cancel_scope.cancel()
            nursery.cancel_scope.cancel()


async def _send(stream: trio.abc.Stream, content: bytes) -> None:
    with suppress(trio.BrokenResourceError):  # the answer may come before all is read
        await stream.send_all(content)


async def test_tls_where_the_redis_protocol_is_in_clear_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRTM_CA_FILE", PEM)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            bound: BoundAddresses = await nursery.start(serve, config(tmp_path))
            with pytest.raises(Unavailable, match="does not speak TLS: should it be redis://"):
                await bench_service(None, f"rediss://{bound.resp}", "api", None, Plan(rate=10, seconds=0.1))
            nursery.cancel_scope.cancel()


async def put_for_all(bound: BoundAddresses) -> None:
    document = {"namespace": "api", "subject": "bench-*", "policies": [{"name": "p", "rate": 1, "burst": 1}]}
    async with LimitClient(f"http://{bound.http}", token="secret") as client:
        await client.put(document)


def test_families_of_headers_are_read() -> None:
    assert header_families("none") == ()
    assert header_families("retry-after, ratelimit") == ("ratelimit", "retry-after")
    with pytest.raises(BadInput, match="must be of ratelimit"):
        header_families("ratelimit,x")
    with pytest.raises(BadInput, match="must be of ratelimit"):
        header_families("ratelimit,ratelimit")


async def test_plans_are_read_again_on_demand(tmp_path: Path) -> None:
    plans = tmp_path / "plans.csv"
    plans.write_text("namespace,subject,plan\nplans,1,gold\n")
    renewals = Renewals(Log("limit"))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            settings = config(tmp_path, plans=plans)
            (tmp_path / "contracts.toml").write_text(PLANS)
            bound: BoundAddresses = await nursery.start(serve, settings, renewals)
            async with LimitClient(f"http://{bound.http}") as client:
                assert (await client.check("plans", ["{plan}/1"]))["subjects"][0]["subject"] == "gold/1"
                plans.write_text("namespace,subject,plan\nplans,1,silver\n")
                renewals.take_all()
                assert (await client.check("plans", ["{plan}/1"]))["subjects"][0]["subject"] == "silver/1"
            nursery.cancel_scope.cancel()
    with pytest.raises(BadInput, match="plans"):
        await serve(config(tmp_path, plans=tmp_path / "none.csv"))
