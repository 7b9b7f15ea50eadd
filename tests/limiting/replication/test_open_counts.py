"""Open requests join in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiting.replication.open_counts import OpenCounts
from srtm.errors import BadInput

open_entries = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=12)


@given(open_entries)
def test_the_last_version_of_open_requests_wins_in_any_order(versions):
    entries = [(origin, version, 10 * origin + version) for origin, version in versions]
    one, other = OpenCounts(0, 100), OpenCounts(0, 100)
    one.join(entries, 0)
    other.join(reversed(entries), 0)
    assert one.total(0) == other.total(0)


def test_open_requests_of_a_peer_that_is_not_heard_of_are_over():
    node = OpenCounts(0, 100)
    node.change(+1, 0)
    node.join([(1, 1, 4)], 0)
    assert node.total(99) == 5
    assert node.total(100) == 1


def test_more_than_is_open_cannot_be_released():
    with pytest.raises(BadInput, match="release"):
        OpenCounts(0, 100).change(-1, 0)
