"""The problem+json of a refusal: type ``quota-exceeded`` of draft-ietf-httpapi-ratelimit-headers-11, section 5."""

from __future__ import annotations

import msgspec

from srtm.contracts.verdict import Verdict
from srtm.limiting.headers import seconds

MEDIA_TYPE = "application/problem+json"
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"


def quota_exceeded(verdict: Verdict, status: int = 429) -> bytes:
    """Return the body for a refused verdict."""
    names = ", ".join(verdict.violated)
    later = "" if verdict.wait_ns is None else f"; come again in {max(1, seconds(verdict.wait_ns))} s"
    return msgspec.json.encode(
        {
            "type": QUOTA_EXCEEDED,
            "title": "quota exceeded",
            "status": status,
            "detail": f"the limit {names} of {verdict.contract.namespace} is reached{later}",
            "violated-policies": list(verdict.violated),
        }
    )
