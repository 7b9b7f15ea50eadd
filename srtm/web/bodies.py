"""Reads and writes JSON bodies. The size of a request body, its time, and the sum of all of them are bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import msgspec
import trio
from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from srtm.errors import BadInput, Unavailable
from srtm.net.decode_errors import UNREADABLE

_T = TypeVar("_T")
_MISSING = re.compile("Object missing required field `(.*)`")
_RETRY_S = 5.0


class _TooLarge(BadInput):
    title = "too large"
    http_status = 413


class _TooSlow(BadInput):
    title = "too slow"
    http_status = 408


class Budget:
    """An amount that is taken in parts and given back; nobody waits for it."""

    def __init__(self, most: int, what: str) -> None:
        self.held = 0
        self._most = most
        self._what = what

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Yield what takes so much more until the block ends. It raises Unavailable."""
        own = 0

        def take(amount: int) -> None:
            nonlocal own
            if self.held + amount > self._most:
                why = f"requests under way hold {self.held:,} {self._what}, and all together may hold {self._most:,}"
                raise Unavailable(why, _RETRY_S)
            self.held += amount
            own += amount

        try:
            yield take
        finally:
            self.held -= own


async def read_content(request: Request, budget: Budget, limit_bytes: int, timeout_s: float) -> bytes:
    """The whole body. Raises BadInput (too large, too slow, not complete), Unavailable (the budget is used up)."""
    content = bytearray()
    try:
        with budget.holding() as take, trio.fail_after(timeout_s):
            async with aclosing(request.stream()) as chunks:
                async for chunk in chunks:
                    if len(content) + len(chunk) > limit_bytes:
                        raise _TooLarge(
                            "body", f"more than {limit_bytes} bytes", f"must be at most {limit_bytes} bytes"
                        )
                    take(len(chunk))
                    content += chunk
    except ClientDisconnect:
        raise BadInput("body", f"{len(content)} bytes", "must be complete; the connection was closed") from None
    except trio.TooSlowError:
        rule = f"must be complete within {timeout_s:g} s"
        raise _TooSlow("body", f"{len(content)} bytes", rule) from None
    return bytes(content)


def decoded(content: bytes, kind: type[_T]) -> _T:
    """Decode a JSON body. Raises BadInput, which names the field."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit(content, str(error)) from error
    except UNREADABLE as error:
        raise BadInput("body", content[:80], f"must be JSON: {error}") from error


def _misfit(content: bytes, said: str) -> BadInput:
    """A msgspec error as field and rule. msgspec says "Expected `int`, got `str` - at `$.topics[0].received`", or
    "Object missing required field `mcap`"."""
    rule, _, place = said.partition(" - at `$")
    field = place.removesuffix("`").removeprefix(".")
    if field.startswith("[...]"):  # somewhere in a document without a type
        field = ""
    missing = _MISSING.fullmatch(rule)
    if missing is not None:
        return BadInput(f"{field}.{missing[1]}".removeprefix("."), None, "is required")
    return BadInput(field or "body", content[:80], f"must be of its type: {rule}")


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with ``value`` as JSON."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def documented(what: str) -> dict[str, Any]:
    """OpenAPI for a body that FastAPI does not parse."""
    content = {"application/json": {"schema": {"type": "object"}}}
    return {"requestBody": {"required": True, "description": what, "content": content}}
