"""Reads and writes JSON bodies; the size of a request body is bounded."""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from distributor.config import DistributorConfig
from srtm.errors import BadInput
from srtm.net.decode_errors import UNREADABLE

_T = TypeVar("_T")
_MISSING = re.compile("Object missing required field `(.*)`")


class _TooLarge(BadInput):
    title = "too large"
    http_status = 413


async def read_body(request: Request, config: DistributorConfig, kind: type[_T]) -> _T:
    """Decode the JSON body as ``kind``. Raises BadInput."""
    content = await _content(request, config.max_body_bytes)
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


async def _content(request: Request, limit_bytes: int) -> bytes:
    content = bytearray()
    try:
        async with aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > limit_bytes:
                    raise _TooLarge("body", f"{len(content)} bytes or more", f"must be at most {limit_bytes} bytes")
    except ClientDisconnect:
        raise BadInput("body", f"{len(content)} bytes", "must be complete; the connection was closed") from None
    return bytes(content)


def json_answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def documented(what: str) -> dict[str, Any]:
    """OpenAPI for a body that FastAPI does not parse."""
    content = {"application/json": {"schema": {"type": "object"}}}
    return {"requestBody": {"required": True, "description": what, "content": content}}
