"""The counter of the thesis, with its misprints mended."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.limiting.network import Network
from limiting.replication.gossiped.counter import CounterBucket, CounterNode
from limiting.replication.gossiped.gossip import Gossip, GossipOptions
from limiting.replication.refill import Refill, Verdict
from srtm.errors import BadInput
from srtm.token_bucket.bucket import TOKEN, conforms_due

MICRO = 1_000_000
SECOND = 1_000_000_000
SUBJECT = bytes(16)
ASKED = Refill(rate_micro=MICRO, burst_micro=10 * MICRO)


def bucket(counts: dict[int, int], limit: int, refilled_ns: int) -> CounterBucket:
    return CounterBucket(counts, sum(counts.values()), limit * TOKEN, refilled_ns)


buckets = st.builds(bucket, st.dictionaries(st.integers(0, 3), st.integers(1, 9)), st.integers(1, 50), st.just(0))


@given(buckets, buckets, buckets)
def test_counts_merge_as_a_semilattice(a, b, c):
    assert a.merged(b) == b.merged(a)
    assert a.merged(b.merged(c)) == a.merged(b).merged(c)
    assert a.merged(a) == a


def test_one_node_decides_as_the_exact_bucket_does():
    node = CounterNode(0, [], ASKED, 0)
    chance, at_ns, let = Random(1), 0, []
    for _ in range(300):
        at_ns += round(chance.expovariate(3) * SECOND)
        if node.take(SUBJECT, 1, at_ns).allowed:
            let.append(at_ns)
    assert conforms_due(let, MICRO, 10 * MICRO) is None
    assert len(let) >= 10 + at_ns // SECOND - 1


def test_after_a_rest_no_more_than_the_capacity_passes():
    """Listing 3.1 as it is printed lets 90 through."""
    node = CounterNode(0, [], ASKED, 0)
    for number in range(10):
        assert node.take(SUBJECT, 1, 10 * number * SECOND).allowed
    assert sum(node.take(SUBJECT, 1, 90 * SECOND).allowed for _ in range(100)) == 9


def test_a_refusal_says_when_the_next_token_is_there():
    node = CounterNode(0, [], ASKED, 0)
    for _ in range(10):
        node.take(SUBJECT, 1, 0)
    assert node.take(SUBJECT, 1, 0) == Verdict(allowed=False, wait_ns=SECOND)
    assert node.take(SUBJECT, 1, SECOND).allowed


def three_nodes(options: GossipOptions) -> Network:
    network = Network()
    for name in range(3):
        network.add(name, CounterNode(name, [peer for peer in range(3) if peer != name], ASKED, 0, options))
    return network


@pytest.mark.parametrize("gossip", list(Gossip))
def test_nodes_agree_and_then_say_nothing_more(gossip):
    frames = []
    network = three_nodes(GossipOptions(gossip=gossip))
    network._sent = lambda origin, peer, frame: frames.append(frame)
    for name in range(3):
        network.nodes[name].take(SUBJECT, 1, 0)
    network.every(SECOND // 10, 0, 60 * SECOND, lambda: [network.tick(name) for name in range(3)])
    network.run(20 * SECOND)
    assert all(node.told and node.local[SUBJECT].used == 3 for node in network.nodes.values())
    said = len(frames)
    network.run(60 * SECOND)  # limits grow meanwhile: that is no update
    assert len(frames) == said > 0


def test_frequent_requests_are_told_at_once():
    options = GossipOptions(frequency_analysis=True, window=3)
    node = CounterNode(0, [1, 2], ASKED, 0, options)
    told = []
    for number in range(4):
        node.take(SUBJECT, 1, number * SECOND)
        told.append(sorted(peer for peer, _ in node.outbox()))
    assert told == [[], [], [1, 2], []]
    slow = CounterNode(0, [1, 2], ASKED, 0, options)
    for number in range(4):
        slow.take(SUBJECT, 1, 4 * number * SECOND)
    assert slow.outbox() == []


def test_a_weight_is_refused_by_name():
    with pytest.raises(BadInput, match="cost"):
        CounterNode(0, [], ASKED, 0).take(SUBJECT, 2, 0)
