"""The laws of the replicated mode for windows, alone and beside a bucket."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.limiting.network import Network
from limiting.replication.messages import Increments, Snapshot
from limiting.replication.refill import Refill
from limiting.replication.replicated import LINKED_WITHIN_NS, Options, Replicated
from limiting.replication.windows import WindowLook
from srtm.contracts.policy import Window
from srtm.errors import PeerError
from srtm.token_bucket.bucket import TOKEN, conforms_due
from tests.support.limit_traffic import asked_nodes, flush

MS = 1_000_000
SECOND = 1_000 * MS
SUBJECT = bytes(16)
BUCKET = Refill(rate_micro=4_000_000, burst_micro=20_000_000)


def window(**changes: Any) -> Window:
    numbers: dict[str, Any] = {"quota": 20, "window_ns": 4 * SECOND, "slices": 4, "weighted": True, "aligned": True}
    return Window(name="w", **{**numbers, **changes})


class Cluster:
    """Nodes in virtual time. ``let``: (instant, cost) of what passed."""

    def __init__(
        self,
        count: int,
        rule: Window,
        *,
        refills: tuple[Refill, ...] = (),
        options: Options = Options(),  # noqa: B008 - it is frozen
        wire_ns: int = 0,
        loss: float = 0.0,
        seed: int = 0,
        clocks: list[int] | None = None,
        skews: list[int] | None = None,
    ) -> None:
        self.rule, self.refills, self.options = rule, refills, options
        self.network = Network(lambda: wire_ns, loss=loss, seed=seed)
        self.chance = Random(seed)
        self.clocks, self.skews = clocks or [0] * count, skews or [0] * count
        self.let: list[tuple[int, int]] = []
        self.slices: dict[int, int] = {}
        for name in range(count):
            self.start(name, range(count))

    def start(self, name: int, names: Any, **how: Any) -> None:
        clock_ns = self.clocks[name]
        peers = [peer for peer in names if peer != name]
        node = Replicated(
            name,
            peers,
            self.refills,
            self.network.now_ns + clock_ns,
            self.options,
            windows={len(self.refills): self.rule},
            ahead_ns=self.skews[name] - clock_ns,
            **how,
        )
        self.network.add(name, node, clock_ns)

    def node(self, name: int) -> Replicated:
        node = self.network.nodes[name]
        assert isinstance(node, Replicated)
        return node

    def take(self, name: int, cost: int = 1) -> bool:
        said = self.node(name).take(SUBJECT, cost, self.network.clock_ns(name))
        self.network.pump(name)
        if said.allowed:
            self.let.append((self.network.now_ns, cost))
            number = (self.network.now_ns + self.skews[name]) * self.rule.slices // self.rule.window_ns
            self.slices[number] = self.slices.get(number, 0) + cost
        return said.allowed

    def run(self, requests: int, mean_gap_ns: float, heaviest: int = 1) -> Cluster:
        for name in asked_nodes(self.network, self.chance, requests, mean_gap_ns):
            self.take(name, self.chance.randint(1, heaviest))
        return self

    def above(self) -> float:
        """Tokens above the quota, at the worst instant, of one window that all takes go into."""
        slices: dict[int, int] = {}
        worst = 0
        for at_ns, cost in self.let:
            number = at_ns * self.rule.slices // self.rule.window_ns
            slices[number] = slices.get(number, 0) + cost
            worst = max(worst, -WindowLook(self.rule, slices, at_ns).left)
        return worst / TOKEN

    def left(self, name: int) -> int:
        at_ns = self.network.clock_ns(name)
        return self.node(name).look(SUBJECT, at_ns)[len(self.refills)].left

    def flushed(self, wire_ns: int = 0) -> None:
        flush(self.network, wire_ns)


rules = st.builds(
    lambda quota, slices, weighted: window(
        quota=quota, slices=slices, window_ns=slices * 12 * SECOND // slices, weighted=weighted
    ),
    st.integers(3, 40),
    st.sampled_from([1, 2, 3, 4, 6, 12]),
    st.booleans(),
)
counts = st.integers(2, 8)
seeds = st.integers(0, 10_000)
loads = st.floats(0.5, 10)


def gap_ns(rule: Window, load: float) -> float:
    return rule.window_ns / rule.quota / load


@given(seeds, counts)
def test_l1_lost_frames_are_repeated_and_count_once(seed, count):
    cluster = Cluster(count, window(quota=60, window_ns=10_000 * SECOND), loss=0.3, seed=seed)
    cluster.run(40, SECOND)
    cluster.flushed()
    assert {cluster.left(name) for name in range(count)} == {(60 - len(cluster.let)) * TOKEN}


@given(rules, counts, loads, seeds)
def test_l3_without_wire_delay_never_above_the_quota(rule, count, load, seed):
    assert Cluster(count, rule, seed=seed).run(80, gap_ns(rule, load)).above() <= 0


@given(rules, counts, loads, seeds)
def test_l3_beside_a_bucket_neither_is_above(rule, count, load, seed):
    cluster = Cluster(count, rule, refills=(BUCKET,), seed=seed).run(80, gap_ns(rule, load))
    assert cluster.above() <= 0
    assert conforms_due([at_ns for at_ns, _ in cluster.let], BUCKET.rate_micro, BUCKET.burst_micro) is None


@given(rules, counts, loads, seeds)
def test_l3_heavier_costs_are_above_by_at_most_beta_of_the_quota_and_strict_ones_never(rule, count, load, seed):
    assert Cluster(count, rule, seed=seed).run(80, gap_ns(rule, load), 5).above() <= rule.quota / 2
    strict = Options(strict_weights=True)
    assert Cluster(count, rule, options=strict, seed=seed).run(80, gap_ns(rule, load), 5).above() <= 0


@given(rules, counts, loads, seeds, st.integers(1, 500))
def test_l4_with_a_wire_delay_above_by_at_most_what_is_taken_within_it(rule, count, load, seed, wire_ms):
    cluster = Cluster(count, rule, wire_ns=wire_ms * MS, seed=seed).run(80, gap_ns(rule, load))
    within = 0
    for at_ns, _ in cluster.let:
        within = max(within, sum(cost for when, cost in cluster.let if at_ns - 2 * wire_ms * MS <= when <= at_ns))
    assert cluster.above() <= within


@given(rules, counts, seeds, st.booleans())
def test_l5_a_node_that_starts_again_in_overload_is_never_above(rule, count, seed, answered):
    cluster = Cluster(count, rule, seed=seed).run(80, gap_ns(rule, 5))
    for name in range(count):  # what it had not told anybody of would be lost
        cluster.node(name)._spread(list(cluster.node(name)._since), cluster.network.now_ns)
        cluster.network.pump(name)
    cluster.network.run(cluster.network.now_ns)
    network = cluster.network
    network.stop(0)
    if not answered:
        network.cut([0], range(1, count))
    cluster.start(0, range(count), epoch=2, rejoins=True)
    network.run(network.now_ns)
    assert cluster.node(0).settled == answered
    network.cut()
    assert cluster.run(80, gap_ns(rule, 5)).above() <= 0


def test_l5_without_a_snapshot_a_forgotten_window_is_used_up_until_it_is_over():
    cluster = Cluster(2, window(weighted=False))
    cluster.network.stop(1)
    cluster.network.run(100 * SECOND)
    cluster.start(0, range(2), epoch=2, rejoins=True)
    assert not cluster.take(0)
    assert cluster.node(0).look(SUBJECT, 100 * SECOND)[0].reset_ns() == LINKED_WITHIN_NS + 4 * SECOND
    cluster.network.run(107 * SECOND - 1)
    assert not cluster.take(0)
    cluster.network.run(107 * SECOND)
    assert cluster.take(0)
    cluster.network.tick(0)
    assert cluster.node(0).settled


def test_l5_a_snapshot_has_the_windows_slices():
    cluster = Cluster(2, window(window_ns=400 * SECOND))
    for name in (0, 1):
        cluster.take(name, 3)
    cluster.flushed()
    cluster.network.run(250 * SECOND)
    cluster.take(0, 2)
    cluster.network.stop(1)
    cluster.start(1, range(2), epoch=2, rejoins=True)
    cluster.network.run(250 * SECOND)
    assert cluster.node(1).settled
    cluster.flushed()
    assert cluster.left(0) == cluster.left(1) == 12 * TOKEN
    cluster.network.run(400 * SECOND)
    assert cluster.left(1) == 12 * TOKEN
    cluster.network.run(500 * SECOND)
    assert cluster.left(1) == 18 * TOKEN


@given(rules, st.lists(st.integers(0, 10**18), min_size=4, max_size=4), seeds)
def test_l6_the_clocks_that_waits_are_measured_by_may_differ_by_any_amount(rule, clocks, seed):
    seen = [Cluster(4, rule, seed=seed, clocks=ahead).run(60, gap_ns(rule, 3)).let for ahead in (None, clocks)]
    assert seen[0] == seen[1]


@given(rules, st.lists(st.integers(0, 5 * SECOND), min_size=4, max_size=4), seeds)
def test_l6_wall_clocks_that_differ_by_less_than_a_window_shift_takes_and_lose_none(rule, skews, seed):
    cluster = Cluster(4, rule, skews=skews, seed=seed).run(80, gap_ns(rule, 3))
    for number in cluster.slices:
        assert sum(cluster.slices.get(at, 0) for at in range(number - rule.slices + 1, number + 1)) <= rule.quota


def test_policies_of_both_kinds_are_taken_together_or_not_at_all():
    cluster = Cluster(1, window(quota=2), refills=(BUCKET,))
    assert [cluster.take(0) for _ in range(3)] == [True, True, False]
    looks = cluster.node(0).look(SUBJECT, 0)
    assert [look.left for look in looks] == [18 * TOKEN, 0]
    refused = cluster.node(0).take(SUBJECT, 1, 0)
    assert refused.wait_ns == 4_500 * MS, "the slice that leaves must have left by half"
    assert cluster.node(0).take(SUBJECT, 3, 0).wait_ns is None


def test_a_window_before_a_bucket_is_looked_at_in_the_contracts_order():
    node = Replicated(0, [], [BUCKET], 0, windows={0: window(quota=7)})
    assert [look.burst // TOKEN for look in node.look(SUBJECT, 0)] == [7, 20]
    node.debit(SUBJECT, [2 * TOKEN, 3 * TOKEN], 0)
    assert [look.left // TOKEN for look in node.look(SUBJECT, 0)] == [5, 17]
    node.debit(SUBJECT, [-9 * TOKEN, -9 * TOKEN], 0)
    assert [look.left // TOKEN for look in node.look(SUBJECT, 0)] == [7, 20]


def test_a_window_that_is_not_here_is_an_error_of_the_peer_and_nothing_is_counted():
    node = Replicated(0, [1], [BUCKET], 0, windows={1: window()})
    with pytest.raises(PeerError, match="policy 0, which is not here"):
        node.receive(Increments(1, 1, 1, 1, (((SUBJECT, 1, 0), 3), ((SUBJECT, 0, 0), 3))), 0)
    with pytest.raises(PeerError, match="policy 1, which is not here"):
        node.receive(Snapshot(1, 1, (((SUBJECT, 1), TOKEN),)), 0)
    assert node.look(SUBJECT, 0)[1].left == 20 * TOKEN


def test_far_from_the_quota_a_node_says_nothing_until_the_flush():
    sent: list[Any] = []
    cluster = Cluster(3, window(quota=100, window_ns=400 * SECOND))
    cluster.network._sent = lambda origin, peer, frame: sent.append(frame)
    for _ in range(10):
        cluster.take(0)
    assert sent == []
    cluster.network.run(10 * SECOND)
    cluster.network.tick(0)
    told = [frame.entries for frame in sent if isinstance(frame, Increments)]
    assert told == [(((SUBJECT, 0, 0), 10),)] * 2


def test_what_a_peer_that_is_away_need_not_hear_any_more_is_not_kept_for_it():
    cluster = Cluster(2, window())
    cluster.network.cut([0], [1])
    node = cluster.node(0)
    for second in range(0, 4_000, 20):
        cluster.network.run(second * SECOND)
        cluster.take(0, 20)
        cluster.network.tick(0)
        node.forget(cluster.network.now_ns)
    assert node.held <= 64 + 5, "frames that may be on their way, and the slices of one window"
    assert len(node.windows) == 1


def test_changed_windows_hold_at_once_and_what_was_unsent_is_told():
    cluster = Cluster(2, window(window_ns=400 * SECOND))
    cluster.take(0, 2)
    for name in (0, 1):
        cluster.node(name).change([], 0, {0: window(quota=5, window_ns=400 * SECOND)})
        cluster.network.pump(name)
    cluster.network.run(0)
    assert cluster.left(0) == cluster.left(1) == 3 * TOKEN


def test_beyond_the_bound_a_subject_is_told_of_by_its_own_name_and_counts_where_there_is_room():
    cluster = Cluster(2, window(window_ns=400 * SECOND))
    full, roomy = cluster.node(0), cluster.node(1)
    full.windows.most = 0
    one, neighbour = (bytes(2) + tail * 14 for tail in (b"\6", b"\7"))
    for subject in (one, neighbour):
        assert full.take(subject, 10, 0).allowed
        cluster.network.pump(0)
    cluster.network.run(0)
    assert not full.take(one, 1, 0).allowed, "both are in one place"
    assert [roomy.look(subject, 0)[0].left for subject in (one, neighbour)] == [10 * TOKEN, 10 * TOKEN]
    full.debit(neighbour, [-4 * TOKEN], 0)
    cluster.network.pump(0)
    cluster.network.run(0)
    assert full.look(one, 0)[0].left == 4 * TOKEN
    assert [roomy.look(subject, 0)[0].left for subject in (one, neighbour)] == [10 * TOKEN, 14 * TOKEN]
