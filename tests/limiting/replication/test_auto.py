"""Subjects change between replicated and shares, and neither mints tokens."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from bench.limiting.network import Network
from limiting.replication.auto import Auto, Demand, Shares
from limiting.replication.exact import owner
from limiting.replication.levels import Levels
from limiting.replication.refill import Refill
from srtm.errors import PeerError
from srtm.token_bucket.bucket import TOKEN

MICRO = 1_000_000
MS = 1_000_000
SECOND = 1_000 * MS
SUBJECT = bytes(16)
ASKED = Refill(rate_micro=1_000 * MICRO, burst_micro=100 * MICRO)
STEADY = Refill(rate_micro=1_000 * MICRO, burst_micro=1_500 * MICRO)
BURSTY = Refill(rate_micro=1_500 * MICRO, burst_micro=100 * MICRO)
one_and_two = pytest.mark.parametrize("asked", [(ASKED,), (STEADY, BURSTY)], ids=["one policy", "two"])
WIRE_NS = 20 * MS
HOT = 20_000  # tokens/s: 400 come within the wire's delay
COOL = 100


class Cluster:
    def __init__(self, count: int = 4, asked: Sequence[Refill] = (ASKED,), loss: float = 0.0) -> None:
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
        """Tokens above the worst policy, at the worst instant."""
        levels, worst = Levels(self.asked, [0] * len(self.asked), 0), 0
        for at_ns in let:
            for policy, refill in enumerate(self.asked):
                worst = max(worst, levels.add((SUBJECT, policy), TOKEN, at_ns) - refill.units)
        return worst / TOKEN


def test_a_cool_subject_stays_replicated():
    cluster = Cluster()
    cluster.run(3, COOL)
    assert cluster.hot() == 0


@pytest.mark.slow
@one_and_two
def test_a_hot_subject_has_shares_and_is_never_above_from_then_on(asked):
    cluster = Cluster(asked=asked)
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
@one_and_two
def test_shares_follow_demand_and_still_sum_up_to_the_bucket(asked):
    cluster = Cluster(asked=asked)
    cluster.run(2.5, HOT, [0, 1])
    moved = cluster.run(4, HOT, [2, 3])
    assert cluster.above(moved) <= 0
    ends_ns = cluster.network.now_ns
    settled = [at_ns for at_ns in moved if ends_ns - SECOND < at_ns]
    assert len(settled) >= 0.95 * 1_000


@pytest.mark.slow
@one_and_two
def test_a_subject_that_cools_is_replicated_again_and_gains_nothing(asked):
    cluster = Cluster(asked=asked)
    cluster.run(2.5, HOT)
    cluster.run(4, COOL)
    assert cluster.hot() == 0
    burst = cluster.run(0.02, HOT)
    assert len(burst) <= 100 + 20 + 400  # b, r dt and what comes within the wire's delay


@pytest.mark.slow
@one_and_two
def test_lost_messages_delay_a_change_and_mint_nothing(asked):
    cluster = Cluster(asked=asked, loss=0.3)
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
    few = Refill(rate_micro=1_000 * MICRO, burst_micro=3 * MICRO)
    cluster = Cluster(asked=(ASKED, few))
    cluster.run(1.1, 2_000)
    assert cluster.hot() == 0


def test_an_older_version_and_another_node_s_share_are_not_obeyed():
    node = Auto(0, [1, 2], [ASKED], 0, WIRE_NS)
    owns = owner(SUBJECT, range(3))
    other = (owns + 1) % 3
    node.receive(Shares(other, SUBJECT, 9, ((MICRO, MICRO),)), 0)
    assert not node.is_hot(SUBJECT)
    node.receive(Shares(owns, SUBJECT, 5, ((MICRO, MICRO),)), 0)
    node.receive(Shares(owns, SUBJECT, 4, ()), 0)
    assert node.is_hot(SUBJECT)


@pytest.mark.slow
def test_what_a_correction_takes_of_a_hot_subject_is_let_through_the_less():
    cluster = Cluster()
    cluster.run(2.5, HOT)
    assert cluster.hot() == 4
    debited = let = 0
    begun_ns = cluster.network.now_ns
    for _ in range(100):
        let += len(cluster.run(0.03, HOT))
        name = cluster.chance.randrange(4)
        cluster.network.nodes[name].debit(SUBJECT, [6 * TOKEN], cluster.network.now_ns)
        debited += 6
    of_rate = 1_000 * (cluster.network.now_ns - begun_ns) / SECOND
    assert 0.95 * of_rate - debited <= let <= of_rate - debited + 100


def test_a_smaller_cost_is_given_back_to_the_share_that_paid_and_never_beyond_it():
    cluster = Cluster(2)
    for name, node in cluster.network.nodes.items():
        node.receive(Shares(owner(SUBJECT, range(2)), SUBJECT, 1 << 40, ((500 * MICRO, 50 * MICRO),)), 0)
        assert node.is_hot(SUBJECT), name
    node = cluster.network.nodes[0]
    assert node.take(SUBJECT, 30, 0).allowed
    for given, left in ((-10, 30), (-60, 50), (70, -20)):
        node.debit(SUBJECT, [given * TOKEN], 0)
        assert node.look(SUBJECT, 0)[0].left == left * TOKEN
    assert not node.take(SUBJECT, 1, 40 * MS).allowed
    assert node.take(SUBJECT, 1, 42 * MS).allowed


def test_a_debt_of_the_whole_bucket_is_owed_by_every_share_by_its_part_and_forgiven_by_a_reset():
    cluster = Cluster(2, asked=[Refill(rate_micro=MICRO, burst_micro=100 * MICRO)])
    for node in cluster.network.nodes.values():
        node.receive(Shares(owner(SUBJECT, range(2)), SUBJECT, 1 << 40, ((MICRO // 2, 50 * MICRO),)), 0)
    node, other = cluster.network.nodes[0], cluster.network.nodes[1]
    for _ in range(3):  # again it is no more
        (look,) = node.look_everywhere(SUBJECT, 0)
        node.debit_everywhere(SUBJECT, [max(0, look.left + 80 * TOKEN)], 0)
        assert node.look(SUBJECT, 0)[0].left == -40 * TOKEN
    cluster.network.pump(0)
    cluster.network.run(WIRE_NS)
    assert other.look(SUBJECT, WIRE_NS)[0].left // TOKEN == -40
    node.reset(SUBJECT, WIRE_NS)
    assert node.look(SUBJECT, WIRE_NS)[0].left == 50 * TOKEN
    cluster.network.run(11 * SECOND)
    assert other.look(SUBJECT, 11 * SECOND)[0].left // TOKEN == -35
    cluster.network.tick(0)  # what is given back is told after ten seconds
    cluster.network.run(12 * SECOND)
    assert other.look(SUBJECT, 12 * SECOND)[0].left // TOKEN == 0


@pytest.mark.parametrize(("rejoins", "left"), [(False, -40), (True, 0)])
def test_a_subject_that_owes_owes_on_when_it_becomes_hot_but_not_what_a_node_only_assumes(rejoins, left):
    node = Auto(0, [1], [ASKED], 0, WIRE_NS, rejoins=rejoins)
    if not rejoins:
        node.debit(SUBJECT, [180 * TOKEN], 0)
    node.receive(Shares(owner(SUBJECT, range(2)), SUBJECT, 1 << 40, ((500 * MICRO, 50 * MICRO),)), 0)
    assert node.look(SUBJECT, 0)[0].left == left * TOKEN


# several policies


def hot_of_two(slow: Refill, fast: Refill) -> Cluster:
    """Two nodes with half of each bucket."""
    cluster = Cluster(2, asked=(slow, fast))
    for node in cluster.network.nodes.values():
        parts = tuple((each.rate_micro // 2, each.burst_micro // 2) for each in (slow, fast))
        node.receive(Shares(owner(SUBJECT, range(2)), SUBJECT, 1 << 40, parts), 0)
        assert node.is_hot(SUBJECT)
    return cluster


SLOW = Refill(rate_micro=2 * MICRO, burst_micro=40 * MICRO)
FAST = Refill(rate_micro=20 * MICRO, burst_micro=20 * MICRO)


def lefts(node: Auto, at_ns: int) -> list[int]:
    """Whole tokens of each policy."""
    return [look.left // TOKEN for look in node.look(SUBJECT, at_ns)]


def test_a_hot_take_is_of_all_shares_or_of_none_and_waits_for_the_last():
    node = hot_of_two(SLOW, FAST).network.nodes[0]
    assert node.take(SUBJECT, 8, 0).allowed
    assert lefts(node, 0) == [12, 2]
    assert node.take(SUBJECT, 4, 0).wait_ns == SECOND // 5
    assert lefts(node, 0) == [12, 2], "one policy refused it"
    assert node.take(SUBJECT, 10, SECOND).allowed
    assert lefts(node, SECOND) == [3, 0]
    assert node.take(SUBJECT, 5, SECOND).wait_ns == 2 * SECOND, "of the slow one"
    assert node.take(SUBJECT, 11, 100 * SECOND).wait_ns is None, "more than the share of one ever has"
    assert lefts(node, 100 * SECOND) == [20, 10]


@pytest.mark.parametrize("smallest", [0, 1])
def test_the_smallest_burst_makes_a_subject_hot(smallest):
    large = Refill(rate_micro=10**6 * MICRO, burst_micro=10**6 * MICRO)
    asked = [large, large]
    asked[smallest] = ASKED
    cluster = Cluster(asked=asked)
    cluster.run(1.1, 2_400)
    assert cluster.hot() == 4
    assert Cluster(asked=[large, large]).run(1.1, 2_400)
    parts = [cluster.network.nodes[name].look(SUBJECT, cluster.network.now_ns) for name in range(4)]
    assert [sum(look.burst for look in looks) for looks in zip(*parts, strict=True)] == [each.units for each in asked]
    assert [sum(look.rate for look in looks) for looks in zip(*parts, strict=True)] == [
        each.rate_micro for each in asked
    ]


def test_each_policy_pays_and_owes_its_own_correction():
    cluster = hot_of_two(SLOW, FAST)
    node, other = cluster.network.nodes[0], cluster.network.nodes[1]
    node.debit(SUBJECT, [25 * TOKEN, 4 * TOKEN], 0)
    assert lefts(node, 0) == [-5, 6]
    node.debit(SUBJECT, [-100 * TOKEN, -1 * TOKEN], 0)
    assert lefts(node, 0) == [20, 7], "no more than the share"
    node.debit_everywhere(SUBJECT, [60 * TOKEN, 3 * TOKEN], 0)
    assert lefts(node, 0) == [-20, 4]
    assert [look.left // TOKEN for look in node.look_everywhere(SUBJECT, 0)] == [-40, 4]
    cluster.network.pump(0)
    cluster.network.run(WIRE_NS)
    assert lefts(other, WIRE_NS) == [-20, 10], "its part of the debt, and of that policy alone"
    node.reset(SUBJECT, WIRE_NS)
    assert lefts(node, WIRE_NS) == [20, 10]


def test_what_is_left_of_each_policy_goes_into_its_share_and_comes_back():
    node = Auto(0, [1], [SLOW, FAST], 0, WIRE_NS)
    assert node.take(SUBJECT, 10, 0).allowed
    owns = owner(SUBJECT, range(2))
    node.receive(Shares(owns, SUBJECT, 1 << 40, ((MICRO, 20 * MICRO), (10 * MICRO, 10 * MICRO))), 0)
    assert lefts(node, 0) == [15, 5]
    assert node.take(SUBJECT, 5, 0).allowed
    node.receive(Shares(owns, SUBJECT, (1 << 40) + 1, ()), 0)
    assert not node.is_hot(SUBJECT)
    assert lefts(node, 0) == [10, 0]


def test_changed_numbers_are_replicated_until_the_subject_is_found_hot_again():
    node = hot_of_two(SLOW, FAST).network.nodes[0]
    node.change([FAST, SLOW], 0)
    assert not node.is_hot(SUBJECT)
    assert [look.burst for look in node.look(SUBJECT, 0)] == [FAST.units, SLOW.units]


@pytest.mark.parametrize("parts", [((MICRO, MICRO),), ((MICRO, MICRO),) * 3])
def test_shares_of_another_number_of_policies_are_refused(parts):
    node = Auto(0, [1], [SLOW, FAST], 0, WIRE_NS)
    with pytest.raises(PeerError, match=f"told of {len(parts)} policies, not 2"):
        node.receive(Shares(owner(SUBJECT, range(2)), SUBJECT, 1 << 40, parts), 0)
    assert not node.is_hot(SUBJECT)


def test_an_owner_forgets_what_was_asked_of_a_subject_that_never_got_hot():
    node = Auto(0, [1], [ASKED], 0, WIRE_NS)
    subject = next(bytes([n]) * 16 for n in range(99) if owner(bytes([n]) * 16, range(2)) == 0)
    node.receive(Demand(1, ((subject, 1),)), 0)
    node.tick(SECOND)
    assert node.reports == 1
    node.tick(3 * SECOND)
    assert node.reports == 0
