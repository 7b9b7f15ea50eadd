"""Headers of answers: draft 11, X-RateLimit-* and Retry-After."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from srtm.contracts.contract import read_contract
from srtm.contracts.verdict import Verdict
from srtm.limiting.headers import headers, seconds
from srtm.limiting.limiter import Limiter
from srtm.limiting.problem import quota_exceeded

S = 10**9
POLICIES: list[dict[str, object]] = [
    {"name": "burst", "rate": 1, "burst": 3},
    {"name": "hour", "kind": "window", "quota": 100, "window": "1h", "slices": 1, "weighted": False},
    {"name": "open", "kind": "concurrency", "quota": 8},
]
ITEM = re.compile(r'"[A-Za-z0-9_.-]+"(;(q|w|r|t)=[0-9]+|;qu="concurrent-requests")*')


def asked(costs: Sequence[int], now: int = S // 2) -> Verdict:
    contract = read_contract({"namespace": "api", "subject": "*", "policies": POLICIES})
    limiter = Limiter([contract], clocks=lambda: (now, now))
    return [limiter.check("api", "a", cost) for cost in costs][-1]


def test_an_allowed_request_is_told_what_is_left() -> None:
    assert dict(headers(asked([1]))) == {
        "RateLimit-Policy": '"burst";q=3;w=3, "hour";q=100;w=3600, "open";q=8;qu="concurrent-requests"',
        "RateLimit": '"burst";r=2;t=1, "hour";r=99;t=3600, "open";r=7;t=60',
        "X-RateLimit-Limit": "3",
        "X-RateLimit-Remaining": "2",
        "X-RateLimit-Reset": "1",
    }


def test_a_refused_request_is_told_when_to_come_again() -> None:
    verdict = asked([3, 2])
    found = dict(headers(verdict))
    assert found["Retry-After"] == "2"
    assert found["RateLimit"].startswith('"burst";r=0;t=2')
    assert (found["X-RateLimit-Limit"], found["X-RateLimit-Remaining"], found["X-RateLimit-Reset"]) == ("3", "0", "2")
    assert b'"violated-policies":["burst"]' in quota_exceeded(verdict)


def test_what_never_passes_has_no_time_to_come_again() -> None:
    found = dict(headers(asked([4])))
    assert "Retry-After" not in found
    assert found["RateLimit"].startswith('"burst";r=3,')


def test_families_are_switched() -> None:
    verdict = asked([3, 1])
    assert headers(verdict, ()) == []
    assert [name for name, _ in headers(verdict, ["retry-after"])] == ["Retry-After"]
    assert [name for name, _ in headers(verdict, ["ratelimit"])] == ["RateLimit-Policy", "RateLimit"]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(0, 10**12))
def test_items_are_structured_and_retry_after_is_never_earlier(costs: list[int], now: int) -> None:
    verdict = asked(costs, now)
    found = dict(headers(verdict))
    for name in ("RateLimit-Policy", "RateLimit"):
        assert all(ITEM.fullmatch(item) for item in found[name].split(", ")), found[name]
    if "Retry-After" in found:
        refusing = [policy.wait_ns for policy in verdict.policies if not policy.allowed]
        assert all(wait is not None and int(found["Retry-After"]) >= seconds(wait) for wait in refusing)
