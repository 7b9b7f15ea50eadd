"""The laws of the replicated mode, on random traffic, networks and clocks."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.limiting.network import Network
from limiting.replication import messages
from limiting.replication.levels import Levels, decayed, joined
from limiting.replication.link import Link
from limiting.replication.refill import Refill, Verdict
from limiting.replication.replicated import LINKED_WITHIN_NS, OnPartition, Options, Replicated
from srtm.errors import BadInput, PeerError
from srtm.token_bucket.bucket import TOKEN, conforms_due
from tests.support.limit_traffic import asked_nodes

MICRO = 1_000_000
MS = 1_000_000
SECOND = 1_000 * MS
SUBJECT = bytes(16)
KEY = (SUBJECT, 0)


def refill(rate: float, burst: float) -> Refill:
    return Refill(rate_micro=round(rate * MICRO), burst_micro=round(burst * MICRO))


def cluster(network: Network, count: int, asked: Refill, options: Options = Options(), clocks=None):  # noqa: B008
    for name in range(count):
        clock_ns = clocks[name] if clocks else 0
        peers = [peer for peer in range(count) if peer != name]
        network.add(name, Replicated(name, peers, [asked], clock_ns, options), clock_ns)


def take(network: Network, name: int, cost: int = 1) -> Verdict:
    verdict = network.nodes[name].take(SUBJECT, cost, network.clock_ns(name))
    network.pump(name)
    return verdict


def one_bucket(takes: list[tuple[int, int]], asked: Refill) -> Levels:
    """(instant, units) put into one bucket at their own instants."""
    levels = Levels([asked], [0], 0)
    for at_ns, units in sorted(takes):
        levels.add(KEY, units, at_ns)
    return levels


class Traffic:
    """Requests at random nodes, at random instants: ``let`` is what passed, (instant, cost)."""

    def __init__(self, network: Network, seed: int, heaviest: int = 1) -> None:
        self.network, self.chance, self.heaviest = network, Random(seed), heaviest
        self.let: list[tuple[int, int]] = []
        self.asked = 0

    def run(self, requests: int, mean_gap_ns: float) -> Traffic:
        for name in asked_nodes(self.network, self.chance, requests, mean_gap_ns):
            cost = self.chance.randint(1, self.heaviest)
            self.asked += cost
            if take(self.network, name, cost).allowed:
                self.let.append((self.network.now_ns, cost))
        return self

    def above(self, asked: Refill) -> float:
        """Tokens above the burst, at the worst instant, of one bucket that all takes go into."""
        levels, worst = Levels([asked], [0], 0), 0
        for at_ns, cost in self.let:
            worst = max(worst, levels.add(KEY, cost * TOKEN, at_ns) - asked.units)
        return worst / TOKEN


# L1


@given(st.lists(st.integers(1, 5), min_size=1, max_size=80), st.integers(0, 10_000))
def test_l1_duplicates_losses_and_disorder_apply_each_increment_once(costs, seed):
    chance = Random(seed)
    sender, receiver = Link(1, 1, 1), Link(2, 1, 1)
    on_the_way: list[object] = []
    applied = 0
    for cost in costs:
        on_the_way += sender.send([(KEY, cost)], 0)
    while not sender.idle:
        on_the_way += sender.repeat(0, 0) * chance.randint(1, 2) or [receiver.ack()]
        chance.shuffle(on_the_way)
        for frame in on_the_way[: chance.randint(1, len(on_the_way))]:
            if isinstance(frame, messages.Increments):
                applied += sum(units for _, units in receiver.accept(frame) or ())
                on_the_way.append(receiver.ack())
            else:
                on_the_way += sender.take_ack(frame, 0)[1]
        on_the_way = [frame for frame in on_the_way if chance.random() < 0.5]
    assert applied == sum(costs)


def test_l1_what_an_earlier_incarnation_said_or_was_told_is_not_applied():
    sender, receiver = Link(1, 1, 1), Link(2, 1, 1)
    (old,) = sender.send([(KEY, 7)], 0)
    receiver.restart(2, 0)
    assert receiver.accept(old) is None
    restarted = Link(2, 2, 1)
    assert restarted.accept(old) is None
    (again,) = sender.restart(2, 0)
    assert restarted.accept(again) == ((KEY, 7),)


def test_l1_an_acknowledgement_of_what_was_never_sent_is_an_error_of_the_peer():
    with pytest.raises(PeerError, match="acknowledged frame 1 of 0"):
        Link(1, 1, 1).take_ack(messages.Ack(2, 1, 1, 1, 0), 0)


def test_l1_many_unacknowledged_frames_are_bounded_and_lose_nothing():
    link = Link(1, 1, 1)
    frames = [frame for _ in range(1_000) for frame in link.send([(KEY, 1)], 0)]
    assert len(frames) == 64
    _, more = link.take_ack(messages.Ack(2, 1, 1, 64, 0), 0)
    assert [frame.entries for frame in more] == [((KEY, 1_000 - 64),)]


def test_l1_a_policy_that_is_not_here_is_an_error_of_the_peer_and_nothing_is_applied():
    node = Replicated(0, [1], [refill(1, 5)], 0)
    with pytest.raises(PeerError, match="policy 1, which is not here"):
        node.receive(messages.Increments(1, 1, 1, 1, ((KEY, TOKEN), ((SUBJECT, 1), TOKEN))), 0)
    assert node.levels.level(KEY, 0) == 0
    with pytest.raises(PeerError, match="policy -1"):
        node.receive(messages.Snapshot(1, 1, (((SUBJECT, -1), TOKEN),)), 0)


# L2

arrivals = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 2_000)), min_size=1, max_size=40)


@settings(max_examples=400)
@given(arrivals, st.integers(1, 50))
def test_l2_a_view_is_never_below_the_truth_and_at_most_r_d_above(takes, rate):
    # each take of a token arrives late, in any order; ns here, a token takes 1e15 / rate of them
    asked = Refill(rate_micro=rate * 10**10, burst_micro=MICRO)
    truth = one_bucket([(at_ns, TOKEN) for at_ns, _ in takes], asked)
    view = one_bucket([(at_ns + late_ns, TOKEN) for at_ns, late_ns in takes], asked)
    end_ns = max(at_ns + late_ns for at_ns, late_ns in takes)
    latest_ns = max(late_ns for _, late_ns in takes)
    excess = view.level(KEY, end_ns) - truth.level(KEY, end_ns)
    assert 0 <= excess <= asked.rate_micro * latest_ns


@given(st.integers(0, 1_000), st.integers(2, 8))
def test_l2_all_views_are_the_truth_once_everything_has_come(seed, count):
    asked, wire_ns = refill(20, 30), 20 * MS
    network = Network(lambda: wire_ns, seed=seed)
    cluster(network, count, asked)
    traffic = Traffic(network, seed).run(60, 20 * MS)
    for name in network.nodes:  # everything unsent is flushed
        network.nodes[name].tick(network.now_ns + 10 * SECOND)
        network.pump(name)
    network.run(network.now_ns + wire_ns)
    truth = one_bucket([(at_ns, cost * TOKEN) for at_ns, cost in traffic.let], asked).level(KEY, network.now_ns)
    latest_ns = network.now_ns - traffic.let[0][0]
    for node in network.nodes.values():
        assert truth <= node.levels.level(KEY, network.now_ns) <= truth + asked.rate_micro * latest_ns


@pytest.mark.parametrize("longest_ns", [0, 50 * MS])
@settings(max_examples=25)
@given(st.integers(0, 1_000), st.integers(2, 3))
def test_l2_corrections_come_to_the_same_at_all_nodes_and_no_view_is_below_the_truth(longest_ns, seed, count):
    chance = Random(seed)
    network = Network(lambda: chance.randint(0, longest_ns), seed=seed)
    cluster(network, count, refill(0, 60))  # what nothing drains from shows every token that is lost or made
    taken, given_back, grants = 0, 0, []
    for _ in range(30):
        network.run(network.now_ns + 10 * MS)
        name = chance.randrange(count)
        node, cost = network.nodes[name], chance.randint(1, 5)
        if take(network, name, cost).allowed:
            taken += cost * TOKEN
            grants.append((name, cost))
        if grants and chance.random() < 0.4:
            name, cost = grants.pop(chance.randrange(len(grants)))
            node, at_ns = network.nodes[name], network.clock_ns(name)
            before = node.levels.level(KEY, at_ns)
            node.debit(SUBJECT, [(chance.randint(0, 8) - cost) * TOKEN], at_ns)
            network.pump(name)
            more = node.levels.level(KEY, at_ns) - before
            taken, given_back = taken + more, given_back - min(0, more)
        network.run(network.now_ns)
    while not all(node.told for node in network.nodes.values()):
        network.run(network.now_ns + 10 * SECOND)
        for name in network.nodes:
            network.tick(name)
    for node in network.nodes.values():
        assert taken <= node.levels.level(KEY, network.now_ns) <= taken + given_back
    assert longest_ns or {node.levels.level(KEY, network.now_ns) for node in network.nodes.values()} == {taken}


# L3

configurations = st.fixed_dictionaries(
    {
        "count": st.integers(2, 12),
        "burst": st.integers(3, 60),
        "beta": st.fractions(Fraction(1, 10), Fraction(19, 20), max_denominator=20),
        "load": st.floats(0.3, 20),
        "seed": st.integers(0, 10_000),
    }
)


def run(setup, options: Options, heaviest: int = 1, wire_ns: int = 0) -> tuple[Traffic, Refill]:
    asked = refill(setup["burst"] / 10, setup["burst"])
    network = Network(lambda: wire_ns, seed=setup["seed"])
    cluster(network, setup["count"], asked, options)
    mean_cost = (1 + heaviest) / 2
    gap_ns = mean_cost * SECOND / (setup["burst"] / 10 * setup["load"])
    return Traffic(network, setup["seed"], heaviest).run(80, gap_ns), asked


@given(configurations)
def test_l3_without_wire_delay_never_above_rate_and_burst(setup):
    traffic, asked = run(setup, Options(beta=setup["beta"]))
    assert conforms_due([at_ns for at_ns, _ in traffic.let], asked.rate_micro, asked.burst_micro) is None


@given(configurations)
def test_l3_heavier_costs_are_above_by_at_most_beta_of_the_burst(setup):
    traffic, _ = run(setup, Options(beta=setup["beta"]), heaviest=5)
    asked = refill(setup["burst"] / 10, setup["burst"])
    assert traffic.above(asked) <= setup["beta"] * setup["burst"]


@given(configurations)
def test_l3_strict_weights_are_never_above(setup):
    options = Options(beta=setup["beta"], strict_weights=True)
    traffic, asked = run(setup, options, heaviest=5)
    assert traffic.above(asked) <= 0


def test_l3_one_node_decides_as_the_exact_bucket_does():
    asked = refill(3, 5)
    network = Network()
    cluster(network, 1, asked)
    let = [take(network, 0).allowed for _ in range(7)]
    assert let == [True] * 5 + [False] * 2
    refused = take(network, 0)
    assert refused == Verdict(allowed=False, wait_ns=333_333_334)
    network.run(refused.wait_ns - 1)
    assert not take(network, 0).allowed
    network.run(refused.wait_ns)
    assert take(network, 0).allowed


# L4


@given(configurations, st.integers(1, 500))
def test_l4_with_a_wire_delay_above_by_at_most_what_is_taken_within_it(setup, wire_ms):
    wire_ns = wire_ms * MS
    traffic, asked = run(setup, Options(beta=setup["beta"]), wire_ns=wire_ns)
    within = 0
    for at_ns, _ in traffic.let:
        within = max(within, sum(cost for when, cost in traffic.let if at_ns - 2 * wire_ns <= when <= at_ns))
    assert traffic.above(asked) <= within


# L5

levels_of = st.dictionaries(st.sampled_from([(bytes([n]) * 16, 0) for n in range(3)]), st.integers(1, 10**18))


@given(st.integers(0, 10**18), st.integers(0, 10**18), st.integers(0, 10**18), st.integers(0, 10**6))
def test_l5_levels_join_as_a_semilattice_that_commutes_with_draining(a, b, c, elapsed_ns):
    assert joined(a, b) == joined(b, a)
    assert joined(a, joined(b, c)) == joined(joined(a, b), c)
    assert joined(a, a) == a
    rate = 10**12
    assert decayed(joined(a, b), rate, elapsed_ns) == joined(decayed(a, rate, elapsed_ns), decayed(b, rate, elapsed_ns))


@given(levels_of, levels_of)
def test_l5_snapshots_join_in_any_order(mine, theirs):
    one, other = (Levels([refill(1, 5)], [0], 0) for _ in range(2))
    one.join(mine.items(), 0)
    one.join(theirs.items(), 0)
    other.join(theirs.items(), 0)
    other.join(mine.items(), 0)
    assert set(one.snapshot(0)) == set(other.snapshot(0))
    one.join(one.snapshot(0), 0)
    assert set(one.snapshot(0)) == set(other.snapshot(0))


def restarted(network: Network, name: int, asked: Refill, *, answered: bool) -> None:
    network.stop(name)
    if not answered:
        network.cut([name], [peer for peer in network.nodes if peer != name])
    peers = sorted(network.nodes)
    network.add(name, Replicated(name, peers, [asked], network.clock_ns(name), epoch=2, rejoins=True))
    network.run(network.now_ns)


@given(configurations, st.booleans())
def test_l5_a_node_that_starts_again_in_overload_is_never_above(setup, answered):
    asked = refill(setup["burst"] / 10, setup["burst"])
    network = Network(seed=setup["seed"])
    cluster(network, setup["count"], asked, Options(beta=Fraction(1, 10)))
    traffic = Traffic(network, setup["seed"])
    traffic.run(80, SECOND / setup["burst"])
    lost = Fraction(1, 10) * setup["burst"] / setup["count"]  # what it had not told anybody of
    restarted(network, 0, asked, answered=answered)
    assert network.nodes[0].settled == answered
    network.cut()
    traffic.run(80, SECOND / setup["burst"])
    assert traffic.above(asked) <= lost


def test_l5_without_a_snapshot_a_forgotten_bucket_starts_empty_and_fills_once_peers_had_the_time_to_link():
    network = Network()
    network.add(0, Replicated(0, [1], [refill(1, 4)], 0, epoch=2, rejoins=True))
    assert take(network, 0) == Verdict(allowed=False, wait_ns=LINKED_WITHIN_NS + SECOND)
    network.run(LINKED_WITHIN_NS + SECOND)
    assert take(network, 0).allowed
    assert not take(network, 0).allowed


def asked_for_a_snapshot(node: Replicated) -> list[int]:
    return [peer for peer, frame in node.outbox() if isinstance(frame, messages.SnapshotAsk)]


def test_l5_a_snapshot_is_asked_for_once_every_peer_is_linked_whose_takes_it_may_lack():
    node = Replicated(0, [1, 2], [refill(1, 30)], 0, epoch=2, rejoins=True)
    node.receive(messages.Hello(1, 1, 2), 0)
    node.tick(2 * SECOND)
    assert asked_for_a_snapshot(node) == []
    node.receive(messages.Hello(2, 1, 2), 2 * SECOND)
    assert len(asked_for_a_snapshot(node)) == 1


def test_l5_a_peer_that_stays_away_is_waited_for_as_long_as_linking_may_take():
    node = Replicated(0, [1, 2], [refill(1, 30)], 0, epoch=2, rejoins=True)
    node.receive(messages.Hello(1, 1, 2), 0)
    node.tick(LINKED_WITHIN_NS - 1)
    assert asked_for_a_snapshot(node) == []
    node.tick(LINKED_WITHIN_NS + SECOND)
    assert asked_for_a_snapshot(node) == [1], "only who is linked can answer"


def test_l5_who_starts_again_is_greeted_before_it_is_told_of_takes():
    """It takes nothing from an incarnation that it does not know, and would wait a second for the repetition."""
    node = Replicated(0, [1], [refill(1, 4)], 0)
    node.take(SUBJECT, 1, 0)
    node.outbox()
    node.receive(messages.Hello(1, 2, 0), 0)
    assert [type(frame) for _, frame in node.outbox()] == [messages.Hello, messages.Increments]


def test_l5_a_new_node_begins_with_what_the_others_know():
    network, asked = Network(), refill(1, 30)
    cluster(network, 2, asked)
    for _ in range(20):
        take(network, 0)
    network.run(0)
    for node in network.nodes.values():
        node.add_peer(2)
    network.add(2, Replicated(2, [0, 1], [asked], 0, rejoins=True))
    for name in (0, 1):
        network.pump(name)
    network.run(0)
    assert network.nodes[2].settled
    known = network.nodes[2].levels.level(KEY, 0)
    assert network.nodes[1].levels.level(KEY, 0) <= known <= 20 * TOKEN
    let = sum(take(network, 2).allowed for _ in range(30) if network.run(0) is None)
    assert 8 <= let <= 10, "what node 0 had not told yet may count twice, never not at all"


def test_l5_a_peer_without_levels_is_not_believed_and_the_next_is_asked():
    network, asked = Network(), refill(1, 30)
    network.add(0, Replicated(0, [1, 2], [asked], 0))
    take(network, 0)
    for name in (1, 2):
        peers = [peer for peer in range(3) if peer != name]
        network.add(name, Replicated(name, peers, [asked], 0, epoch=2, rejoins=True))
    network.run(0)
    for second in range(1, 4):
        network.run(second * SECOND)
        for name in range(3):
            network.tick(name)
        network.run(second * SECOND)
    assert all(node.settled for node in network.nodes.values())


def test_a_removed_peer_is_told_nothing():
    sent = []
    network = Network(sent=lambda origin, peer, frame: sent.append(peer))
    cluster(network, 3, refill(1, 3))
    network.nodes[0].remove_peer(2, 0)
    take(network, 0)
    assert network.nodes[0].nodes == 2
    assert set(sent) == {1}


# L6


@given(configurations, st.lists(st.integers(0, 10**18), min_size=12, max_size=12))
def test_l6_clocks_that_differ_change_no_decision(setup, clocks):
    asked = refill(setup["burst"] / 10, setup["burst"])
    seen = []
    for ahead in (None, clocks):
        network = Network(lambda: 5 * MS, seed=setup["seed"])
        cluster(network, setup["count"], asked, Options(beta=setup["beta"]), ahead)
        seen.append(Traffic(network, setup["seed"]).run(60, SECOND / setup["burst"]).let)
    assert seen[0] == seen[1]


def test_l6_no_message_holds_an_instant():
    for message in (messages.Increments, messages.Ack, messages.Hello, messages.SnapshotAsk, messages.Snapshot):
        assert not {field.name for field in fields(message) if field.name.endswith(("_ns", "_s", "_ms", "at"))}


# partitions


def cut_run(on_partition: OnPartition, wait_ns: int) -> tuple[Traffic, Refill, Network]:
    """Two halves apart from 0 on, told from each other after two flushes; then a full load in both."""
    asked = refill(10, 40)
    network = Network()
    cluster(network, 4, asked, Options(flush_ns=SECOND, on_partition=on_partition))
    network.every(SECOND // 2, 0, 60 * SECOND, lambda: [network.tick(name) for name in range(4)])
    network.cut([0, 1], [2, 3])
    network.run(wait_ns)
    return Traffic(network, 1).run(800, 20 * MS), asked, network


def test_a_part_that_shares_is_never_above_once_it_knows_of_the_cut():
    traffic, asked, network = cut_run(OnPartition.SHARE, 4 * SECOND)
    assert traffic.above(asked) <= 0
    assert len(traffic.let) >= 0.9 * 10 * network.now_ns / SECOND - 40
    network.cut()
    after = Traffic(network, 2)
    after.let = traffic.let
    after.run(400, 20 * MS)
    assert after.above(asked) <= 0, "a link that comes back must mint nothing"
    assert network.nodes[0].levels.bursts == [asked.units]


def test_a_node_that_starts_again_cut_off_has_its_own_part_only():
    asked = refill(8, 40)
    alone = Replicated(0, [1, 2, 3], [asked], 0, Options(on_partition=OnPartition.SHARE), epoch=2, rejoins=True)
    assert alone.levels.bursts == [asked.units // 4]
    assert alone.levels.rates == [asked.rate_micro // 4]
    alone.receive(messages.Hello(1, 1, 2), 0)
    assert alone.levels.bursts == [asked.units // 2]


def test_a_part_that_goes_on_lets_the_whole_contract_through():
    traffic, asked, _ = cut_run(OnPartition.GO_ON, 4 * SECOND)
    assert traffic.above(asked) > 0
    assert len(traffic.let) > 1.7 * 10 * 16


def test_a_long_cut_is_paid_back_by_at_most_a_burst_a_node():
    traffic, asked, network = cut_run(OnPartition.GO_ON, 4 * SECOND)
    network.cut()
    network.run(network.now_ns + 3 * SECOND)
    assert len(traffic.let) * TOKEN > 5 * asked.units
    assert network.nodes[0].levels.level(KEY, network.now_ns) <= 4 * asked.units


# what a node says


def test_far_from_the_limit_a_node_says_nothing_until_the_flush():
    sent = []
    network = Network(sent=lambda origin, peer, frame: sent.append(frame))
    cluster(network, 3, refill(1, 100))
    for _ in range(10):
        take(network, 0)
    assert sent == []
    network.run(10 * SECOND)
    network.tick(0)
    network.run(10 * SECOND)
    told = [frame for frame in sent if isinstance(frame, messages.Increments)]
    assert [frame.entries for frame in told] == [((KEY, 10 * TOKEN),)] * 2


def test_news_of_a_hot_subject_waits_for_the_next_frame():
    sent = []
    network = Network(sent=lambda origin, peer, frame: sent.append(frame))
    cluster(network, 2, refill(1, 4), Options(frame_ns=5 * MS))
    for _ in range(3):
        take(network, 0)
    assert sent == []
    assert network.nodes[0].due_ns == 5 * MS
    network.run(5 * MS)
    network.tick(0)
    assert [frame.entries for frame in sent] == [((KEY, 3 * TOKEN),)]


def test_several_policies_are_taken_together_or_not_at_all():
    node = Replicated(0, [], [refill(100, 10), refill(1, 2)], 0)
    assert [node.take(SUBJECT, 1, 0).allowed for _ in range(3)] == [True, True, False]
    assert node.levels.level((SUBJECT, 0), 0) == 2 * TOKEN
    assert node.take(SUBJECT, 1, 0).wait_ns == SECOND  # the longer of both


def test_a_correction_may_go_below_zero_and_gives_back():
    node = Replicated(0, [], [refill(1, 2)], 0)
    node.debit(SUBJECT, [5 * TOKEN], 0)
    assert node.take(SUBJECT, 1, 0) == Verdict(allowed=False, wait_ns=4 * SECOND)
    node.debit(SUBJECT, [-9 * TOKEN], 0)
    assert node.levels.level(KEY, 0) == 0


def test_idle_subjects_are_forgotten():
    node = Replicated(0, [], [refill(1, 2)], 0)
    node.take(SUBJECT, 1, 0)
    node.tick(10 * SECOND)
    assert node.levels.forget(SECOND // 2) == 0
    assert node.levels.forget(10 * SECOND) == 1
    assert len(node.levels) == 0


def test_a_cost_above_the_burst_never_passes():
    assert Replicated(0, [], [refill(1, 2)], 0).take(SUBJECT, 3, 0) == Verdict(allowed=False, wait_ns=None)


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_cost_below_one_token_is_refused_by_name(wrong):
    with pytest.raises(BadInput, match="cost"):
        Replicated(0, [], [refill(1, 2)], 0).take(SUBJECT, wrong, 0)


def test_a_beta_of_one_and_a_burst_below_a_token_are_refused_by_name():
    with pytest.raises(BadInput, match="beta"):
        Options(beta=Fraction(1))
    with pytest.raises(BadInput, match="burst"):
        refill(1, 0.5)
