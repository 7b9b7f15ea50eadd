"""The rate limit service over sockets, asked by the stock gRPC client: answers, errors, tokens, TLS, health, bounds."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import trio
from trio.testing import memory_stream_pair

from limiting.config import LimitConfig
from limiting.envoy.rate_limits import RateLimitRequest, RateLimitResponse
from limiting.grpc_server import SERVICE, SHOULD_RATE_LIMIT, GrpcServer
from limiting.listeners import FIRST_S, Door
from limiting.redis_server import RedisServer
from limiting.service import BoundAddresses, serve
from srtm.net.tokens import Tokens
from tests.support.envoy_messages import MESSAGES, request

CERTIFICATES = Path(__file__).parent.parent / "certificates"
FILE = """
[[contracts]]
namespace = "edge"
subject = "remote_address=*"
policies = [{ name = "burst", rate = 0.001, burst = 3 }]
"""
OK, OVER_LIMIT = 1, 2


class Client:
    """grpcio's, in threads."""

    def __init__(self, address: str, trusted: bytes | None = None) -> None:
        if trusted is None:
            self._channel = grpc.insecure_channel(address)
        else:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted))

    def method(self, path: str, answer: str = "Response") -> Any:
        return self._channel.unary_unary(
            path,
            request_serializer=lambda made: made.SerializeToString(),
            response_deserializer=MESSAGES[answer].FromString,
        )

    def should_rate_limit(self, asked: Any, **options: Any) -> Any:
        return self.method(SHOULD_RATE_LIMIT)(asked, timeout=20, **options)

    def health(self, service: str) -> int:
        asked = MESSAGES["HealthRequest"](service=service)
        return self.method("/grpc.health.v1.Health/Check", "HealthResponse")(asked, timeout=20).status

    def watch(self, service: str) -> int:
        method = self._channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=lambda made: made.SerializeToString(),
            response_deserializer=MESSAGES["HealthResponse"].FromString,
        )
        answers = method(MESSAGES["HealthRequest"](service=service), timeout=20)
        first = next(iter(answers)).status
        answers.cancel()
        return first

    def close(self) -> None:
        self._channel.close()


@pytest.fixture
def clients() -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def make(*arguments: Any) -> Client:
        made.append(Client(*arguments))
        return made[-1]

    yield make
    for each in made:
        each.close()


@asynccontextmanager
async def service(tmp_path: Path, **changes: Any) -> AsyncIterator[BoundAddresses]:
    (tmp_path / "contracts.toml").write_text(FILE)
    ports = {"http_address": "127.0.0.1:0", "grpc_address": "127.0.0.1:0", "resp_address": "127.0.0.1:0"}
    config = LimitConfig(**{**ports, "contracts": tmp_path / "contracts.toml", **changes})
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            yield await nursery.start(serve, config)
            nursery.cancel_scope.cancel()


def asked(address: str = "10.0.0.1", hits: int = 0) -> Any:
    return request("edge", {"remote_address": address}, hits=hits)


def code_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    error: Any = refused.value
    return error.code(), error.details()


@pytest.mark.slow
async def test_the_stock_client_is_answered(tmp_path: Path, clients: Callable[..., Client]) -> None:
    async with service(tmp_path) as bound:
        client = clients(bound.grpc)
        call = partial(trio.to_thread.run_sync, client.should_rate_limit)
        said = [await call(asked()) for _ in range(4)]
        assert [each.overall_code for each in said] == [OK, OK, OK, OVER_LIMIT]
        assert [each.statuses[0].limit_remaining for each in said] == [2, 1, 0, 0]
        assert {each.key for each in said[3].response_headers_to_add} >= {"RateLimit", "Retry-After"}
        assert said[3].statuses[0].current_limit.name == "burst"
        for name in ("10.0.0.2", "x" * 2_000):  # whoever sends a long header is limited too
            assert [(await call(asked(name, 2))).overall_code for _ in range(2)] == [OK, OVER_LIMIT]
        assert (await call(request("edge", {"other": "key"}))).overall_code == OK


@pytest.mark.slow
async def test_what_cannot_be_asked_has_a_status_and_a_text(tmp_path: Path, clients: Callable[..., Client]) -> None:
    async with service(tmp_path) as bound:
        client = clients(bound.grpc)

        def ask_all() -> list[tuple[grpc.StatusCode, str]]:
            other = MESSAGES["HealthRequest"]()
            return [
                code_of(lambda: client.should_rate_limit(request("nobody", {"a": "b"}))),
                code_of(lambda: client.should_rate_limit(request("", {"a": "b"}))),
                code_of(lambda: client.should_rate_limit(asked("x" * 65_536))),
                code_of(lambda: client.method("/package.Service/Method")(other, timeout=20)),
                code_of(lambda: client.should_rate_limit(asked("1" * 600), compression=grpc.Compression.Gzip)),
                code_of(lambda: client.health("other")),
            ]

        said = await trio.to_thread.run_sync(ask_all)
        assert [code for code, _ in said] == [
            grpc.StatusCode.NOT_FOUND,
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.UNIMPLEMENTED,
            grpc.StatusCode.UNIMPLEMENTED,
            grpc.StatusCode.NOT_FOUND,
        ]
        assert said[0][1] == "domain 'nobody' is not known here"
        good = await trio.to_thread.run_sync(client.should_rate_limit, asked())
        assert good.overall_code == OK


@pytest.mark.slow
async def test_health_is_told_without_a_token(tmp_path: Path, clients: Callable[..., Client]) -> None:
    async with service(tmp_path, tokens=Tokens.of_one("secret")) as bound:
        client = clients(bound.grpc)
        answers = [await trio.to_thread.run_sync(client.health, each) for each in ("", SERVICE)]
        watched = [await trio.to_thread.run_sync(client.watch, each) for each in (SERVICE, "other")]
        assert (answers, watched) == ([1, 1], [1, 3])


@pytest.mark.slow
async def test_a_token_opens_the_service_in_tls(tmp_path: Path, clients: Callable[..., Client]) -> None:
    tokens = Tokens.parsed("tokens", "client envoy good\nbroker b other\n")
    files = {"tls_cert": str(CERTIFICATES / "distributor.pem"), "tls_key": str(CERTIFICATES / "distributor.key")}
    async with service(tmp_path, tokens=tokens, **files) as bound:
        assert bound.grpc is not None
        address = bound.grpc.replace("127.0.0.1", "localhost")
        client = clients(address, (CERTIFICATES / "distributor.pem").read_bytes())
        stranger = clients(bound.grpc)

        def ask_all() -> tuple[Any, ...]:
            def with_token(token: str) -> Any:
                return client.should_rate_limit(asked(), metadata=[("authorization", f"Bearer {token}")])

            none = code_of(lambda: client.should_rate_limit(asked()))[0]
            other = code_of(lambda: with_token("other"))[0]
            clear = code_of(lambda: stranger.should_rate_limit(asked()))[0]
            return none, other, clear, with_token("good").overall_code

        assert await trio.to_thread.run_sync(ask_all) == (
            grpc.StatusCode.UNAUTHENTICATED,
            grpc.StatusCode.PERMISSION_DENIED,
            grpc.StatusCode.UNAVAILABLE,
            OK,
        )


@pytest.mark.slow
async def test_one_connection_too_many_is_told_so(tmp_path: Path) -> None:
    async with service(tmp_path, most_connections=1) as bound:
        for address, first in ((bound.resp, b"PING\r\n"), (bound.grpc, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")):
            assert address is not None
            host, _, port = address.rpartition(":")
            one = await trio.open_tcp_stream(host, int(port))
            await one.send_all(first)
            assert await one.receive_some()
            other = await trio.open_tcp_stream(host, int(port))
            told = await other.receive_some()
            full = b"-ERR max number of clients reached: too many connections: there may be 1 (most_connections)\r\n"
            assert told == (full if address == bound.resp else b"")
            await one.aclose()
            await other.aclose()


async def test_a_door_counts_who_is_inside() -> None:
    leave = trio.Event()

    async def staying(stream: trio.abc.Stream) -> None:
        await leave.wait()

    door = Door("resp_address", 2, staying, str.encode)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            _, theirs = memory_stream_pair()
            nursery.start_soon(door.admit, theirs)
        await trio.testing.wait_all_tasks_blocked()
        ours, theirs = memory_stream_pair()
        await door.admit(theirs)
        assert await ours.receive_some() == b"too many connections: there may be 2 (most_connections)"
        assert door.connections == 2
        leave.set()
    assert door.connections == 0
    ours, theirs = memory_stream_pair()
    await door.admit(theirs)
    assert await ours.receive_some() == b"", "there is room again"


async def test_one_address_does_not_take_all_places() -> None:
    async def staying(stream: trio.abc.Stream) -> None:
        await stream.send_all(b"in")
        await trio.sleep_forever()

    door = Door("resp_address", 8, staying, str.encode)
    with trio.fail_after(10):
        async with AsyncExitStack() as links, trio.open_nursery() as nursery:
            _, _, port = (await nursery.start(door.listen, "127.0.0.1:0")).rpartition(":")
            told = []
            for _ in range(8):
                stream = await links.enter_async_context(await trio.open_tcp_stream("127.0.0.1", int(port)))
                told.append(bytes(await stream.receive_some()))
            nursery.cancel_scope.cancel()
    assert told == [b"in"] * 7 + [b"too many connections of 127.0.0.1: there may be 7 (most_connections)"]


@pytest.mark.slow
async def test_a_client_that_breaks_off_stops_no_other(tmp_path: Path, clients: Callable[..., Client]) -> None:
    async with service(tmp_path) as bound:
        assert bound.grpc is not None
        host, _, port = bound.grpc.rpartition(":")
        for first in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            stream = await trio.open_tcp_stream(host, int(port))
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await stream.send_all(first)
            await stream.aclose()  # by a reset
        said = await trio.to_thread.run_sync(clients(bound.grpc).should_rate_limit, asked())
        assert said.overall_code == OK


async def test_a_client_that_breaks_off_while_it_is_answered_is_forgotten() -> None:
    async def decide(request: RateLimitRequest) -> RateLimitResponse:
        raise AssertionError

    ours, theirs = memory_stream_pair()

    async def broken(data: bytes) -> None:
        raise trio.BrokenResourceError

    theirs.send_all = broken  # type: ignore[method-assign]
    await GrpcServer(decide, lambda: False, None).serve(theirs)
    assert await ours.receive_some() == b""


@pytest.mark.parametrize("protocol", ["resp", "grpc"])
async def test_who_says_nothing_for_ten_seconds_leaves_the_place(
    protocol: str, autojump_clock: trio.testing.MockClock
) -> None:
    async def decide(request: RateLimitRequest) -> RateLimitResponse:
        raise AssertionError

    served = RedisServer(1_000, None) if protocol == "resp" else GrpcServer(decide, lambda: False, None)
    _, theirs = memory_stream_pair()
    await served.serve(theirs)
    assert trio.current_time() == pytest.approx(FIRST_S, abs=0.2)
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.serve, theirs)
        await ours.send_all(b"PING\r\n" if protocol == "resp" else b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        await trio.sleep(10 * FIRST_S)
        await ours.send_all(b"PING\r\n" if protocol == "resp" else bytes.fromhex("000000040000000000"))
        nursery.cancel_scope.cancel()


async def test_a_call_that_waits_for_another_node_stops_no_other(autojump_clock: trio.testing.MockClock) -> None:
    from tests.limiting.envoy.test_grpc_session import Client as Played
    from tests.limiting.envoy.test_grpc_session import framed

    async def decide(asked: RateLimitRequest) -> RateLimitResponse:
        if asked.domain == "slow":
            await trio.sleep(1)
        return RateLimitResponse(())

    server = GrpcServer(decide, lambda: True, None)
    ours, theirs = memory_stream_pair()
    played = Played()
    path = [(":method", "POST"), (":scheme", "http"), (":path", SHOULD_RATE_LIMIT), (":authority", "limit")]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, theirs)
        for domain in ("slow", "quick"):
            stream = played.h2.get_next_available_stream_id()
            played.h2.send_headers(stream, [*path, ("content-type", "application/grpc")])
            content = framed(request(domain, {"a": "b"}).SerializeToString())
            played.h2.send_data(stream, content, end_stream=True)
        await ours.send_all(played.h2.data_to_send())
        ended: list[tuple[int, float]] = []
        while len(ended) < 2:
            events = played.h2.receive_data(bytes(await ours.receive_some()))
            done = [event.stream_id for event in events if type(event).__name__ == "StreamEnded"]
            ended += [(each, trio.current_time()) for each in done]
        nursery.cancel_scope.cancel()
    (quick, at), (slow, later) = ended
    assert (quick, slow) == (3, 1)
    assert later - at == 1


async def test_a_bug_costs_one_connection_and_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    async def broken(_stream: trio.abc.Stream) -> None:
        raise KeyError("nobody thought of it")

    door = Door("grpc_address", 2, broken)
    for _ in range(3):
        ours, theirs = memory_stream_pair()
        await door.admit(theirs)
        assert await ours.receive_some() == b""
    assert capsys.readouterr().err.count("because of a bug") == 3
