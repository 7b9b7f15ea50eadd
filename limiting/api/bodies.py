"""Bodies of checks and of corrections, and verdicts as JSON.

``limiting/core/src/http`` reads and writes the same where the core decides; a test holds them together
(``tests/limiting/test_http_server.py``).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from typing import Any

import msgspec

from limiting.checks import Checked
from srtm.contracts.verdict import PolicyVerdict, Verdict
from srtm.errors import BadInput
from srtm.limiting.headers import Family, headers, limit_field, policy_field
from srtm.limiting.limiter import GRANT_BYTES

MOST_CHECKS = 1_000  # of one request
MOST_SUBJECTS = 16  # of one check


class CheckBody(msgspec.Struct, forbid_unknown_fields=True):
    """A check: of one subject, or of several at once, all or none."""

    namespace: str
    subject: str | None = None
    subjects: list[str] = []
    cost: int = 1
    peek: bool = False

    def names(self) -> list[str]:
        """The subjects. Raises BadInput."""
        found = self.subjects if self.subject is None else [self.subject, *self.subjects]
        if not 1 <= len(found) <= MOST_SUBJECTS:
            raise BadInput("subjects", len(found), f"must be 1 to {MOST_SUBJECTS}: give subject or subjects")
        if len(set(found)) < len(found):
            raise BadInput("subjects", found, "must not name one twice: it would be charged twice")
        return found


class ManyBody(msgspec.Struct, forbid_unknown_fields=True):
    """Several checks, each for itself."""

    checks: list[CheckBody]


class CorrectBody(msgspec.Struct, forbid_unknown_fields=True):
    """What the request of a grant came to."""

    grant: str
    cost: int


class ReleaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """The request of a grant is over."""

    grant: str


class ContractsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Contracts, as in a contract file. There may be many: each is decoded apart."""

    contracts: list[msgspec.Raw]


class FileBody(msgspec.Struct, forbid_unknown_fields=True):
    """A contract file."""

    text: str


def grant_text(grants: list[bytes]) -> str | None:
    """Return the grants of a check as text. None: there are none."""
    return base64.urlsafe_b64encode(b"".join(grants)).decode() if grants else None


def grants_of(text: str) -> list[bytes]:
    """Return the grants of ``grant_text``. Raises BadInput."""
    try:
        content = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        content = b""
    if not content or len(content) % GRANT_BYTES or len(content) > MOST_SUBJECTS * GRANT_BYTES:
        raise BadInput("grant", "(not shown)", "must be the grant of a check, unchanged")
    return [content[begin : begin + GRANT_BYTES] for begin in range(0, len(content), GRANT_BYTES)]


def checked_json(checked: Checked) -> dict[str, Any]:
    """The answer to a check."""
    verdict = checked.decisive
    return {
        "allowed": checked.allowed,
        "mode": verdict.mode,
        "degraded": any(each.degraded for _, each in checked.verdicts),
        "wait_s": _seconds(verdict.wait_ns),
        "violated": sorted({name for _, each in checked.verdicts for name in each.violated}),
        "grant": grant_text(checked.grants),
        "subjects": [verdict_json(subject, each) for subject, each in checked.verdicts],
    }


def with_headers(checked: Checked, families: Collection[Family]) -> dict[str, Any]:
    """The answer to a check of a program, with the headers for its own client, by family."""
    verdict = checked.decisive
    found = {family: dict(headers(verdict, [family])) for family in families}
    return {**checked_json(checked), "headers": found}


def verdict_json(subject: str, verdict: Verdict) -> dict[str, Any]:
    """A verdict of one subject."""
    contract = verdict.contract
    named = zip(contract.policies, verdict.policies, strict=True)
    return {
        "subject": subject,
        "contract": contract.subject,
        "allowed": verdict.allowed,
        "shadowed": verdict.shadowed,
        "shared": verdict.shared,
        "wait_s": _seconds(verdict.wait_ns),
        "violated": list(verdict.violated),
        "policies": [
            {
                **_policy_json(said),
                "kind": policy.kind,
                "quota": policy.quota,
                "policy_header": policy_field(policy),
                "ratelimit_header": limit_field(said),
            }
            for policy, said in named
        ],
    }


def _policy_json(said: PolicyVerdict) -> dict[str, Any]:
    return {
        "name": said.name,
        "allowed": said.allowed,
        "remaining": said.remaining,
        "wait_s": _seconds(said.wait_ns),
        "reset_s": _seconds(said.reset_ns),
    }


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9
