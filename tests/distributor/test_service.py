"""The service on a real socket: start, stop, refusals to start."""

import socket

import httpx
import pytest
import trio

from distributor.config import DistributorConfig
from distributor.service import serve
from srtm.errors import BadInput, Unavailable

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


async def test_a_body_above_the_limit_is_refused(tmp_path):
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(serve, config(tmp_path, max_body_bytes=100))
            async with httpx.AsyncClient(base_url=f"http://{bound.http}", trust_env=False) as client:
                answer = await client.put("/v1/topics/cars", content=b" " * 101)
            nursery.cancel_scope.cancel()
    assert answer.status_code == 413
    assert answer.json()["rule"] == "must be at most 100 bytes"


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
