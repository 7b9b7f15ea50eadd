"""The queue of the thesis, with its misprints mended and its faults kept."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiting.replication.gossiped.counter import CounterNode
from limiting.replication.gossiped.gossip import MS, Delta, Gossip, GossipOptions
from limiting.replication.gossiped.queue import QueueNode, alive, merge, merge_delta
from limiting.replication.refill import Refill
from srtm.errors import BadInput

MICRO = 1_000_000
SECOND = 1_000_000_000
SUBJECT = bytes(16)
ASKED = Refill(rate_micro=MICRO, burst_micro=10 * MICRO)
LIFE = 20


def queue_of(births: list[int]) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    for birth in sorted(births):
        made.append((birth, (made[-1][1] if made else birth) + LIFE))
    return made


def test_the_example_of_section_4_1_2():
    merged = merge([(1, 21), (3, 41), (5, 61)], [(2, 22), (4, 42)], LIFE)
    assert merged == [(1, 21), (2, 41), (3, 61), (4, 81), (5, 101)]


births = st.lists(st.integers(0, 200), max_size=8, unique=True)


@given(births, births, births)
def test_the_merge_alone_is_a_semilattice(a, b, c):
    one, two, three = map(queue_of, (a, b, c))
    assert merge(one, two, LIFE) == merge(two, one, LIFE)
    assert merge(one, merge(two, three, LIFE), LIFE) == merge(merge(one, two, LIFE), three, LIFE)
    assert merge(one, one, LIFE) == one


def test_a_later_death_is_never_brought_forward():
    """Figure 4.5: an element that was removed still counts in the deaths after it."""
    assert merge([(10, 50)], [(10, 30)], LIFE) == [(10, 50)]


def test_fault_removal_makes_the_order_of_merges_matter():
    a, b, c, at = [(8, 28)], [(9, 29)], [(6, 26)], 32
    first = alive(merge(alive(merge(a, b, LIFE), at), c, LIFE), at)
    second = alive(merge(alive(merge(a, c, LIFE), at), b, LIFE), at)
    assert (first, second) == ([(9, 48)], [(8, 46), (9, 66)])


def test_fault_two_requests_of_one_millisecond_are_one_element():
    assert merge([(7, 27)], [(7, 27)], LIFE) == [(7, 27)]


def test_a_delta_keeps_both_versions_of_an_element_and_the_local_state_counts_one():
    """Listing 4.2 as it is printed counts both, tells both, and fills the memory within seconds."""
    delta = merge_delta([(5, 41)], [(5, 61)])
    assert delta == [(5, 41), (5, 61)]
    assert merge([(1, 21), (5, 41)], delta, LIFE) == [(1, 21), (5, 61)]


def test_fault_each_changed_death_is_told_to_everybody_again():
    node = QueueNode(0, [1, 2], ASKED, 0)
    for number in range(5):
        node.take(SUBJECT, 1, (number + 1) * MS)
    node.receive(Delta(1, {SUBJECT: [(0, SECOND)]}), 9 * MS)
    assert len(node.deltas[2][SUBJECT]) == 5 + 1 + 5


def test_fault_what_dies_before_it_has_spread_is_forgotten():
    """Data set D: one request every 0.9 s, one token a second; each meets a node that knows of no other."""
    asked = Refill(rate_micro=MICRO, burst_micro=5 * MICRO)
    nodes = [QueueNode(name, [], asked, 0) for name in range(100)]
    assert all(node.take(SUBJECT, 1, number * 9 * SECOND // 10).allowed for number, node in enumerate(nodes))


def test_one_node_refuses_what_the_counter_refuses():
    """Figure 5.2."""
    counter, queue = CounterNode(0, [], ASKED, 0), QueueNode(0, [], ASKED, 0)
    chance, at_ns, found = Random(1), 0, []
    for _ in range(400):
        at_ns += round(chance.expovariate(2) * 1_000) * MS
        found.append((counter.take(SUBJECT, 1, at_ns).allowed, queue.take(SUBJECT, 1, at_ns).allowed))
    assert sum(one != other for one, other in found) <= 4
    assert sum(one for one, _ in found) < 400


def test_the_dead_are_removed_and_the_living_stay():
    """Listing 4.1 as it is printed removes the living."""
    assert alive([(1, 21), (2, 41)], 20) == [(1, 21), (2, 41)]
    assert alive([(1, 21), (2, 41)], 21) == [(2, 41)]
    assert alive([(1, 21)], 30) == []


def test_a_refusal_says_when_the_next_element_dies():
    node = QueueNode(0, [], ASKED, 0)
    for _ in range(10):
        node.take(SUBJECT, 1, 0)
    refused = node.take(SUBJECT, 1, SECOND // 2)
    assert refused.wait_ns == SECOND // 2
    assert node.take(SUBJECT, 1, SECOND).allowed


def test_news_goes_to_the_others_and_not_back_to_the_sender():
    node = QueueNode(0, [1, 2], ASKED, 0)
    news = [(0, SECOND)]
    node.receive(Delta(1, {SUBJECT: news}), 0)
    assert node.deltas == {1: {}, 2: {SUBJECT: news}}
    node.receive(Delta(2, {SUBJECT: news}), 0)  # known
    assert node.deltas[1] == {}


def test_a_changed_death_is_told_to_the_sender_too():
    node = QueueNode(0, [1, 2], ASKED, 0)
    node.take(SUBJECT, 1, 0)
    node.receive(Delta(1, {SUBJECT: [(MS, SECOND + MS)]}), 2 * MS)
    assert node.deltas[1][SUBJECT][-1] == (MS, 2 * SECOND)


def test_a_delta_of_the_dead_leaves_nothing():
    node = QueueNode(0, [1], ASKED, 0)
    node.receive(Delta(1, {SUBJECT: [(0, SECOND)]}), 2 * SECOND)
    assert node.local == {}
    assert node.told


def test_frequent_means_short_intervals():
    """Listing 4.5 as it is printed sends what is seldom."""
    options = GossipOptions(frequency_analysis=True, window=3)
    fast, slow = (QueueNode(0, [1], ASKED, 0, options) for _ in range(2))
    for number in range(3):
        fast.take(SUBJECT, 1, number * SECOND)
        slow.take(SUBJECT, 1, number * 4 * SECOND)
    ((peer, delta),) = fast.outbox()
    assert (peer, len(delta.users[SUBJECT])) == (1, 3)
    assert slow.outbox() == []
    assert fast.told


def test_linf_tells_the_least_informed_neighbour_first():
    options = GossipOptions(gossip=Gossip.LINF)
    node = QueueNode(0, [1, 2, 3], ASKED, 0, options)
    node.take(SUBJECT, 1, 0)
    node.receive(Delta(1, {SUBJECT: [(MS, 3 * SECOND)]}), MS)
    told = []
    for _ in range(3):
        node.tick(node.due_ns)
        told.append(node.outbox()[0][0])
    assert set(told[:2]) == {2, 3}
    assert told[2] == 1


def test_a_rate_of_zero_is_refused_by_name():
    with pytest.raises(BadInput, match="rate"):
        QueueNode(0, [], Refill(rate_micro=0, burst_micro=MICRO), 0)
