"""Turns an HTTP answer with ``problem+json`` back into the exception that caused it."""

from __future__ import annotations

import msgspec

from srtm.control import Problem
from srtm.errors import BadInput, Conflict, NotFound, NotLeader, PeerError, SrtmError, Unavailable
from srtm.net.decode_errors import UNREADABLE


def refusal(url: str, status: int, content: bytes, retry_after_s: float | None = None) -> SrtmError:
    """Return the exception for the body ``content`` of an answer of ``url``. No problem+json gives a PeerError."""
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except UNREADABLE:
        return PeerError(f"{url} answered {status}: {content[:200].decode(errors='replace')!r}")
    field, value, rule = problem.field or problem.title, problem.value, problem.rule or problem.detail
    match status:
        case 404 if problem.field in (None, "path"):
            return PeerError(f"{url} is no route there: is that another service, or one of another version?")
        case 404:
            return NotFound(field, str(value), problem.rule)
        case 409:
            return Conflict(field, value, rule)
        case 401:
            rule = f"{url} asks for a token that it knows: --token-file, --token or $SRTM_TOKEN"
            return BadInput("token", "(not shown)", rule)
        case 403:
            return BadInput("token", "(not shown)", f"{url}: {rule}")
        case 503 if problem.title == NotLeader.title:
            return NotLeader(problem.leader)
        case 429 | 503:
            return Unavailable(problem.detail, retry_after_s)
        case _ if 400 <= status < 500 and problem.field is not None:
            return BadInput(field, value, rule)
    named = "" if problem.request_id is None else f" (request {problem.request_id} in its log)"
    return PeerError(f"{url} answered {status}: {problem.detail}{named}")
