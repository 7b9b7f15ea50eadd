"""Headers of an answer that a contract allowed or refused. In Python this module alone knows their formats;
``limiting/core/src/http/headers.rs`` writes the same, and ``tests/limiting/test_http_server.py`` holds them together.

* ``ratelimit``: RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11 (sections 3 and 4): names
  are structured-field Strings, windows and resets whole seconds.
* ``x-ratelimit``: X-RateLimit-Limit, -Remaining and -Reset (seconds), of the policy with the least left.
* ``retry-after``: Retry-After (RFC 9110, section 10.2.3) of refusals. It is never earlier than the draft's ``t``.

What remains is rounded down, and waits are rounded up.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Literal, get_args

from srtm.contracts.policy import Concurrency, Policy
from srtm.contracts.verdict import PolicyVerdict, Verdict

Family = Literal["ratelimit", "x-ratelimit", "retry-after"]
FAMILIES: tuple[Family, ...] = get_args(Family)

Headers = list[tuple[str, str]]


def seconds(ns: int) -> int:
    """Whole seconds, rounded up."""
    return -(-ns // 10**9)


def headers(verdict: Verdict, families: Collection[Family] = FAMILIES) -> Headers:
    """Return the headers of ``families`` for a verdict."""
    found: Headers = []
    if "ratelimit" in families:
        found += [("RateLimit-Policy", ", ".join(map(policy_field, verdict.contract.policies)))]
        found += [("RateLimit", ", ".join(map(limit_field, verdict.policies)))]
    if "x-ratelimit" in families:
        found += _x_headers(verdict)
    if "retry-after" in families and not verdict.allowed and verdict.wait_ns is not None:
        found.append(("Retry-After", str(max(1, seconds(verdict.wait_ns)))))
    return found


@lru_cache(4_096)
def policy_field(policy: Policy) -> str:
    """An item of RateLimit-Policy: ``"burst";q=40;w=2``."""
    unit = ';qu="concurrent-requests"' if isinstance(policy, Concurrency) else ""
    window = "" if policy.window_ns is None else f";w={seconds(policy.window_ns)}"
    return f'"{policy.name}";q={policy.quota}{unit}{window}'


def limit_field(policy: PolicyVerdict) -> str:
    """An item of RateLimit: ``"burst";r=39;t=1``. ``t``: until more is there, or everything."""
    wait = policy.reset_ns if policy.allowed else policy.wait_ns
    return f'"{policy.name}";r={policy.remaining}' + ("" if wait is None else f";t={seconds(wait)}")


def tightest(verdict: Verdict) -> tuple[Policy, PolicyVerdict]:
    """Return the policy that refuses with the longest wait, else the one with the least left."""

    def tightness(number: int) -> tuple[bool, float]:
        policy = verdict.policies[number]
        wait = float("inf") if policy.wait_ns is None else policy.wait_ns
        return (policy.allowed, policy.remaining if policy.allowed else -wait)

    number = min(range(len(verdict.policies)), key=tightness)
    return verdict.contract.policies[number], verdict.policies[number]


def _x_headers(verdict: Verdict) -> Headers:
    policy, said = tightest(verdict)
    reset = said.reset_ns if said.allowed else said.wait_ns
    found = [("X-RateLimit-Limit", str(policy.quota)), ("X-RateLimit-Remaining", str(said.remaining))]
    return found if reset is None else [*found, ("X-RateLimit-Reset", str(seconds(reset)))]
