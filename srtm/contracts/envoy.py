"""How Envoy's words map to ours: a domain is a namespace, a descriptor a subject, a rate limit a policy.

A descriptor's subject is its keys, ``=``, and its values, each joined by ``|``: ``remote_address=10.0.0.1``, or
``path|remote_address=/login|10.0.0.1``. So a pattern such as ``path|remote_address=/login|*`` fits descriptors with
exactly these keys. In keys and values ``%``, ``|`` and in keys ``=`` are percent-encoded. One that is longer than a
subject may be ends with a digest instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from srtm.contracts.contract import LONGEST_SUBJECT
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
        return _fitting(f"{encoded(key, '=')}={encoded(value)}")
    keys = "|".join(encoded(key, "=") for key, _ in entries)
    return _fitting(f"{keys}={'|'.join(encoded(value) for _, value in entries)}")


def _fitting(subject: str) -> str:
    """``subject``, or its beginning and a digest if it is too long: were it refused, whoever sends a long header had no
    limit, because gateways let pass what is answered with an error."""
    if len(subject) <= LONGEST_SUBJECT // 4:  # characters of 4 bytes at most
        return subject
    content = subject.encode()
    if len(content) <= LONGEST_SUBJECT:
        return subject
    digest = f"|{blake2b(content, digest_size=16).hexdigest()}"
    return content[: LONGEST_SUBJECT - len(digest)].decode(errors="ignore") + digest


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


@lru_cache(4_096)
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
