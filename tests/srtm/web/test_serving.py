"""A server's own troubles go to the log of the service, in its format."""

from __future__ import annotations

import json

import httpx
import trio
from fastapi import FastAPI

from srtm.log import Log, LogSettings
from srtm.web.serving import Certificate, bound, serve_app


def broken() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    async def root() -> None:
        raise RuntimeError("a bug")

    return app


async def test_a_bug_is_a_line_of_the_log_with_its_traceback(nursery):
    lines: list[str] = []
    ready, told = trio.Event(), trio.Event()

    def write(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            told.set()

    log = Log("s", write, LogSettings(format="json"))
    listener = bound("127.0.0.1:0")
    address = "http://{}:{}".format(*listener.getsockname())
    nursery.start_soon(serve_app, broken(), listener, Certificate(), log, ready.set)
    await ready.wait()
    async with httpx.AsyncClient() as client:
        assert (await client.get(address)).status_code == 500
        with trio.fail_after(30):
            await told.wait()
    nursery.cancel_scope.cancel()
    ours, servers = map(json.loads, lines)
    assert (ours["message"], ours["error"]) == ("a request failed because of a bug", "RuntimeError('a bug')")
    assert "RuntimeError: a bug" in servers["traceback"]
    assert servers["level"] == "error"
