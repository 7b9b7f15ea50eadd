"""Answers a whole request by an ASGI application, without a server between them."""

from __future__ import annotations

import traceback
from typing import NamedTuple
from urllib.parse import unquote

import trio
from starlette.types import ASGIApp, Message, Scope

from srtm.log import Log

RawHeaders = list[tuple[bytes, bytes]]
Address = tuple[str, int]


class Peers(NamedTuple):
    """Who speaks on a connection, and how."""

    client: Address | None
    server: Address | None
    scheme: str  # http or https


class WholeAnswer(NamedTuple):
    """An answer that is complete."""

    status: int
    headers: RawHeaders
    body: bytes


async def answered(
    app: ASGIApp, method: str, target: bytes, headers: RawHeaders, body: bytes, peers: Peers, log: Log
) -> WholeAnswer:
    """Return the application's answer to a request of HTTP/1.1. ``headers``: names in small letters.

    What the application raises is logged; without an answer that is a 500.
    """
    path, _, query = target.partition(b"?")
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "asgi": {"spec_version": "2.1", "version": "3.0"},
        "method": method,
        "scheme": peers.scheme,
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": peers.client,
        "server": peers.server,
        "state": {},
        "extensions": {},
    }
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    status, found, content = 500, RawHeaders(), bytearray()

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await trio.sleep_forever()  # the client stays until it is answered
        raise AssertionError

    async def send(message: Message) -> None:
        nonlocal status, found
        if message["type"] == "http.response.start":
            status, found = message["status"], list(message["headers"])
        elif message["type"] == "http.response.body":
            content.extend(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception:  # noqa: BLE001 - as a server does: the application has told its client
        log.failure("Error in ASGI Framework", traceback=traceback.format_exc())
    return WholeAnswer(status, found, bytes(content))
