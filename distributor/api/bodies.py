"""Reads and writes JSON bodies. The size of a request body, its time, and the sum of all of them are bounded.

Documents are what people and their tools write. Messages are what brokers encode: of those a key that stands twice is
not looked for, which takes longer than all the rest.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
import trio
from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from distributor.api.budgets import Budget, budgets
from distributor.config import DistributorConfig
from srtm.errors import BadInput
from srtm.net.decode_errors import UNREADABLE
from srtm.net.json_keys import refuse_repeated_keys

_T = TypeVar("_T")
_MISSING = re.compile("Object missing required field `(.*)`")


class _TooLarge(BadInput):
    title = "too large"
    http_status = 413


class _TooSlow(BadInput):
    title = "too slow"
    http_status = 408


async def read_document(request: Request, config: DistributorConfig, kind: type[_T]) -> _T:
    """Decode the JSON body as ``kind``. Raises BadInput, Unavailable."""
    content = await _content(request, config, budgets(request).documents)
    document = _decoded(content, kind)
    await trio.to_thread.run_sync(refuse_repeated_keys, content)
    return document


async def read_message(request: Request, config: DistributorConfig, kind: type[_T]) -> _T:
    """Decode the JSON body of a broker as ``kind``. Raises BadInput, Unavailable."""
    return _decoded(await _content(request, config, budgets(request).messages), kind)


def _decoded(content: bytes, kind: type[_T]) -> _T:
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


async def _content(request: Request, config: DistributorConfig, budget: Budget) -> bytes:
    content, limit_bytes = bytearray(), config.max_body_bytes
    try:
        with budget.holding() as take, trio.fail_after(config.body_timeout_s):
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
        rule = f"must be complete within {config.body_timeout_s:g} s"
        raise _TooSlow("body", f"{len(content)} bytes", rule) from None
    return bytes(content)


def json_answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def documented(what: str) -> dict[str, Any]:
    """OpenAPI for a body that FastAPI does not parse."""
    content = {"application/json": {"schema": {"type": "object"}}}
    return {"requestBody": {"required": True, "description": what, "content": content}}
