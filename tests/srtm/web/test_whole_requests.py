"""A request that is whole is answered by an application without a server."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from srtm.log import Log
from srtm.web.whole_requests import Peers, WholeAnswer, answered

PEERS = Peers(("192.0.2.1", 1), ("192.0.2.2", 2), "https")


async def asked(app: ASGIApp, lines: list[str]) -> WholeAnswer:
    headers = [(b"host", b"a"), (b"x-one", b"1")]
    return await answered(app, "POST", b"/a%20b?c=%20d", headers, b"body", PEERS, Log("s", lines.append))


async def test_an_application_sees_the_whole_request() -> None:
    app, lines = FastAPI(), list[str]()

    @app.post("/a b")
    async def show(request: Request, c: str) -> dict[str, object]:
        content = (await request.body()).decode()
        return {"all": [content, c, request.headers["x-one"], request.url.scheme, *(request.client or ())]}

    said = await asked(app, lines)
    assert (said.status, said.body) == (200, b'{"all":["body"," d","1","https","192.0.2.1",1]}')
    assert (b"content-type", b"application/json") in said.headers
    assert not lines


async def test_an_application_that_fails_is_a_500_and_a_line_of_the_log() -> None:
    async def failing(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("a bug")

    lines: list[str] = []
    assert (await asked(failing, lines)).status == 500
    assert "RuntimeError: a bug" in lines[0]
