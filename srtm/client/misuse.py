"""Checks of how a program uses the client library. Each error says what to do instead."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from srtm.errors import BadInput, Misuse


def check_loop(kind: str) -> None:
    """Raise Misuse unless trio or asyncio runs this code. ``kind``: Publisher or Subscriber."""
    try:
        anyio.get_cancelled_exc_class()
    except RuntimeError:
        raise Misuse(
            f"srtm.{kind} needs a running event loop of asyncio or trio: enter it in a function that asyncio.run() or "
            f"trio.run() calls, or use srtm.blocking.{kind}"
        ) from None


def needs_async_with(kind: str) -> str:
    """Say what to write instead of ``with``."""
    return f"write 'async with' for srtm.{kind}; in a program without an event loop use srtm.blocking.{kind}"


def not_entered(kind: str) -> str:
    """Say that the block is missing."""
    name = kind.lower()
    return f"this {name} is not connected: write 'async with srtm.{kind}(...) as {name}:' and use it in that block"


def checked_body(body: bytes) -> bytes:
    """Return ``body``. Raises BadInput if it is not bytes; only its type is shown, for bodies may be secret."""
    if isinstance(body, bytes | bytearray | memoryview):
        return body
    hint = ": encode the text, as in body.encode()" if isinstance(body, str) else ""
    raise BadInput("body", type(body).__name__, f"must be bytes{hint}")


def checked_bodies(bodies: Sequence[bytes]) -> list[bytes]:
    """Return ``bodies``. Raises BadInput for one message in place of several."""
    if isinstance(bodies, str | bytes | bytearray | memoryview):
        raise BadInput("bodies", type(bodies).__name__, "must be a sequence of bytes; publish() takes one message")
    return [checked_body(body) for body in bodies]
