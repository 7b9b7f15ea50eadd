"""Levels are exact, however large, and what cannot be a level is refused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiting.replication.messages import Increments
from limiting.replication.refill import Refill
from limiting.replication.replicated import Replicated
from srtm._native import LevelTable
from srtm.units import MICRO

SUBJECT = bytes(16)
KEY = (SUBJECT, 0)
MOST = 2**127 - 1
units = st.integers(0, 2**126 - 1)


@given(units, units, st.integers(0, 2**64), st.integers(0, 2**40))
def test_a_level_is_exact_however_large(level, more, rate, elapsed_ns):
    table = LevelTable([rate])
    table.put(KEY, level, 5)
    left = max(0, level - rate * elapsed_ns)
    assert table.level(KEY, 5 + elapsed_ns) == left
    assert table.add(KEY, more, 5 + elapsed_ns) == left + more
    assert table.levels(5) == [(KEY, left + more)]
    assert table.add(KEY, -more, 5 + elapsed_ns) == left
    assert table.add(KEY, -left - 1, 5 + elapsed_ns) == 0


def test_units_beyond_all_bounds_count_as_the_largest_number():
    table = LevelTable([10**60])
    table.put(KEY, 10**60, 0)
    assert table.level(KEY, 0) == table.add(KEY, 10**60, 0) == MOST
    assert table.level(KEY, 1) == 0
    assert table.add(KEY, -(10**60), 0) == 0


def test_a_peer_that_tells_of_absurd_takes_uses_up_the_bucket():
    node = Replicated(0, [1], [Refill(rate_micro=MICRO, burst_micro=MICRO)], 0)
    node.receive(Increments(1, 1, 1, 1, ((KEY, 2**131), (KEY, 2**131))), 0)
    assert node.take(SUBJECT, 1, 0).allowed is False
    assert node.levels.level(KEY, 0) == MOST


@pytest.mark.parametrize(
    ("key", "error", "says"),
    [
        ((bytes(15), 0), ValueError, "16 bytes"),
        ((bytes(17), 0), ValueError, "16 bytes"),
        ((SUBJECT, 2), IndexError, "policy 2 of 2"),
        ((SUBJECT, -1), OverflowError, None),
        ((SUBJECT, 256), OverflowError, None),
        ((SUBJECT,), IndexError, None),
        (("s" * 16, 0), TypeError, None),
        (SUBJECT, TypeError, None),
    ],
)
def test_a_key_that_cannot_be_is_refused(key, error, says):
    table = LevelTable([1, 1])
    with pytest.raises(error, match=says):
        table.put(key, 1, 0)
    with pytest.raises(error, match=says):
        table.level(key, 0)
    assert len(table) == 0


@pytest.mark.parametrize("numbers", [[], [1], [1, 1, 1]])
def test_there_is_one_number_for_each_policy(numbers):
    table = LevelTable([1, 1])
    with pytest.raises(ValueError, match=f"{len(numbers)} numbers for 2 policies"):
        table.add_to_all(numbers, 0)
    with pytest.raises(ValueError, match=f"{len(numbers)} numbers for 2 policies"):
        table.change(numbers, 0)
    with pytest.raises(ValueError, match=f"{len(numbers)} numbers for 2 policies"):
        table.raise_all(numbers, 0)


def test_places_and_subjects_are_found_by_all_their_bytes():
    chance = Random(1)
    subjects = {number.to_bytes(2, "big") + bytes(14) for number in range(1_024)}
    subjects |= {bytes(1 << bit >> 8 * byte & 255 for byte in range(16)) for bit in range(128)}
    subjects |= {chance.randbytes(16) for _ in range(1_000)}
    table = LevelTable([0, 0])
    expected = {(subject, policy): chance.randrange(1, 2**70) for subject in sorted(subjects) for policy in range(2)}
    for key, level in expected.items():
        table.put(key, level, 0)
    assert dict(table.levels(0)) == expected
    assert {key: table.level(key, 0) for key in expected} == expected
