"""The engine's bucket against the reference, over random takes, debits, queries and changes of share."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.token_bucket import bucket as reference

native = pytest.importorskip("srtm._native", reason="the extension is not built: make build", exc_type=ImportError)

MICRO = 1_000_000
LARGEST_COST = 3

# A share is nothing, or holds the largest batch: what placement guarantees.
shares = st.one_of(
    st.just((0, 0)),
    st.tuples(st.integers(1, 10**13), st.integers(LARGEST_COST * MICRO, 50 * MICRO)),
)
gaps = st.one_of(st.just(0), st.integers(0, 100), st.integers(0, 10**7), st.integers(0, 10**11))
operations = st.one_of(
    st.tuples(st.just("take"), gaps, st.integers(1, LARGEST_COST)),
    st.tuples(st.just("take late"), gaps, st.integers(1, LARGEST_COST)),  # a stamp older than the last decision
    st.tuples(st.just("debit"), gaps, st.integers(0, 5)),
    st.tuples(st.just("fill"), gaps, st.none()),
    st.tuples(st.just("set"), gaps, shares),
)


def apply(bucket, operation, at_ns, gap_ns, argument):
    match operation:
        case "take":
            return bucket.take(argument, at_ns + gap_ns)
        case "take late":
            return bucket.take(argument, max(0, at_ns - gap_ns))
        case "debit":
            return bucket.debit(argument, at_ns + gap_ns)
        case "fill":
            return bucket.fill_units(at_ns + gap_ns)
        case "set":
            return bucket.set(*argument, at_ns + gap_ns)
    raise AssertionError(operation)


@pytest.mark.slow
@settings(max_examples=1_000)
@given(shares, st.booleans(), st.integers(0, 10**15), st.lists(operations, max_size=80))
def test_the_engine_decides_as_the_reference_does_to_the_nanosecond(share, full, start_ns, steps):
    ours = reference.Bucket(*share, start_ns, full)
    theirs = native.Bucket(*share, start_ns, full)
    at_ns = start_ns
    for operation, gap_ns, argument in steps:
        expected = apply(ours, operation, at_ns, gap_ns, argument)
        assert apply(theirs, operation, at_ns, gap_ns, argument) == expected, (operation, gap_ns, argument)
        if operation != "take late":
            at_ns += gap_ns


@pytest.mark.slow
@given(st.integers(1, 10**13), st.integers(MICRO, 50 * MICRO), st.integers(0, 2**32))
def test_a_thousand_messages_around_the_rate_are_due_alike(rate, burst, seed):
    rng = random.Random(seed)
    ours, theirs = reference.Bucket(rate, burst, 0), native.Bucket(rate, burst, 0)
    at_ns = 0
    for _ in range(1_000):
        at_ns += int(rng.expovariate(1.0) * 10**15 / rate)
        assert theirs.take(1, at_ns) == ours.take(1, at_ns)
