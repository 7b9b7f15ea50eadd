"""Open requests join in any order; each ends by release, or in its time; memory is bounded."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from limiting.replication.open_counts import OpenCount, OpenCounts
from limiting.replication.refill import Key
from srtm.contracts.policy import Concurrency
from srtm.token_bucket.bucket import TOKEN

SECOND = 10**9
SUBJECT = b"s" * 16
KEY = (SUBJECT, 0)
HERE, PEER = (0, 1), (1, 1)
RULE = Concurrency(name="open", quota=8, expires_ns=100 * SECOND)


def counts(rule: Concurrency = RULE, *, assumed: bool = False, most: int = 1_000) -> OpenCounts:
    made = OpenCounts(HERE, {0: rule}, 0, assumed=assumed)
    made.most = most
    return made


def left(node: OpenCounts, at_ns: int = 0, subject: bytes = SUBJECT) -> int:
    return node.look(subject, 0, at_ns).left // TOKEN


def places(number: int) -> bytes:
    """Subjects of one place."""
    return bytes(2) + number.to_bytes(14, "big")


told = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 4)), max_size=12)


@given(told, st.integers(0, 1_000))
def test_the_last_version_of_each_writer_wins_in_any_order_and_any_number_of_times(versions, seed):
    chance = Random(seed)
    entries = [((node, epoch), OpenCount(version, (version * 7 + node) % 5)) for node, epoch, version in versions]
    one, other = counts(), counts()
    for entry in entries:
        one.join(KEY, *entry, 0)
    for entry in chance.sample(entries * 2, 2 * len(entries)):
        other.join(KEY, *entry, 0)
    last = {}
    for writer, count in sorted(entries):
        last[writer] = count.open
    assert left(one) == left(other) == 8 - sum(last.values())


def test_what_was_heard_of_a_writer_is_over_after_the_time_of_a_request_and_not_before():
    node = counts()
    node.join(KEY, PEER, OpenCount(1, 4), 5 * SECOND)
    node.join(KEY, PEER, OpenCount(1, 4), 50 * SECOND)  # again: it is no news
    assert left(node, 105 * SECOND - 1) == 4
    assert left(node, 105 * SECOND) == 8
    node.forget(105 * SECOND)
    assert len(node) == 0


def test_an_own_request_ends_when_it_is_released_once_or_in_its_time():
    node = counts()
    for name, at_ns in ((1, 0), (2, SECOND), (3, 2 * SECOND)):
        node.take(SUBJECT, 0, 2, name, at_ns)
    assert node.release(SUBJECT, 2, 3 * SECOND) == [KEY]
    assert node.release(SUBJECT, 2, 3 * SECOND) == []
    assert left(node, 3 * SECOND) == 4
    assert left(node, 100 * SECOND) == 6
    assert node.release(SUBJECT, 1, 100 * SECOND) == [], "it has expired"
    assert node.expire(100 * SECOND) == [KEY]
    assert node.news(KEY).open == 2
    assert node.expire(101 * SECOND) == []
    assert node.expire(102 * SECOND) == [KEY]
    node.news(KEY)
    node.forget(102 * SECOND)
    assert len(node) == 0


def test_an_earlier_start_of_a_node_is_another_writer():
    node = counts()
    node.join(KEY, (1, 1), OpenCount(9, 3), 0)
    node.join(KEY, (1, 2), OpenCount(1, 1), SECOND)
    assert left(node, SECOND) == 4
    assert left(node, 100 * SECOND) == 7
    node.join(KEY, (0, 0), OpenCount(5, 2), SECOND)  # what this node itself let in before it started again
    assert left(node, SECOND) == 2
    node.join(KEY, HERE, OpenCount(5, 2), SECOND)
    assert left(node, SECOND) == 2, "it knows best what it let in itself"


def test_what_a_node_may_have_forgotten_counts_until_a_snapshot_or_its_time():
    node = counts(assumed=True)
    assert left(node) == 0
    look = node.look(SUBJECT, 0, SECOND)
    assert look.wait_ns(TOKEN) == look.reset_ns() == 99 * SECOND
    assert node.assumes(100 * SECOND - 1)
    assert not node.assumes(100 * SECOND)
    assert left(node, 100 * SECOND) == 8
    node.begin([(KEY, PEER, OpenCount(3, 2))], SECOND)
    assert (left(node, SECOND), node.assumes(SECOND)) == (6, False)


def test_a_snapshot_tells_of_every_writer_and_goes_on_with_the_versions_that_peers_know():
    node, other = counts(), OpenCounts((7, 1), {0: RULE}, 0, assumed=False)
    node.join(KEY, PEER, OpenCount(3, 2), 0)
    node.take(SUBJECT, 0, 1, 1, 0)
    other.join(KEY, HERE, node.news(KEY), 0)
    node.take(SUBJECT, 0, 1, 2, 0)
    other.begin(node.snapshot(0), 0)
    assert left(other) == 4
    node.release(SUBJECT, 1, 0)
    other.join(KEY, HERE, node.news(KEY), 0)
    assert left(other) == 5


def test_waits_say_when_enough_has_expired():
    node = counts()
    node.take(SUBJECT, 0, 3, 1, 0)
    node.take(SUBJECT, 0, 2, 2, 10 * SECOND)
    node.join(KEY, PEER, OpenCount(1, 3), 20 * SECOND)
    look = node.look(SUBJECT, 0, 30 * SECOND)
    waits = [look.wait_ns(cost * TOKEN) for cost in (1, 3, 4, 5, 6, 8, 9)]
    assert waits == [70 * SECOND, 70 * SECOND, 80 * SECOND, 80 * SECOND, 90 * SECOND, 90 * SECOND, None]
    assert look.reset_ns() == 90 * SECOND


def test_a_changed_policy_holds_at_once():
    node = counts()
    node.take(SUBJECT, 0, 3, 1, 0)
    node.change({0: Concurrency(name="open", quota=4, expires_ns=10 * SECOND)})
    assert left(node, 10 * SECOND - 1) == 1
    assert left(node, 10 * SECOND) == 4
    assert node.expire(10 * SECOND) == [KEY]


def test_a_flood_of_new_subjects_is_bounded_and_counts_at_least_what_is_open():
    node = counts(most=10)
    for number in range(4_000):
        subject = number.to_bytes(2, "big") + bytes(13) + b"\1"
        node.take(subject, 0, 1, number, 0)
        assert left(node, 0, subject) <= 7
    assert len(node) <= 10 + 1_024


def test_in_a_shared_place_each_subject_is_told_of_by_its_own_name_and_can_be_released():
    node = counts(most=0)
    one, other = places(1), places(2)
    node.take(one, 0, 2, 1, 0)
    node.take(other, 0, 3, 2, 0)
    assert left(node, 0, one) == 3
    assert [node.news((subject, 0)).open for subject in (one, other)] == [2, 3]
    assert node.release(other, 1, 0) == [], "it is the other's"
    assert node.release(one, 1, 0) == [(one, 0)]
    assert node.news((one, 0)).open == 0
    assert node.close(other) == [(other, 0)]
    assert left(node, 0, other) == 8


def test_where_there_is_room_again_a_subject_begins_with_what_was_heard_in_its_place():
    node = counts(most=0)
    one, other = places(1), places(2)
    node.join((one, 0), PEER, OpenCount(1, 3), 0)
    node.join((other, 0), PEER, OpenCount(2, 1), 0)
    assert [left(node, 0, subject) for subject in (one, other)] == [5, 5], "the most of both, of each"
    node.take(one, 0, 1, 1, 0)
    node.most = 100
    node.take(one, 0, 1, 2, 0)
    assert left(node, 0, one) == 3, "its requests stay together"
    node.take(other, 0, 1, 3, 0)
    assert left(node, 0, other) == 4
    node.join((other, 0), PEER, OpenCount(5, 0), 0)
    assert left(node, 0, other) == 7


def test_a_snapshot_of_shared_places_counts_for_the_subjects_in_them():
    full, node = counts(most=0), OpenCounts((7, 1), {0: RULE}, 0, assumed=True)
    full.join((places(1), 0), PEER, OpenCount(1, 3), 0)
    full.take(places(2), 0, 2, 1, 0)
    node.take(places(1), 0, 1, 1, 0)
    node.begin(full.snapshot(0), 0)
    assert left(node, 0, places(1)) <= 8 - 3 - 1
    assert left(node, 0, places(2)) <= 8 - 2


def test_what_is_open_is_never_less_than_what_was_let_in_and_has_not_ended():
    chance = Random(1)
    node, let = counts(most=5), {}
    at_ns = 0
    for number in range(3_000):
        at_ns += chance.randrange(3 * SECOND)
        subject = places(chance.randrange(12))
        if chance.random() < 0.6 and left(node, at_ns, subject) > 0:
            node.take(subject, 0, 1, number, at_ns)
            let[number] = subject, at_ns
        elif let and chance.random() < 0.7:
            name = chance.choice(list(let))
            subject, began_ns = let.pop(name)
            keys: list[Key] = node.release(subject, name, at_ns)
            assert bool(keys) == (at_ns - began_ns < RULE.expires_ns)
        if chance.random() < 0.2:
            node.expire(at_ns)
            node.forget(at_ns)
        let = {name: each for name, each in let.items() if at_ns - each[1] < RULE.expires_ns}
        for subject in map(places, range(12)):
            mine = sum(each[0] == subject for each in let.values())
            assert left(node, at_ns, subject) <= 8 - mine
            assert node.news((subject, 0)).open >= mine
