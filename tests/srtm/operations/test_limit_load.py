"""The load of ``srtm limit bench``: what it sends, what it reads, and that waiting is not hidden."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from srtm.errors import BadInput, PeerError, Unavailable
from srtm.operations.limit_load import Answer, Heard, OverHttp, OverResp, Plan, Wire, bench_service, offered, quantile

HTTP = OverHttp("limit:4196", "a b", "secret")
RESP = OverResp(token="secret")


def http_answer(status: str, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\nX: y\r\n\r\n%s" % (status.encode(), len(body), body)


THROTTLED = b"*5\r\n:1\r\n:16\r\n:0\r\n:2\r\n:32\r\n"


def test_requests_are_whole() -> None:
    text = HTTP.request("user:1/ä").decode()
    assert text.startswith("GET /limit/v1/check?namespace=a%20b&subject=user%3A1/%C3%A4&status=429 HTTP/1.1\r\n")
    assert "Authorization: Bearer secret\r\n" in text
    assert RESP.request("ä") == "*5\r\n$11\r\nCL.THROTTLE\r\n$2\r\nä\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n".encode()
    assert RESP.hello == b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"
    assert "secret" not in repr((HTTP, RESP))


@pytest.mark.parametrize(
    ("wire", "content", "allowed"),
    [
        (HTTP, http_answer("200 OK"), True),
        (HTTP, http_answer("429 Too Many Requests", b"{}"), False),
        (HTTP, http_answer("404 Not Found", b"{}"), None),
        (RESP, THROTTLED, False),
        (RESP, THROTTLED.replace(b":1\r\n", b":0\r\n", 1), True),
        (RESP, b"-NOAUTH Authentication required.\r\n", None),
        (RESP, b"+OK\r\n", None),
    ],
)
def test_answers_are_read_however_they_are_cut(wire: Wire, content: bytes, allowed: bool | None) -> None:
    for cut in range(len(content)):
        assert wire.answer(content[:cut]) is None
    assert wire.answer(content + b"more") == Answer(len(content), allowed)


@pytest.mark.parametrize(
    ("wire", "content"),
    [
        (HTTP, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (HTTP, b"SSH-2.0\r\n\r\n"),
        (RESP, b"$2\r\nab\r\n"),
    ],
)
def test_answers_of_something_else_are_refused(wire: Wire, content: bytes) -> None:
    with pytest.raises(PeerError):
        wire.answer(content)


def test_a_plan_has_its_rate_and_is_the_same_again() -> None:
    plan = Plan(rate=100, seconds=50)
    instants = list(plan.instants())
    assert instants == sorted(instants) == list(plan.instants())
    assert len(instants) == pytest.approx(5_000, rel=0.05)
    assert instants[-1] < 50


def test_quantiles_are_values_of_the_list() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [quantile(values, part) for part in (0.5, 0.99, 0.999, 1)] == [50, 99, 100, 100]
    assert quantile([], 0.5) == 0


Serve = Callable[[trio.abc.Stream], Awaitable[None]]


async def heard(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, serve: Serve, plan: Plan) -> Heard:
    async def connect(*_: object) -> trio.abc.Stream:
        here, there = memory_stream_pair()
        nursery.start_soon(serve, there)
        return here

    monkeypatch.setattr(trio, "open_tcp_stream", connect)
    return await offered("limit", 1, OverResp(), plan)


async def answer_each(stream: trio.abc.Stream, after_s: float) -> None:
    async for _ in stream:
        await trio.sleep(after_s)
        await stream.send_all(THROTTLED)


async def test_latency_counts_from_when_a_check_was_due(
    autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(rate=10, seconds=20, connections=1)
    found = await heard(nursery, monkeypatch, partial(answer_each, after_s=0.2), plan)
    asked = len(list(plan.instants()))
    assert (found.refused, found.allowed, found.errors) == (asked, 0, 0)
    assert max(found.latencies_s) == pytest.approx(asked * 0.2 - 20, abs=1), "half of all wait behind the others"
    assert found.to_json()["decisions_per_second"] == pytest.approx(5, rel=0.1)
    assert max(found.late_s) < 0.001, "this side was never late"


async def test_enough_connections_wait_for_nobody(
    autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await heard(
        nursery, monkeypatch, partial(answer_each, after_s=0.001), Plan(rate=10, seconds=20, connections=50)
    )
    assert found.to_json()["p99_ms"] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("after_s", "rule"), [(11.0, "gave no answer within 10 s"), (None, "closed the connection")])
async def test_a_service_that_stops_answering_is_unavailable(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    after_s: float | None,
    rule: str,
) -> None:
    async def close(stream: trio.abc.Stream) -> None:
        await stream.aclose()

    serve = close if after_s is None else partial(answer_each, after_s=after_s)
    with pytest.raises(Unavailable, match=rule):
        await heard(nursery, monkeypatch, serve, Plan(rate=10, seconds=2, connections=1))


async def test_addresses_that_cannot_be_are_refused() -> None:
    plan = Plan(rate=10, seconds=1)
    with pytest.raises(BadInput, match="resp"):
        await bench_service(None, ":1", "api", None, plan)
    with pytest.raises(BadInput, match="rediss://HOST:PORT for TLS"):
        await bench_service(None, "https://h:1", "api", None, plan)
    with pytest.raises(BadInput, match="url"):
        await bench_service("ftp://h", None, "api", None, plan)
    with pytest.raises(Unavailable, match="does not take a connection"):
        await bench_service("http://127.0.0.1:9", None, "api", None, plan)
