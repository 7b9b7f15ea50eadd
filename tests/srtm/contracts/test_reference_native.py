"""The core in Rust decides as the reference in Python does."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.contracts.contract import Contract
from srtm.contracts.policy import Bucket, Concurrency, Log, Pace, Policy, Window
from srtm.contracts.reference import BucketMeter, Now
from srtm.errors import BadInput
from srtm.limiting.limiter import Limiter
from srtm.units import MICRO
from tests.support.reference_limiter import ReferenceLimiter

S = 10**9

buckets = st.builds(
    lambda rate, burst, debt: Bucket(name="p", rate_micro=rate, burst_micro=burst, max_debt_micro=debt),
    st.integers(1, 5 * MICRO),
    st.integers(MICRO, 8 * MICRO),
    st.integers(0, 9 * MICRO),
)
paces = st.builds(
    lambda rate, burst, wait: Pace(name="p", rate_micro=rate, burst_micro=burst, max_wait_ns=wait),
    st.integers(1, 5 * MICRO),
    st.integers(MICRO, 4 * MICRO),
    st.integers(0, 5 * S),
)
windows = st.builds(
    lambda quota, slices, weighted, aligned: Window(
        name="p", quota=quota, window_ns=12 * S, slices=slices, weighted=weighted, aligned=aligned
    ),
    st.integers(1, 9),
    st.sampled_from([1, 2, 3, 4, 6, 12]),
    st.booleans(),
    st.booleans(),
)
logs = st.builds(lambda quota: Log(name="p", quota=quota, window_ns=5 * S), st.integers(1, 9))
opens = st.builds(lambda quota: Concurrency(name="p", quota=quota, expires_ns=3 * S), st.integers(1, 6))
policies = st.lists(st.one_of(buckets, paces, windows, logs, opens), min_size=1, max_size=3)
steps = st.lists(st.tuples(st.integers(0, 3 * S), st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=25)


def contract(parts: list[Policy], *, shadow: bool = False, full: bool = True) -> Contract:
    named = tuple(msgspec.structs.replace(policy, name=f"p{number}") for number, policy in enumerate(parts))
    return Contract(namespace="api", subject="user:*", policies=named, shadow=shadow, starts_full=full)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(parts=policies, asked=steps, shadow=st.booleans(), full=st.booleans())
def test_core_and_reference_say_the_same(
    parts: list[Policy], asked: list[tuple[int, int, int]], shadow: bool, full: bool
) -> None:
    agreed = contract(parts, shadow=shadow, full=full)
    now = Now(5 * S, 1_000 * S + 77)
    core, reference = Limiter([agreed], clocks=lambda: now), ReferenceLimiter(agreed)
    for pause, subject, cost in asked:
        now = now.after(pause)
        ours, theirs = reference.check(f"user:{subject}", cost, now), core.check("api", f"user:{subject}", cost)
        assert theirs._replace(grant=None) == ours
        assert (theirs.grant is not None) == (not theirs.violated)


wall_steps = st.lists(st.tuples(st.integers(0, 3 * S), st.integers(-40 * S, 40 * S)), min_size=1, max_size=25)


@settings(max_examples=100, deadline=None)
@given(policy=windows, asked=wall_steps)
def test_core_and_reference_count_the_same_while_the_wall_clock_steps(
    policy: Window, asked: list[tuple[int, int]]
) -> None:
    agreed = contract([policy])
    now = Now(5 * S, 1_000 * S + 77)
    core, reference = Limiter([agreed], clocks=lambda: now), ReferenceLimiter(agreed)
    for pause, step in asked:
        now = Now(now.mono + pause, now.wall + pause + step)
        ours, theirs = reference.check("user:1", 1, now), core.check("api", "user:1", 1)
        assert (theirs.allowed, theirs.policies[0].remaining) == (ours.allowed, ours.policies[0].remaining)


@settings(max_examples=60, deadline=None)
@given(policy=buckets, asked=st.lists(st.tuples(st.integers(0, S), st.integers(0, 30)), min_size=1, max_size=20))
def test_core_and_reference_correct_the_same(policy: Bucket, asked: list[tuple[int, int]]) -> None:
    agreed, now = contract([policy]), Now(0, 0)
    core, reference = Limiter([agreed], clocks=lambda: now), ReferenceLimiter(agreed)
    for pause, cost in asked:
        now = now.after(pause)
        grant = core.check("api", "user:1", 1).grant
        reference.check("user:1", 1, now)
        if grant is None:
            continue
        core.correct(grant, cost)
        (meter,) = reference.meters("user:1", now)
        assert isinstance(meter, BucketMeter)
        meter.correct(cost - 1, now)
        assert core.peek("api", "user:1", 0)._replace(grant=None) == reference.check("user:1", 0, now)


def test_a_grant_counts_once() -> None:
    limiter = Limiter([contract([Bucket(name="p", rate_micro=1, burst_micro=5 * MICRO, max_debt_micro=0)])])
    grant = limiter.check("api", "user:1").grant
    assert grant is not None
    limiter.correct(grant, 3)
    assert limiter.peek("api", "user:1").policies[0].remaining == 2
    with pytest.raises(BadInput, match="was used before"):
        limiter.correct(grant, 3)
