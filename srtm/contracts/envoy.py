"""How Envoy's words map to ours: a domain is a namespace, a descriptor a subject, a rate limit a policy.

A descriptor's subject is its keys, ``=``, and its values, each joined by ``|``: ``remote_address=10.0.0.1``, or
``path|remote_address=/login|10.0.0.1``. So a pattern such as ``path|remote_address=/login|*`` fits descriptors with
exactly these keys. In keys and values ``%``, ``|`` and in keys ``=`` are percent-encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from srtm.contracts.policy import Concurrency, Log, Policy, Window
from srtm.units import MICRO

Entries = Sequence[tuple[str, str]]  # key and value

# Number and length of each unit, s: envoy/service/ratelimit/v3/rls.proto. A month has 30 days, as in envoyproxy's.
UNITS = {
    "SECOND": (1, 1),
    "MINUTE": (2, 60),
    "HOUR": (3, 3_600),
    "DAY": (4, 86_400),
    "WEEK": (7, 604_800),
    "MONTH": (5, 30 * 86_400),
    "YEAR": (6, 365 * 86_400),
}
UNKNOWN = "UNKNOWN"
_LARGEST = 2**32 - 1


def subject_of(entries: Entries) -> str:
    """Return the subject of a descriptor."""
    if len(entries) == 1:  # most are, and seldom need the encoding
        key, value = entries[0]
        return f"{encoded(key, '=')}={encoded(value)}"
    return f"{'|'.join(encoded(key, '=') for key, _ in entries)}={'|'.join(encoded(value) for _, value in entries)}"


def encoded(text: str, also: str = "") -> str:
    """Return ``text`` with ``%``, ``|`` and the characters ``also`` percent-encoded."""
    for each in "%|" + also:
        if each in text:
            text = text.replace(each, f"%{ord(each):02X}")
    return text


class RateLimit(NamedTuple):
    """A limit in Envoy's words. ``unit``: one of UNITS, or UNKNOWN where none is as long as the window."""

    requests_per_unit: int
    unit: str


def rate_limit_of(policy: Policy) -> RateLimit:
    """Say a policy in Envoy's words; of a bucket its rate, in the shortest unit that has a whole token."""
    if isinstance(policy, Window | Log):
        names = (name for name, (_, length) in UNITS.items() if length * 10**9 == policy.window_ns)
        return RateLimit(min(policy.quota, _LARGEST), next(names, UNKNOWN))
    if isinstance(policy, Concurrency):
        return RateLimit(min(policy.quota, _LARGEST), UNKNOWN)
    for name, (_, length) in UNITS.items():
        tokens = policy.rate_micro * length // MICRO
        if tokens:
            return RateLimit(min(tokens, _LARGEST), name)
    return RateLimit(policy.quota, UNKNOWN)
