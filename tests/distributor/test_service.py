"""The service on a real socket: start, stop, refusals to start."""

import socket
from contextlib import ExitStack, suppress

import httpx
import pytest
import trio

from distributor.config import DistributorConfig
from distributor.service import advertised_address, serve
from srtm.errors import BadInput, Unavailable
from srtm.web.fronted import serve_fronted

pytestmark = pytest.mark.slow


def config(tmp_path, **changes: object) -> DistributorConfig:
    return DistributorConfig(
        **{"http_address": "127.0.0.1:0", "store": f"sqlite:///{tmp_path / 's.sqlite3'}", **changes}
    )


async def test_it_answers_on_a_free_port_and_what_it_was_told_survives_a_restart(tmp_path):
    topic = {
        "rate": 10,
        "burst": 2,
        "slo": {"percentile": 99, "latency_ms": 5},
        "publishers": [{"count": 1, "rate": 5}],
    }
    for attempt in range(2):
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                bound = await nursery.start(serve, config(tmp_path))
                async with httpx.AsyncClient(base_url=f"http://{bound.http}", trust_env=False) as client:
                    if attempt == 0:
                        assert (await client.put("/v1/topics/cars", json=topic)).json()["state"] == "waiting"
                    assert [one["name"] for one in (await client.get("/v1/topics")).json()] == ["cars"]
                nursery.cancel_scope.cancel()
        with pytest.raises(OSError), socket.create_connection(bound.http.split(":")):
            pass


async def test_a_request_under_way_is_answered_before_it_stops(tmp_path):
    request = {"incarnation": "1", "srtm_version": "0", "tcp_address": "127.0.0.1:1", "http_address": "127.0.0.1:2"}
    answers = []
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            stop = trio.CancelScope()

            async def run(task_status: trio.TaskStatus) -> None:
                with stop:
                    await serve(config(tmp_path), task_status=task_status)

            bound = await nursery.start(run)
            async with httpx.AsyncClient(base_url=f"http://{bound.http}", trust_env=False, timeout=10) as client:
                first = await client.post("/v1/brokers/a/sync", json={**request, "mcap": 1})
                poll = {**request, "mcap": 1, "have_version": first.json()["version"], "wait_s": 0.5}

                async def long_poll() -> None:
                    answers.append(await client.post("/v1/brokers/a/sync", json=poll))

                async with trio.open_nursery() as polling:
                    polling.start_soon(long_poll)
                    while not (await client.get("/v1/brokers/a")).json()["last_sync_s_ago"] < 0.1:
                        await trio.lowlevel.checkpoint()
                    stop.cancel()
    (answer,) = answers
    assert answer.json()["unchanged"] is True


@pytest.mark.timeout(30)  # what hangs here is shielded from ``fail_after``
async def test_stopped_while_it_starts_it_ends_at_once(tmp_path, monkeypatch):
    """The stop comes when the HTTP server has begun and does not listen yet."""

    async def begun(*arguments: object, **keywords: object) -> None:
        starting.cancel()
        await serve_fronted(*arguments, **keywords)

    monkeypatch.setattr("srtm.web.serving.serve_fronted", begun)
    with trio.CancelScope() as starting:
        await serve(config(tmp_path))
    assert starting.cancelled_caught


async def test_a_body_above_the_limit_is_refused(tmp_path):
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(serve, config(tmp_path, max_body_bytes=100))
            async with httpx.AsyncClient(base_url=f"http://{bound.http}", trust_env=False) as client:
                answer = await client.put("/v1/topics/cars", content=b" " * 101)
            nursery.cancel_scope.cancel()
    assert answer.status_code == 413
    assert answer.json()["rule"] == "must be at most 100 bytes"


async def test_a_fleet_that_comes_at_once_waits_in_line(tmp_path):
    """The server has no turn between these: whoever found no room in the kernel's queue would time out."""
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(serve, config(tmp_path))
        with ExitStack() as connections:
            for _ in range(500):
                connections.enter_context(socket.create_connection(bound.http.split(":"), timeout=5))
        nursery.cancel_scope.cancel()


async def test_a_port_in_use_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Unavailable, match="in use by another process"):
            await serve(config(tmp_path, http_address=address))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "256.1.1.1:80"])
async def test_what_is_no_address_is_refused(tmp_path, address):
    with pytest.raises(BadInput, match="http_address"):
        await serve(config(tmp_path, http_address=address))


async def test_a_store_that_another_distributor_has_is_refused_and_the_port_is_free_again(tmp_path):
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, config(tmp_path))
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            with pytest.raises(Unavailable, match="locked"):
                await serve(config(tmp_path, http_address=f"127.0.0.1:{port}"))
            socket.create_server(("127.0.0.1", port)).close()
            nursery.cancel_scope.cancel()


HOSTILE = {
    "no HTTP": b"  V2IDENTIFY\n\x00\x00\x00\x02{}",
    "random bytes": bytes(range(256)) * 20,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
    "an endless head": b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000,
    "a path that is not ASCII": b"GET /v1/topics/\xff\xfe HTTP/1.1\r\nHost: d\r\n\r\n",
    "a path that is not UTF-8": b"GET /v1/topics/%ff%00 HTTP/1.1\r\nHost: d\r\n\r\n",
    "a negative length": b"PUT /v1/topics/t HTTP/1.1\r\nHost: d\r\nContent-Length: -5\r\n\r\n",
    "a broken chunk": b"PUT /v1/topics/t HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "half a body": b"PUT /v1/topics/t HTTP/1.1\r\nHost: d\r\nContent-Length: 500\r\n\r\n{",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


async def test_hostile_bytes_cost_their_sender_the_connection_and_nobody_else_anything(tmp_path, capfd):
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(serve, config(tmp_path))
            for what, content in HOSTILE.items():
                stream = await trio.open_tcp_stream("127.0.0.1", int(bound.http.split(":")[1]))
                async with stream, httpx.AsyncClient(base_url=f"http://{bound.http}", trust_env=False) as client:
                    try:
                        await stream.send_all(content)
                        await stream.send_eof()
                        with trio.move_on_after(0.1):
                            assert not (await stream.receive_some()).startswith(b"HTTP/1.1 5"), what
                    except trio.BrokenResourceError:
                        pass  # it was cut off
                    assert (await client.get("/healthz")).status_code == 200, what
                    assert (await client.get("/v1/topics")).json() == [], what
            nursery.cancel_scope.cancel()
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("behind", [b"", b"GET /ping HTTP/1.1\r\nHost: d\r\n\r\n"])
async def test_a_body_with_two_lengths_is_refused_and_what_follows_it_is_no_request(tmp_path, behind):
    smuggled = b"POST /v1/plan HTTP/1.1\r\nHost: d\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    answer = b""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(serve, config(tmp_path))
            stream = await trio.open_tcp_stream("127.0.0.1", int(bound.http.split(":")[1]))
            async with stream:
                await stream.send_all(smuggled + behind)
                with suppress(trio.BrokenResourceError):  # it is cut off with what it sent behind
                    async for part in stream:
                        answer += part
            nursery.cancel_scope.cancel()
    assert b"HTTP/1.1 200" not in answer
    assert behind or (answer.startswith(b"HTTP/1.1 400") and b"connection: close" in answer)


async def test_a_stalled_body_is_answered_and_its_connection_closed(tmp_path):
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(serve, config(tmp_path, body_timeout_s=0.1))
            stream = await trio.open_tcp_stream("127.0.0.1", int(bound.http.split(":")[1]))
            async with stream:
                await stream.send_all(b"POST /v1/plan HTTP/1.1\r\nHost: d\r\nContent-Length: 50\r\n\r\n{")
                answer = b"".join([part async for part in stream])
            nursery.cancel_scope.cancel()
    assert answer.startswith(b"HTTP/1.1 408")


def test_others_are_told_the_host_that_is_bound_the_name_of_this_one_or_what_the_operator_says():
    anywhere = DistributorConfig(http_address="0.0.0.0:0")
    assert advertised_address(DistributorConfig(), "127.0.0.1:4190") == "127.0.0.1:4190"
    assert advertised_address(anywhere, "0.0.0.0:4190") == f"{socket.gethostname()}:4190"
    assert advertised_address(DistributorConfig(broadcast_address="10.0.0.1"), "0.0.0.0:4190") == "10.0.0.1:4190"
    assert advertised_address(DistributorConfig(broadcast_address="::1"), "[::]:4190") == "[::1]:4190"
    with pytest.raises(BadInput, match="broadcast_address: 'd:80': must be a host without a port"):
        DistributorConfig(broadcast_address="d:80")
