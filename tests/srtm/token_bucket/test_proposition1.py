"""Proposition 1 of the main paper: no split, however messages are dealt, ever lowers the running sum of delays."""

from hypothesis import given
from hypothesis import strategies as st

from srtm.token_bucket.bucket import Bucket

MICRO = 1_000_000

gaps = st.one_of(st.just(0), st.integers(0, 10), st.integers(0, 10**6), st.integers(0, 10**9))


@st.composite
def cases(draw):
    """Shares that are (0, 0) or hold a token, and messages dealt to any of them."""
    parts = st.tuples(st.integers(1, 10**10), st.integers(MICRO, 8 * MICRO))
    shares = draw(st.lists(st.one_of(parts, parts, st.just((0, 0))), min_size=1, max_size=5))
    messages = draw(st.lists(st.tuples(gaps, st.integers(0, len(shares) - 1)), min_size=1, max_size=60))
    return shares, messages


def waiting(arrivals, due, at_ns):
    return sum(came <= at_ns and (goes is None or goes > at_ns) for came, goes in zip(arrivals, due, strict=True))


def running_sum(arrivals, due, at_ns):
    """S(t): delay accrued up to t by all that came, also by what still waits."""
    return sum(
        (at_ns if goes is None else min(goes, at_ns)) - came
        for came, goes in zip(arrivals, due, strict=True)
        if came <= at_ns
    )


@given(cases())
def test_a_split_never_lowers_the_running_sum_of_delays(case):
    shares, messages = case
    whole = tuple(map(sum, zip(*shares, strict=True)))
    one, split = Bucket(*whole, 0), [Bucket(*share, 0) for share in shares]
    at_ns, arrivals, due_one, due_split = 0, [], [], []
    for gap_ns, target in messages:
        at_ns += gap_ns
        arrivals.append(at_ns)
        due_one.append(one.take(1, at_ns))
        due_split.append(split[target].take(1, at_ns))
    # Both sums are straight lines between these instants: what holds at them holds at all times.
    corners = {at for at in [*arrivals, *due_one, *due_split] if at is not None}
    for corner in corners:
        assert running_sum(arrivals, due_split, corner) >= running_sum(arrivals, due_one, corner)
        assert waiting(arrivals, due_split, corner) >= waiting(arrivals, due_one, corner)


def test_the_checked_sums_can_tell_a_split_from_a_whole():
    # Were the split given more than the whole, the sums would cross: the test above can fail.
    arrivals = [0, 0, 0]
    one, more = Bucket(1_000 * MICRO, MICRO, 0), Bucket(1_000 * MICRO, 2 * MICRO, 0)
    due_one, due_more = [one.take(1, 0) for _ in arrivals], [more.take(1, 0) for _ in arrivals]
    assert running_sum(arrivals, due_more, 10**7) < running_sum(arrivals, due_one, 10**7)
