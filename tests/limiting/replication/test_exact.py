"""The exact mode is never above (r, b), whatever comes late, is lost or dies; and it stays useful."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random

import pytest

from bench.limiting.network import Network
from limiting.replication.exact import ASK_AGAIN, Asked, Exact, owner
from limiting.replication.levels import Levels
from limiting.replication.refill import Key, Refill, Verdict
from srtm.errors import BadInput
from srtm.token_bucket.bucket import TOKEN

MICRO = 1_000_000
MS = 1_000_000
SECOND = 1_000 * MS
SUBJECTS = [bytes([n]) * 16 for n in range(3)]


class Logged(Exact):
    """Writes down every take, whoever decided it, by the network's clock."""

    corrects = False

    def logging(self, log: list[tuple[int, Key, int]], ahead_ns: int) -> Logged:
        self.log, self.ahead_ns = log, ahead_ns
        return self

    def _take(self, key: Key, units: int, at_ns: int) -> None:
        super()._take(key, units, at_ns)
        if not self.corrects:
            self.log.append((at_ns - self.ahead_ns, key, units))

    def debit(self, subject: bytes, units: Sequence[int], at_ns: int) -> None:
        """A correction is no take: it must not let more through than there was without it."""
        self.corrects = True
        super().debit(subject, units, at_ns)
        self.corrects = False


class World:
    """A random cluster: delays up to 0.5 s, lost frames, weights, nodes that die and some that come again."""

    def __init__(self, seed: int, *, corrects: bool = False) -> None:
        self.corrects = corrects
        self.chance = Random(seed)
        self.count = self.chance.randint(2, 8)
        burst = self.chance.randint(5, 100)
        self.refill = Refill(rate_micro=burst * MICRO // self.chance.choice([2, 10, 50]), burst_micro=burst * MICRO)
        self.beta = self.chance.choice([Fraction(1, 10), Fraction(1, 4), Fraction(2, 5)])
        self.heaviest = self.chance.choice([1, 1, 5])
        longest = self.chance.choice([0, 5 * MS, 50 * MS, 500 * MS])
        self.network = Network(
            lambda: self.chance.randint(0, longest), loss=self.chance.choice([0.0, 0.0, 0.1]), seed=seed
        )
        self.log: list[tuple[int, Key, int]] = []
        self.asked = self.alone = 0
        for name in range(self.count):
            self.start(name, [peer for peer in range(self.count) if peer != name], rejoins=False)

    def start(self, name: int, peers: list[int], *, rejoins: bool) -> None:
        ahead_ns = self.chance.randint(0, 10**15)
        node = Logged(
            name,
            peers,
            [self.refill],
            self.network.now_ns + ahead_ns,
            beta=self.beta,
            epoch=2 if rejoins else 1,
            rejoins=rejoins,
        )
        self.network.add(name, node.logging(self.log, ahead_ns), ahead_ns)

    def lose(self, name: int) -> None:
        """The node dies; each other one learns of it later, at its own time."""
        network = self.network
        network.stop(name)
        told_ns = network.now_ns
        for peer in list(network.nodes):
            at_ns = network.now_ns + self.chance.randint(0, 2 * SECOND)
            told_ns = max(told_ns, at_ns)
            network.at(at_ns, lambda peer=peer: self.remove(peer, name))
        if self.chance.random() < 0.5:
            network.at(told_ns + 1, lambda: self.again(name))

    def remove(self, peer: int, name: int) -> None:
        if peer in self.network.nodes:
            self.network.nodes[peer].remove_peer(name, self.network.clock_ns(peer))
            self.network.pump(peer)

    def again(self, name: int) -> None:
        network = self.network
        for peer in list(network.nodes):
            network.nodes[peer].add_peer(name)
        self.start(name, sorted(network.nodes), rejoins=True)
        for peer in network.nodes:
            network.pump(peer)

    def run(self, requests: int) -> World:
        network, chance = self.network, self.chance
        load = chance.uniform(0.3, 20)
        gap_ns = SECOND * MICRO / (self.refill.rate_micro * load) * (1 + self.heaviest) / 2
        losses = {requests * part // 4 for part in range(1, 4) if chance.random() < 0.4}
        for number in range(requests):
            network.run(network.now_ns + round(chance.expovariate(1 / gap_ns)))
            if number in losses and len(network.nodes) == self.count > 2:
                self.lose(chance.choice(sorted(network.nodes)))
            name = chance.choice(sorted(network.nodes))
            network.tick(name)
            cost = chance.randint(1, self.heaviest)
            verdict = network.nodes[name].take(chance.choice(SUBJECTS[:2]), cost, network.clock_ns(name))
            self.asked += 1
            self.alone += verdict == Verdict(allowed=True)
            if self.corrects and chance.random() < 0.2:
                more = chance.randint(-5, 5) * TOKEN
                network.nodes[name].debit(chance.choice(SUBJECTS[:2]), [more], network.clock_ns(name))
            network.pump(name)
        return self

    def above(self) -> int:
        """Units above the burst of one bucket a subject that all takes go into, at worst."""
        levels, worst = Levels([self.refill], [0], 0), 0
        for at_ns, key, units in self.log:
            worst = max(worst, levels.add(key, units, at_ns) - self.refill.units)
        return worst


def violations(seeds: range, *, corrects: bool = False) -> list[int]:
    return [seed for seed in seeds if World(seed, corrects=corrects).run(80).above() > 0]


@pytest.mark.slow
def test_never_above_in_200_random_runs():
    assert violations(range(200)) == []


@pytest.mark.slow
def test_never_above_in_200_random_runs_with_corrections():
    assert violations(range(200), corrects=True) == []


@pytest.mark.slow
@pytest.mark.long  # 200 of them are held above
@pytest.mark.timeout(1_800)
def test_never_above_in_10000_random_runs():
    assert violations(range(10_000)) == []


def pair(burst: int = 40, rate: int = 1) -> Network:
    network = Network(lambda: MS)
    asked = Refill(rate_micro=rate * MICRO, burst_micro=burst * MICRO)
    for name in range(2):
        network.add(name, Exact(name, [1 - name], [asked], 0))
    return network


OWNED_BY_0 = next(bytes([n]) * 16 for n in range(99) if owner(bytes([n]) * 16, range(2)) == 0)


def ask(network: Network, name: int, cost: int = 1):
    verdict = network.nodes[name].take(OWNED_BY_0, cost, network.now_ns)
    network.pump(name)
    if isinstance(verdict, Asked):
        network.run(network.now_ns + 2 * MS)
        return network.nodes[name].answers()[verdict.ticket]
    return verdict


def test_far_from_the_limit_a_node_decides_alone():
    network = pair()
    assert isinstance(network.nodes[1].take(OWNED_BY_0, 5, 0), Verdict)
    assert isinstance(network.nodes[1].take(OWNED_BY_0, 1, 0), Asked)


def test_near_the_limit_the_owner_lets_through_all_but_what_it_keeps_for_news():
    network = pair(burst=40, rate=1)
    let = 0
    while ask(network, 1).allowed:
        let += 1
        network.run(network.now_ns + 5 * MS)
    assert 38 <= let <= 40


def test_a_refusal_tells_when_the_owner_may_grant():
    network = pair(burst=4)
    while ask(network, 0).allowed:
        network.run(network.now_ns + 5 * MS)
    refused = ask(network, 1)
    assert refused.wait_ns > 0
    network.run(network.now_ns + refused.wait_ns)
    assert ask(network, 1).allowed


def test_the_long_run_rate_holds_under_overload():
    network = pair(burst=10, rate=100)
    let = 0
    while network.now_ns < 2 * SECOND:
        network.run(network.now_ns + 3 * MS)
        let += ask(network, let % 2).allowed
    assert 0.95 * 210 <= let <= 210


def test_a_node_that_cannot_reach_a_peer_decides_nothing():
    network = pair()
    network.nodes[0].cut.add(1)
    assert ask(network, 0) == ASK_AGAIN
    network.nodes[0].cut.clear()
    assert ask(network, 0).allowed


def test_an_owner_that_does_not_answer_is_given_up_after_a_second():
    network = pair(burst=4)
    network.cut([0], [1])
    verdict = network.nodes[1].take(OWNED_BY_0, 4, 0)
    network.run(SECOND)
    network.tick(1)
    assert network.nodes[1].answers() == {verdict.ticket: ASK_AGAIN}


def test_what_a_lost_owner_may_have_granted_counts_until_it_has_drained():
    network = pair(burst=4)
    network.stop(0)
    network.nodes[1].remove_peer(0, 0)
    assert network.nodes[1].take(OWNED_BY_0, 1, 0).wait_ns >= SECOND
    other = next(bytes([n]) * 16 for n in range(99) if owner(bytes([n]) * 16, range(2)) == 1)
    assert network.nodes[1].take(other, 1, 0).allowed


def test_acknowledgements_count_only_after_the_news_before_them():
    network = pair()
    first, second = network.nodes[0], network.nodes[1]
    first.take(OWNED_BY_0, 5, 0)  # its frame stays on the way
    news = first.outbox()
    second.take(OWNED_BY_0, 5, 0)
    first.receive(second.outbox()[0][1], MS)
    ((_, ack),) = first.outbox()
    second.receive(ack, 2 * MS)
    assert second.levels.unacked == {(OWNED_BY_0, 0): 5 * TOKEN}
    second.receive(news[0][1], 3 * MS)
    assert second.levels.unacked == {}


def test_a_beta_of_a_half_is_refused_by_name():
    with pytest.raises(BadInput, match="beta"):
        Exact(0, [], [Refill(rate_micro=1, burst_micro=MICRO)], 0, beta=Fraction(1, 2))


def test_a_correction_counts_at_every_node_and_a_smaller_one_gives_nothing_back():
    network = pair(burst=40)
    assert ask(network, 1, 5).allowed
    network.run(10 * MS)
    for more, left in ((3, 32), (-3, 32), (50, -18)):
        network.nodes[1].debit(OWNED_BY_0, [more * TOKEN], network.now_ns)
        network.pump(1)
        network.run(network.now_ns + 10 * MS)
        assert [node.look(OWNED_BY_0, network.now_ns)[0].left // TOKEN for node in network.nodes.values()] == [left] * 2
    assert not ask(network, 0).allowed
    network.nodes[0].reset(OWNED_BY_0, network.now_ns)
    network.pump(0)
    network.run(network.now_ns + 10 * MS)
    assert ask(network, 1).allowed
