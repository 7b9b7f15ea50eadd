"""Subjects change between replicated and shares, and neither mints tokens."""

from __future__ import annotations

from random import Random

import pytest

from bench.limiting.network import Network
from limiting.replication.auto import Auto, Shares
from limiting.replication.exact import owner
from limiting.replication.levels import Levels
from limiting.replication.refill import Refill
from srtm.token_bucket.bucket import TOKEN

MICRO = 1_000_000
MS = 1_000_000
SECOND = 1_000 * MS
SUBJECT = bytes(16)
ASKED = Refill(rate_micro=1_000 * MICRO, burst_micro=100 * MICRO)
WIRE_NS = 20 * MS
HOT = 20_000  # tokens/s: 400 come within the wire's delay
COOL = 100


class Cluster:
    def __init__(self, count: int = 4, asked: Refill = ASKED, loss: float = 0.0) -> None:
        self.asked, self.count = asked, count
        self.network = Network(lambda: WIRE_NS, loss=loss, seed=1)
        self.chance = Random(1)
        self.let: list[int] = []
        for name in range(count):
            peers = [peer for peer in range(count) if peer != name]
            self.network.add(name, Auto(name, peers, asked, 0, WIRE_NS))

    def run(self, seconds: float, rate: float, nodes: list[int] | None = None) -> list[int]:
        """Instants of what is let through."""
        let, network = [], self.network
        ends_ns = network.now_ns + round(seconds * SECOND)
        while network.now_ns < ends_ns:
            network.run(network.now_ns + round(self.chance.expovariate(rate / SECOND)))
            for name in sorted(network.nodes):
                network.tick(name)
            name = self.chance.choice(nodes or sorted(network.nodes))
            if network.nodes[name].take(SUBJECT, 1, network.now_ns).allowed:
                let.append(network.now_ns)
            network.pump(name)
        self.let += let
        return let

    def hot(self) -> int:
        return sum(node.is_hot(SUBJECT) for node in self.network.nodes.values())

    def above(self, let: list[int]) -> float:
        levels, worst = Levels([self.asked], [0], 0), 0
        for at_ns in let:
            slot = levels.slot((SUBJECT, 0), at_ns)
            slot.level += TOKEN
            worst = max(worst, slot.level - self.asked.units)
        return worst / TOKEN


def test_a_cool_subject_stays_replicated():
    cluster = Cluster()
    cluster.run(3, COOL)
    assert cluster.hot() == 0


@pytest.mark.slow
def test_a_hot_subject_has_shares_and_is_never_above_from_then_on():
    cluster = Cluster()
    first = cluster.run(1.2, HOT)
    assert cluster.hot() == 4
    assert cluster.above(first) > 10, "deciding alone would be above, once"
    then = cluster.run(3, HOT)
    assert cluster.above(then) <= 0
    assert len(then) >= 0.97 * 1_000 * 3


@pytest.mark.slow
def test_the_first_shares_do_not_starve_nodes_that_have_not_reported():
    cluster = Cluster()
    cluster.run(1.1, 2_400)  # the owner has reported first: 600 tokens/s are hot
    assert cluster.hot() == 4
    first = cluster.run(0.9, 2_400)
    assert len(first) >= 0.85 * 1_000 * 0.9


@pytest.mark.slow
def test_shares_follow_demand_and_still_sum_up_to_the_bucket():
    cluster = Cluster()
    cluster.run(2.5, HOT, [0, 1])
    moved = cluster.run(4, HOT, [2, 3])
    assert cluster.above(moved) <= 0
    ends_ns = cluster.network.now_ns
    settled = [at_ns for at_ns in moved if ends_ns - SECOND < at_ns]
    assert len(settled) >= 0.95 * 1_000


@pytest.mark.slow
def test_a_subject_that_cools_is_replicated_again_and_gains_nothing():
    cluster = Cluster()
    cluster.run(2.5, HOT)
    cluster.run(4, COOL)
    assert cluster.hot() == 0
    burst = cluster.run(0.02, HOT)
    assert len(burst) <= 100 + 20 + 400  # b, r dt and what comes within the wire's delay


@pytest.mark.slow
def test_lost_messages_delay_a_change_and_mint_nothing():
    cluster = Cluster(loss=0.3)
    cluster.run(6, HOT)
    assert cluster.hot() == 4
    assert cluster.above(cluster.run(2, HOT)) <= 0
    cluster.run(8, COOL)
    assert cluster.hot() == 0


@pytest.mark.slow
def test_where_an_owner_is_lost_another_finds_the_subject_hot():
    cluster = Cluster()
    cluster.run(1.5, HOT)
    lost, network = owner(SUBJECT, range(4)), cluster.network
    network.stop(lost)
    for node in network.nodes.values():
        node.remove_peer(lost, network.now_ns)
    assert cluster.hot() == 0
    cluster.run(2.5, HOT)
    assert cluster.hot() == 3


def test_a_burst_of_fewer_tokens_than_nodes_is_never_split():
    cluster = Cluster(asked=Refill(rate_micro=1_000 * MICRO, burst_micro=3 * MICRO))
    cluster.run(1.1, 2_000)
    assert cluster.hot() == 0


def test_an_older_version_and_another_node_s_share_are_not_obeyed():
    node = Auto(0, [1, 2], ASKED, 0, WIRE_NS)
    owns = owner(SUBJECT, range(3))
    other = (owns + 1) % 3
    node.receive(Shares(other, SUBJECT, 9, (MICRO, MICRO)), 0)
    assert not node.is_hot(SUBJECT)
    node.receive(Shares(owns, SUBJECT, 5, (MICRO, MICRO)), 0)
    node.receive(Shares(owns, SUBJECT, 4, None), 0)
    assert node.is_hot(SUBJECT)
