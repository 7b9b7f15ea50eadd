"""A grant is used once, within its time, and only at the start of the node that gave it."""

from __future__ import annotations

import pytest

from limiting.replication import node_grants
from limiting.replication.node_grants import CORRECT_WITHIN_US, Grant, Grants, Outcome

TAG, SUBJECT = bytes(8), bytes(16)
S = 10**9
WALL_NS = 10**18
CORRECT_WITHIN_NS = CORRECT_WITHIN_US * 1_000


def test_a_grant_is_used_once():
    given = Grants(7, 0, WALL_NS)
    first, second = given.made(TAG, SUBJECT, 3, 0), given.made(TAG, SUBJECT, 3, 0)
    assert [given.use(each, S) for each in (first, second, first)] == [Outcome.TAKEN, Outcome.TAKEN, Outcome.USED]


def test_it_is_refused_as_long_as_it_is_remembered_and_afterwards_as_too_old():
    given = Grants(7, 0, WALL_NS)
    grant = given.made(TAG, SUBJECT, 3, 0)
    assert given.use(grant, 0) is Outcome.TAKEN
    asked = [given.use(grant, at_ns) for at_ns in (1, CORRECT_WITHIN_NS, CORRECT_WITHIN_NS + 1_000)]
    assert asked == [Outcome.USED, Outcome.USED, Outcome.OLD]


def test_one_that_waits_is_taken_until_its_sixty_seconds_are_over():
    given = Grants(7, 0, WALL_NS)
    grant, late = given.made(TAG, SUBJECT, 3, 0), given.made(TAG, SUBJECT, 3, 1_000)
    assert given.use(grant, CORRECT_WITHIN_NS) is Outcome.TAKEN
    assert given.use(late, CORRECT_WITHIN_NS + 2_000) is Outcome.OLD


def test_a_node_that_starts_again_refuses_what_it_gave_before():
    before = Grants(7, 0, WALL_NS)
    grant = before.made(TAG, SUBJECT, 3, 5 * S)
    after = Grants(7, 0, WALL_NS + 6 * S)
    assert after.use(grant, 0) is Outcome.FORGOTTEN
    later = after.made(TAG, SUBJECT, 3, S)
    assert before.use(later, S) is Outcome.FORGOTTEN, "nor does it take what it never gave"


def test_what_is_too_old_is_forgotten_and_room_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(node_grants, "MOST_REMEMBERED", 2)
    given = Grants(7, 0, WALL_NS)

    def used(at_ns: int) -> Outcome:
        return given.use(given.made(TAG, SUBJECT, 1, at_ns), at_ns)

    assert [used(0), used(0), used(S)] == [Outcome.TAKEN, Outcome.TAKEN, Outcome.FULL]
    assert used(CORRECT_WITHIN_NS + 1_000) is Outcome.TAKEN


def test_grants_of_one_instant_differ():
    given = Grants(7, 0, WALL_NS)
    made = [given.made(TAG, SUBJECT, 1, 0) for _ in range(5)]
    assert len(set(made)) == 5
    assert made[0] == Grant(7, TAG, SUBJECT, 1, WALL_NS // 1_000)
