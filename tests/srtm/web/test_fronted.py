"""A front before hypercorn: what it leaves is served as ever, on one address, in clear and in TLS."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
from fastapi import FastAPI, Request

from srtm.log import Log
from srtm.web.fronted import Behind, Stream
from srtm.web.listener_places import Places
from srtm.web.serving import Certificate, bound, serve_app

PEM, KEY = (str(Path(__file__).parents[2] / "certificates" / f"distributor.{end}") for end in ("pem", "key"))
ASK = b"GET /who HTTP/1.1\r\nHost: a\r\n\r\n"


class Echo:
    """Answers ``!`` by itself, fails at ``?``, and leaves all else."""

    def __init__(self) -> None:
        self.stopped = trio.Event()

    async def serve(self, stream: Stream, behind: Behind) -> None:
        while True:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._end, scope)
                    received = bytes(await stream.receive_some())
                    nursery.cancel_scope.cancel()
            if scope.cancelled_caught or not received:
                return
            if received == b"?":
                raise RuntimeError("a bug")
            if received != b"!":
                await behind(received)
                return
            await stream.send_all(b"!")

    async def _end(self, scope: trio.CancelScope) -> None:
        await self.stopped.wait()
        scope.cancel()

    def stop(self) -> None:
        self.stopped.set()


def app() -> FastAPI:
    made = FastAPI()

    @made.get("/who")
    async def who(request: Request) -> dict[str, object]:
        assert request.client is not None
        return {"host": request.client.host, "scheme": request.url.scheme}

    return made


async def connected(port: int, tls: bool, links: AsyncExitStack) -> trio.abc.Stream:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    links.push_async_callback(trio.aclose_forcefully, stream)
    if not tls:
        return stream
    context = ssl.create_default_context(cafile=PEM)
    secured = trio.SSLStream(stream, context, server_hostname="127.0.0.1", https_compatible=True)
    await secured.do_handshake()
    return secured


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
async def test_a_connection_is_its_fronts_until_it_is_left(tls: bool) -> None:
    certificate = Certificate(PEM, KEY) if tls else Certificate()
    listener, ready, lines = bound("127.0.0.1:0"), trio.Event(), list[str]()
    port = listener.getsockname()[1]
    log, front = Log("s", lines.append), Echo()
    async with AsyncExitStack() as links:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve_app, app(), listener, certificate, log, ready.set, front)
                await ready.wait()
                left, idle, failing = [await connected(port, tls, links) for _ in range(3)]
                for stream in (left, idle):
                    await stream.send_all(b"!")
                    assert await stream.receive_some() == b"!"
                for _ in range(2):
                    await left.send_all(ASK)
                    said = b""
                    while not said.endswith(b"}"):
                        said += await left.receive_some()
                    assert said.startswith(b"HTTP/1.1 200 ")
                    assert f'"scheme":"{"https" if tls else "http"}"'.encode() in said
                    assert b'"host":"127.0.0.1"' in said
                await failing.send_all(b"?")
                assert await ends(failing)
                nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            assert await ends(left)
            assert await ends(idle)
    assert front.stopped.is_set()
    assert any("RuntimeError" in line for line in lines)


async def ends(stream: trio.abc.Stream) -> bool:
    try:
        return await stream.receive_some() == b""
    except trio.BrokenResourceError:
        return True


async def test_who_is_no_tls_client_is_let_go_of() -> None:
    listener, ready = bound("127.0.0.1:0"), trio.Event()
    port = listener.getsockname()[1]
    with trio.fail_after(20):
        async with AsyncExitStack() as links, trio.open_nursery() as nursery:
            serve = (app(), listener, Certificate(PEM, KEY), Log("s"), ready.set, Echo())
            nursery.start_soon(serve_app, *serve)
            await ready.wait()
            stream = await connected(port, False, links)
            await stream.send_all(ASK)
            while not await ends(stream):
                pass
            another = await connected(port, True, links)
            await another.send_all(b"!")
            assert await another.receive_some() == b"!"
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("front", [None, Echo()], ids=["alone", "fronted"])
async def test_one_connection_too_many_is_told_so(front: Echo | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Places, "by_descriptors", lambda: Places(1))
    listener, ready = bound("127.0.0.1:0"), trio.Event()
    port = listener.getsockname()[1]
    with trio.fail_after(20):
        async with AsyncExitStack() as links, trio.open_nursery() as nursery:
            nursery.start_soon(serve_app, app(), listener, Certificate(), Log("s", lambda _: None), ready.set, front)
            await ready.wait()
            first = await connected(port, tls=False, links=links)
            await first.send_all(ASK)
            assert bytes(await first.receive_some()).startswith(b"HTTP/1.1 200")
            told = b"".join([bytes(each) async for each in await connected(port, tls=False, links=links)])
            assert told.startswith(b"HTTP/1.1 503 ")
            assert b"too many connections: there may be 1" in told
            await first.aclose()
            while True:  # until the service has noticed
                again = await connected(port, tls=False, links=links)
                await again.send_all(ASK)
                if bytes(await again.receive_some()).startswith(b"HTTP/1.1 200"):
                    break
            nursery.cancel_scope.cancel()
