"""Counts with one writer a slot join in any order, and never count twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiting.replication.windows import OpenCounts, WindowCounts
from srtm.errors import BadInput

window_entries = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), max_size=12)
open_entries = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=12)


@given(window_entries, window_entries)
def test_windows_join_in_any_order_and_as_often_as_one_likes(mine, theirs):
    one, other = WindowCounts(0, 10, 4), WindowCounts(0, 10, 4)
    one.join(mine, 30)
    one.join(theirs, 30)
    other.join([*theirs, *mine, *theirs], 30)
    assert one.entries() == other.entries()


@given(open_entries)
def test_the_last_version_of_open_requests_wins_in_any_order(versions):
    entries = [(origin, version, 10 * origin + version) for origin, version in versions]
    one, other = OpenCounts(0, 100), OpenCounts(0, 100)
    one.join(entries, 0)
    other.join(reversed(entries), 0)
    assert one.total(0) == other.total(0)


def test_a_finished_window_is_not_counted_again():
    node = WindowCounts(0, 10, 1)
    node.add(5, 9)
    late = [(0, 1, 7)]
    node.add(1, 10)
    node.join(late, 10)
    assert node.total(10, weighted=False) == 1
    assert node.total(15, weighted=True) == 1 + 0.5 * 12


def test_a_fixed_window_of_one_slice_and_a_weighted_one_of_several():
    node = WindowCounts(0, 10, 3)
    for wall_ns in (1, 12, 25, 31):
        node.add(1, wall_ns)
    assert node.total(35, weighted=False) == 3
    assert node.total(35, weighted=True) == 3.5


def test_slices_that_are_over_are_forgotten():
    node = WindowCounts(0, 10, 2)
    for wall_ns in range(0, 1_000, 10):
        node.add(1, wall_ns)
    assert len(node.entries()) == 3


@given(st.integers(0, 9))
def test_clocks_that_differ_misplace_only_what_comes_at_an_edge(skew_ns):
    here, there = WindowCounts(0, 100, 2), WindowCounts(1, 100, 2)
    for at_ns in range(0, 200, 10):
        here.join([there.add(1, at_ns + skew_ns)], at_ns)
    assert abs(here.total(199, weighted=False) - 20) <= 1 + skew_ns / 10


def test_open_requests_of_a_peer_that_is_not_heard_of_are_over():
    node = OpenCounts(0, 100)
    node.change(+1, 0)
    node.join([(1, 1, 4)], 0)
    assert node.total(99) == 5
    assert node.total(100) == 1


def test_more_than_is_open_cannot_be_released():
    with pytest.raises(BadInput, match="release"):
        OpenCounts(0, 100).change(-1, 0)


def test_a_window_without_slices_is_refused_by_name():
    with pytest.raises(BadInput, match="slices"):
        WindowCounts(0, 10, 0)
