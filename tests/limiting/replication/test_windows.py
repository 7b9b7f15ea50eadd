"""What is left of a window agrees with the reference, and what peers tell of it counts once, in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiting.replication.windows import WindowLook, Windows
from srtm._native import SliceTable
from srtm.contracts.policy import Window
from srtm.contracts.reference import Now, WindowMeter
from srtm.token_bucket.bucket import TOKEN

SUBJECT, OTHER = bytes(16), b"\1" * 16


def window(**changes: Any) -> Window:
    numbers: dict[str, Any] = {"quota": 10, "window_ns": 40, "slices": 4, "weighted": False, "aligned": True}
    return Window(name="w", **{**numbers, **changes})


def windows(rule: Window, *, assumed: bool = False) -> Windows:
    return Windows({0: rule}, 0, assumed=assumed)


def left(node: Windows, wall_ns: int) -> int:
    """Whole tokens."""
    return node.look(SUBJECT, 0, wall_ns).left // TOKEN


rules = st.builds(
    lambda quota, slices, length, weighted: window(
        quota=quota, window_ns=slices * length, slices=slices, weighted=weighted
    ),
    st.integers(1, 30),
    st.integers(1, 5),
    st.integers(1, 9),
    st.booleans(),
)
slices_taken = st.dictionaries(st.integers(0, 12), st.integers(1, 12), max_size=6)


@given(rules, slices_taken, st.integers(0, 90), st.integers(1, 12))
def test_what_is_left_and_when_more_is_agrees_with_the_reference(rule, taken, later_ns, cost):
    # the reference takes slices in order, and knows of none that is ahead of its clock
    wall_ns = max(taken, default=0) * (rule.window_ns // rule.slices) + later_ns
    meter = WindowMeter(rule, sorted(taken.items()))
    look, now = WindowLook(rule, taken, wall_ns), Now(wall_ns, wall_ns)
    assert max(0, look.left) // TOKEN == meter.remaining(now)
    assert (look.left >= cost * TOKEN) == meter.allows(cost, now)
    assert look.wait_ns(cost * TOKEN) == (None if cost > rule.quota else meter.wait_ns(cost, now))
    assert look.reset_ns() == meter.reset_ns(now)


told = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9)), max_size=12)


@given(told, told)
def test_what_peers_tell_counts_the_same_in_any_order(mine, theirs):
    one, other = windows(window()), windows(window())
    for number, tokens in [*mine, *theirs]:
        one.told((SUBJECT, 0, number), tokens, 30)
    for number, tokens in [*reversed(theirs), *mine]:
        other.told((SUBJECT, 0, number), tokens, 30)
    assert sorted(one.snapshot(30)) == sorted(other.snapshot(30))


def test_a_finished_window_is_not_counted_again():
    node = windows(window(window_ns=10, slices=1))
    node.take(SUBJECT, 0, 5, 9)
    node.told((SUBJECT, 0, 0), 7, 10)
    assert left(node, 10) == 10


def test_a_window_of_one_slice_and_weighted_ones():
    fixed, weighted = windows(window(window_ns=30, slices=3)), windows(window(window_ns=30, slices=3, weighted=True))
    for node in (fixed, weighted):
        for wall_ns in (1, 12, 25, 31):
            node.take(SUBJECT, 0, 1, wall_ns)
    assert fixed.look(SUBJECT, 0, 35).used == 3 * 10
    assert weighted.look(SUBJECT, 0, 35).used == 3.5 * 10


def test_slices_that_are_over_are_forgotten_and_subjects_with_nothing_taken():
    node = windows(window(window_ns=20, slices=2, weighted=True))
    for number in range(100):
        node.told((SUBJECT, 0, number), 1, 10 * number)
    assert len(node.snapshot(999)) == 3
    node.take(OTHER, 0, 1, 1_010)
    assert node.forget(1_020) == 1
    assert len(node) == 1
    assert not node.has(SUBJECT)
    assert node.has(OTHER)


@given(st.integers(0, 9))
def test_clocks_that_differ_misplace_only_what_comes_at_an_edge(skew_ns):
    here = windows(window(quota=20, window_ns=200, slices=2))
    there = windows(window(quota=20, window_ns=200, slices=2))
    for at_ns in range(0, 200, 10):
        for number in there.take(SUBJECT, 0, 1, at_ns + skew_ns):
            here.told((SUBJECT, 0, number), 1, at_ns)
    assert left(here, 199) == 0, "a slice that is ahead counts at once"
    assert 20 - left(here, 200) <= 10 + 1 + skew_ns / 10


def test_what_a_wrong_clock_says_counts_from_now_on():
    node = windows(window(window_ns=40, slices=4))
    node.told((SUBJECT, 0, 10**9), 7, 100)
    assert left(node, 100) == 3
    assert node.look(SUBJECT, 0, 100).reset_ns() == 40
    assert left(node, 140) == 10


def test_what_was_taken_before_a_clock_was_set_far_back_counts_from_then_on():
    node = windows(window())
    node.take(SUBJECT, 0, 7, 1_000_000)
    assert left(node, 100) == 3
    node.forget(100)
    assert left(node, 139) == 3
    assert left(node, 140) == 10


def test_what_is_given_back_is_of_the_newest_slice_first_and_no_more_than_is_taken():
    node = windows(window())
    for wall_ns in (0, 10, 20):
        node.take(SUBJECT, 0, 2, wall_ns)
    assert node.take(SUBJECT, 0, -3, 20) == {2: -2, 1: -1}
    assert left(node, 20) == 7
    assert left(node, 40) == 9
    node.take(SUBJECT, 0, -100, 20)
    assert left(node, 20) == 10


def test_what_is_given_back_is_told_and_never_leaves_less_than_nothing():
    node = windows(window())
    node.told((SUBJECT, 0, 0), 2, 0)
    node.told((SUBJECT, 0, 0), -5, 0)
    assert left(node, 0) == 10


def test_a_node_that_may_have_forgotten_counts_the_quota_as_taken_until_it_knows():
    node = windows(window(), assumed=True)
    assert left(node, 39) == 0
    assert node.assumes(39)
    assert not node.assumes(40)
    assert left(node, 40) == 10
    node = windows(window(), assumed=True)
    node.told((SUBJECT, 0, 0), 2, 5)
    node.begin([((SUBJECT, 0, 0), 3)], 5)
    assert left(node, 5) == 5, "what was heard since the start may count twice, never not at all"
    assert node.look(OTHER, 0, 5).left == 10 * TOKEN


def test_a_snapshot_leaves_out_what_the_asker_will_be_told():
    node = windows(window())
    node.told((SUBJECT, 0, 0), 4, 0)
    node.take(SUBJECT, 0, 3, 0)
    node.to_tell((SUBJECT, 0, 0), 3)
    assert node.snapshot(0) == [((SUBJECT, 0, 0), 4)]
    node.unsent(SUBJECT, 0).clear()
    assert node.snapshot(0) == [((SUBJECT, 0, 0), 7)]


def test_changed_slices_keep_all_that_is_inside_and_a_changed_quota_all_slices():
    node = windows(window())
    node.take(SUBJECT, 0, 2, 5)
    node.take(SUBJECT, 0, 3, 25)
    node.change({0: window(quota=6)}, 30)
    assert left(node, 30) == 1
    assert left(node, 40) == 3
    node.change({0: window(quota=6, window_ns=10_000, slices=1)}, 30)
    assert left(node, 30) == 1
    assert left(node, 9_999) == 1
    assert left(node, 10_000) == 6


def test_a_flood_of_new_subjects_shares_places_also_what_peers_tell_of():
    node = windows(window())
    node.most = 2
    subjects = [bytes([1, number]) + bytes(14) for number in range(50)]
    for subject in subjects[:25]:
        node.take(subject, 0, 1, 0)
    for subject in subjects[25:]:
        node.told((subject, 0, 0), 1, 0)
    assert len(node) == 2 + 48
    same_place = subjects[40][:2] + b"other subject "
    assert node.is_shared((same_place, 0))
    node.told((same_place, 0, 0), 3, 0)
    assert node.look(subjects[40], 0, 0).left == 6 * TOKEN, "never less than its own"
    assert len(node) == 2 + 48
    node.most = 100
    node.take(same_place, 0, 1, 0)
    assert node.look(same_place, 0, 0).left == 5 * TOKEN, "with room again it begins with its place"
    assert node.look(subjects[0], 0, 0).left == 9 * TOKEN


def test_what_is_ahead_of_the_next_slice_counts_at_once_and_until_its_own_time():
    node = windows(window())
    node.told((SUBJECT, 0, 3), 4, 0)
    node.told((SUBJECT, 0, 3), 2, 0)
    node.told((SUBJECT, 0, 1), 1, 0)
    assert left(node, 0) == 3
    assert node.forget(0) == 0
    node.told((SUBJECT, 0, 3), -5, 0)
    assert node.snapshot(0) == [((SUBJECT, 0, 1), 1), ((SUBJECT, 0, 3), 1)]
    assert [left(node, wall_ns) for wall_ns in (49, 50, 69, 70)] == [8, 9, 9, 10]
    assert node.forget(70) == 1


def test_an_absurd_count_of_a_peer_uses_up_the_window():
    node = windows(window(quota=2**32 - 1))
    node.told((SUBJECT, 0, 0), 2**131, 0)
    assert left(node, 39) == 0
    assert left(node, 40) == 2**32 - 1
    node.told((SUBJECT, 0, 4), -(2**131), 40)
    assert left(node, 40) == 2**32 - 1


def test_a_window_that_becomes_weighted_keeps_its_slices():
    node = windows(window())
    node.take(SUBJECT, 0, 4, 0)
    node.change({0: window(weighted=True)}, 10)
    assert [left(node, wall_ns) for wall_ns in (39, 45, 50)] == [6, 8, 10]
    node.change({0: window()}, 10)
    assert [left(node, wall_ns) for wall_ns in (39, 40)] == [6, 10]


def test_a_window_without_slices_is_refused():
    with pytest.raises(ValueError, match="zero"):
        SliceTable(0, weighted=False)


@pytest.mark.parametrize("subject", [bytes(15), bytes(17)])
def test_a_subject_of_another_size_is_refused(subject):
    table = SliceTable(4, weighted=False)
    with pytest.raises(ValueError, match="16 bytes"):
        table.put(subject, {}, 0)
    with pytest.raises(ValueError, match="16 bytes"):
        table.counts(subject, 0)
    assert len(table) == 0


def test_what_was_taken_and_given_back_before_anybody_was_told_is_no_news():
    node = windows(window())
    for tokens in (3, -3):
        node.take(SUBJECT, 0, tokens, 0)
        node.to_tell((SUBJECT, 0, 0), tokens)
    assert node.unsent(SUBJECT, 0) == {}
    assert node.forget(0) == 1
    assert not node.has(SUBJECT)
