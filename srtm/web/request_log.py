"""Gives each request of an ASGI application its id, says it in the answer, and logs the request."""

from __future__ import annotations

import trio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srtm.log import REQUEST_ID, Log
from srtm.net.request_id import HEADER, request_id


class RequestLog:
    """An application around another one. While that runs, ``REQUEST_ID`` is the request's id, so log lines name it.

    Requests are logged at level debug. One that ends with a bug is logged as an error.
    """

    def __init__(self, app: ASGIApp, log: Log) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        identity = request_id(Headers(scope=scope).get(HEADER))
        about = {"method": scope["method"], "path": scope["path"]}
        begun_s = trio.current_time()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = identity
                ms = round((trio.current_time() - begun_s) * 1e3, 3)
                self._log.debug("request", **about, status=message["status"], ms=ms)
            await send(message)

        mark = REQUEST_ID.set(identity)
        try:
            await self._app(scope, receive, answer)
        except Exception as error:
            self._log.failure("a request failed because of a bug", **about, error=repr(error))
            raise
        finally:
            REQUEST_ID.reset(mark)
