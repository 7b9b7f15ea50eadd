"""The problem+json of a refusal: type ``quota-exceeded`` of draft-ietf-httpapi-ratelimit-headers-11, section 5."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from srtm.contracts.verdict import Verdict
from srtm.errors import SrtmError
from srtm.limiting.headers import seconds

MEDIA_TYPE = "application/problem+json"
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"


def quota_exceeded(verdict: Verdict, status: int = 429) -> bytes:
    """Return the body for a refused verdict."""
    return quota_problem(verdict.contract.namespace, verdict.violated, verdict.wait_ns, status)


def quota_problem(namespace: str, violated: Sequence[str], wait_ns: int | None, status: int = 429) -> bytes:
    """Return the body for a refusal by the policies ``violated``. ``wait_ns``: when to come again; None: never."""
    later = "" if wait_ns is None else f"; come again in {max(1, seconds(wait_ns))} s"
    return msgspec.json.encode(
        {
            "type": QUOTA_EXCEEDED,
            "title": "quota exceeded",
            "status": status,
            "detail": f"the limit {', '.join(violated)} of {namespace} is reached{later}",
            "violated-policies": list(violated),
        }
    )


def error_problem(error: SrtmError) -> bytes:
    """Return the body for a request that could not be checked."""
    return msgspec.json.encode({"title": error.title, "status": error.http_status, "detail": str(error)})
