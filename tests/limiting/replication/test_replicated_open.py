"""The laws of the replicated mode for open requests, alone and beside a bucket and a window."""

from __future__ import annotations

from itertools import count as numbers
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.limiting.network import Network
from limiting.replication.link import Link
from limiting.replication.messages import Close, Increments, Snapshot
from limiting.replication.open_counts import OpenCount
from limiting.replication.refill import Refill
from limiting.replication.replicated import LINKED_WITHIN_NS, Options, Replicated
from srtm.contracts.policy import Concurrency, Window
from srtm.errors import PeerError
from srtm.token_bucket.bucket import TOKEN
from tests.support.limit_traffic import asked_nodes, flush

MS = 1_000_000
SECOND = 1_000 * MS
SUBJECT = b"s" * 16


def rule(quota: int = 8, expires_s: int = 1_000) -> Concurrency:
    return Concurrency(name="open", quota=quota, expires_ns=expires_s * SECOND)


class Cluster:
    """Nodes in virtual time. ``open``: what was let in and has not ended, {name: (node, cost, since)}; ``above``: how
    much more than the quota was open, at worst; ``let``: (instant, cost) of what passed."""

    def __init__(
        self,
        count: int,
        asked: Concurrency,
        *,
        refills: tuple[Refill, ...] = (),
        windows: dict[int, Window] | None = None,
        options: Options = Options(),  # noqa: B008 - it is frozen
        wire_ns: int = 0,
        loss: float = 0.0,
        seed: int = 0,
        clocks: list[int] | None = None,
    ) -> None:
        self.asked, self.refills, self.windows, self.options = asked, refills, windows or {}, options
        self.number = len(refills) + len(self.windows)
        self.network = Network(lambda: wire_ns, loss=loss, seed=seed)
        self.chance = Random(seed)
        self.clocks = clocks or [0] * count
        self.open: dict[int, tuple[int, int, int]] = {}
        self.above = 0
        self.let: list[tuple[int, int]] = []
        self.names = numbers(1)
        for name in range(count):
            self.start(name, range(count))

    def start(self, name: int, names: Any, **how: Any) -> None:
        peers = [peer for peer in names if peer != name]
        node = Replicated(
            name,
            peers,
            self.refills,
            self.network.now_ns + self.clocks[name],
            self.options,
            windows=self.windows,
            opens={self.number: self.asked},
            **how,
        )
        self.network.add(name, node, self.clocks[name])

    def node(self, name: int) -> Replicated:
        node = self.network.nodes[name]
        assert isinstance(node, Replicated)
        return node

    def take(self, name: int, cost: int = 1) -> int | None:
        """The request, if it passes."""
        request = next(self.names)
        said = self.node(name).take(SUBJECT, cost, self.network.clock_ns(name), request)
        self._say(name)
        if not said.allowed:
            return None
        now_ns = self.network.now_ns
        self.open[request] = name, cost, now_ns
        self.let.append((now_ns, cost))
        self.open = {each: had for each, had in self.open.items() if now_ns - had[2] < self.asked.expires_ns}
        self.above = max(self.above, sum(had[1] for had in self.open.values()) - self.asked.quota)
        return request

    def release(self, request: int) -> bool:
        name = self.open.pop(request)[0]
        ended = self.node(name).release(SUBJECT, request, self.network.clock_ns(name))
        self._say(name)
        return ended

    def _say(self, name: int) -> None:
        self.network.pump(name)
        self.network.run(self.network.now_ns)

    def run(self, requests: int, mean_gap_ns: float = SECOND, *, heaviest: int = 1, ends: float = 0.45) -> Cluster:
        for name in asked_nodes(self.network, self.chance, requests, mean_gap_ns):
            if self.chance.random() < ends:
                mine = [each for each, had in self.open.items() if had[0] in self.network.nodes]
                if mine:
                    self.release(self.chance.choice(mine))
            else:
                self.take(name, self.chance.randint(1, heaviest))
        return self

    def left(self, name: int) -> int:
        return self.node(name).look(SUBJECT, self.network.clock_ns(name))[self.number].left // TOKEN

    def flushed(self, wire_ns: int = 0) -> None:
        flush(self.network, wire_ns)


quotas = st.integers(1, 30)
counts = st.integers(2, 8)
seeds = st.integers(0, 10_000)
times = st.sampled_from([5, 30, 1_000])


@given(quotas, counts, seeds)
def test_l1_and_l2_once_all_news_has_come_every_node_sees_what_is_open(quota, count, seed):
    cluster = Cluster(count, rule(quota, 100_000), loss=0.3, seed=seed, wire_ns=50 * MS)
    cluster.run(40)
    cluster.flushed()
    is_open = sum(cost for _, cost, _ in cluster.open.values())
    assert {cluster.left(name) for name in range(count)} == {quota - is_open}


@given(quotas, times, counts, seeds)
def test_l3_without_wire_delay_never_more_is_open_than_the_quota(quota, expires_s, count, seed):
    assert Cluster(count, rule(quota, expires_s), seed=seed).run(120).above <= 0


def test_l3_a_node_tells_what_it_has_not_told_when_others_come_near_the_quota():
    cluster = Cluster(2, rule(12))
    assert cluster.take(0) is not None
    assert cluster.left(1) == 12, "it is no news yet"
    assert [cluster.take(1) is not None for _ in range(12)] == [True] * 11 + [False]
    assert cluster.above == 0


@given(quotas, times, counts, seeds)
def test_l3_heavier_costs_are_above_by_at_most_beta_of_the_quota_and_strict_ones_never(quota, expires_s, count, seed):
    cluster = Cluster(count, rule(quota, expires_s), seed=seed).run(100, heaviest=4)
    assert cluster.above <= quota / 2
    strict = Options(strict_weights=True)
    assert Cluster(count, rule(quota, expires_s), options=strict, seed=seed).run(100, heaviest=4).above <= 0


@given(quotas, times, counts, seeds, st.integers(1, 3_000))
def test_l4_with_a_wire_delay_above_by_at_most_what_is_taken_within_it(quota, expires_s, count, seed, wire_ms):
    cluster = Cluster(count, rule(quota, expires_s), wire_ns=wire_ms * MS, seed=seed).run(100)
    within = 0
    for at_ns, _ in cluster.let:
        within = max(within, sum(cost for when, cost in cluster.let if at_ns - 2 * wire_ms * MS <= when <= at_ns))
    assert cluster.above <= within


@given(quotas, times, counts, seeds, st.booleans())
def test_l5_a_node_that_starts_again_in_overload_is_never_above(quota, expires_s, count, seed, answered):
    cluster = Cluster(count, rule(quota, expires_s), seed=seed).run(80, ends=0.2)
    for name in range(count):  # what it had not told anybody of would be lost
        cluster.node(name)._spread(list(cluster.node(name)._since), cluster.network.now_ns)
        cluster.network.pump(name)
    network = cluster.network
    network.run(network.now_ns)
    network.stop(0)
    if not answered:
        network.cut([0], range(1, count))
    cluster.start(0, range(count), epoch=2, rejoins=True)
    network.run(network.now_ns)
    assert cluster.node(0).settled == answered
    network.cut()
    cluster.open = {each: (-1 if had[0] == 0 else had[0], *had[1:]) for each, had in cluster.open.items()}
    assert cluster.run(100, ends=0.2).above <= 0


def test_l5_without_a_snapshot_nothing_passes_until_all_that_was_forgotten_is_over():
    cluster = Cluster(2, rule(expires_s=30))
    cluster.network.stop(1)
    cluster.network.run(100 * SECOND)
    cluster.start(0, range(2), epoch=2, rejoins=True)
    until_ns = 100 * SECOND + LINKED_WITHIN_NS + 30 * SECOND
    cluster.network.run(until_ns - 1)
    cluster.network.tick(0)
    assert not cluster.node(0).settled, "it would tell others that nothing is open"
    assert cluster.take(0) is None
    cluster.network.run(until_ns)
    assert cluster.take(0) is not None
    cluster.network.run(until_ns + SECOND)
    cluster.network.tick(0)
    assert cluster.node(0).settled


def test_l5_what_a_dead_node_let_in_counts_for_the_time_of_a_request_and_no_longer():
    cluster = Cluster(3, rule(4, expires_s=30))
    cluster.network.run(SECOND)
    assert [cluster.take(0) is not None for _ in range(6)] == [True] * 4 + [False] * 2
    cluster.network.run(10 * SECOND)
    cluster.network.stop(0)
    cluster.network.run(31 * SECOND - 1)
    assert cluster.take(1) is None
    cluster.network.run(31 * SECOND)
    assert [cluster.take(name) is not None for name in (1, 2, 1, 2, 1)] == [True] * 4 + [False]


def test_l5_what_a_node_let_in_before_it_started_again_counts_at_that_node_too():
    cluster = Cluster(3, rule(4, expires_s=30))
    requests = [cluster.take(0) for _ in range(4)]
    cluster.network.run(SECOND)
    cluster.network.stop(0)
    cluster.start(0, range(3), epoch=2, rejoins=True)
    cluster.network.run(2 * SECOND)
    assert cluster.node(0).settled
    assert cluster.left(0) == 0
    assert not cluster.node(0).release(SUBJECT, requests[0] or 0, 2 * SECOND), "it knows nothing of it"
    cluster.network.run(40 * SECOND)
    assert [cluster.left(name) for name in range(3)] == [4] * 3


@given(quotas, st.lists(st.integers(0, 10**18), min_size=4, max_size=4), seeds)
def test_l6_clocks_may_differ_by_any_amount(quota, clocks, seed):
    seen = [Cluster(4, rule(quota, 30), seed=seed, clocks=ahead).run(80).let for ahead in (None, clocks)]
    assert seen[0] == seen[1]


def test_policies_of_three_kinds_are_taken_together_or_not_at_all_and_a_release_frees_one():
    window = Window(name="w", quota=5, window_ns=60 * SECOND, slices=6, weighted=False, aligned=True)
    cluster = Cluster(
        2, rule(2), refills=(Refill(rate_micro=1_000, burst_micro=4_000_000),), windows={1: window}, wire_ns=MS
    )

    def lefts(name: int) -> list[int]:
        looks = cluster.node(name).look(SUBJECT, cluster.network.now_ns)
        return [look.left // TOKEN for look in looks]

    requests = [cluster.take(0) for _ in range(3)]
    assert [request is not None for request in requests] == [True, True, False]
    assert lefts(0) == [2, 3, 0]
    cluster.network.run(SECOND)
    assert cluster.take(1) is None
    assert lefts(1) == [2, 3, 0]
    cluster.release(requests[0] or 0)
    cluster.network.run(2 * SECOND)
    assert lefts(1) == [2, 3, 1]
    assert cluster.take(1) is not None
    assert lefts(1) == [1, 2, 0]


def test_near_the_quota_every_change_is_told_at_once_and_far_from_it_after_the_flush():
    sent: list[Any] = []
    cluster = Cluster(3, rule(100))
    cluster.network._sent = lambda origin, peer, frame: sent.append(frame)
    requests = [cluster.take(0) for _ in range(10)]
    assert sent == []
    cluster.network.run(10 * SECOND)
    cluster.network.tick(0)
    told = [frame.opened for frame in sent if isinstance(frame, Increments)]
    assert told == [(((SUBJECT, 0), OpenCount(1, 10)),)] * 2
    while cluster.take(0):
        pass
    cluster.network.run(10 * SECOND)
    assert cluster.left(1) == 0
    cluster.release(requests[0] or 0)
    cluster.network.run(10 * SECOND)
    assert [cluster.left(name) for name in range(3)] == [1] * 3


def test_what_expires_at_one_node_is_told_to_the_others():
    cluster = Cluster(2, rule(4, expires_s=30))
    for second in (0, 20):
        cluster.network.run(second * SECOND)
        for _ in range(2):
            cluster.take(0)
    cluster.network.run(31 * SECOND)
    assert cluster.left(1) == 0, "it has heard of all four lately"
    cluster.network.tick(0)
    cluster.network.run(31 * SECOND)
    assert cluster.left(1) == 2


def test_a_request_that_was_opened_and_released_unsaid_is_never_told():
    sent: list[Any] = []
    cluster = Cluster(3, rule(100))
    cluster.network._sent = lambda origin, peer, frame: sent.append(frame)
    cluster.release(cluster.take(0) or 0)
    cluster.network.run(20 * SECOND)
    cluster.network.tick(0)
    assert sent == []
    cluster.node(0).forget(20 * SECOND)
    assert cluster.node(0).counts == 0


def test_a_peer_that_was_away_hears_what_is_open_now_and_not_what_was():
    cluster = Cluster(2, rule(8, expires_s=60))
    cluster.network.cut([0], [1])
    for second in range(0, 4_000, 20):
        cluster.network.run(second * SECOND)
        cluster.take(0)
        cluster.network.tick(0)
        cluster.node(0).forget(cluster.network.now_ns)
    assert cluster.node(0).held <= 64 + 1, "frames that may be on their way, and one number"
    cluster.network.cut()
    for _ in range(3):
        cluster.network.run(cluster.network.now_ns + SECOND)
        cluster.network.tick(0)
    cluster.network.run(cluster.network.now_ns)
    assert cluster.left(1) == cluster.left(0) == 5


def test_of_subjects_that_have_ended_meanwhile_a_peer_that_was_away_hears_nothing():
    cluster = Cluster(2, rule(1, expires_s=60))
    cluster.network.cut([0], [1])
    node = cluster.node(0)
    for second in range(2_000):
        subject = second.to_bytes(2, "big") + b"s" * 14
        assert node.take(subject, 1, second * SECOND, second).allowed
        assert node.release(subject, second, second * SECOND)
        cluster.network.run(second * SECOND)
        cluster.network.tick(0)
        node.forget(cluster.network.now_ns)
    assert node.held <= 64 + 1, "frames that may be on their way, and the latest"
    assert node.counts == 0


def test_l1_a_frame_that_comes_again_after_its_subject_was_forgotten_is_not_heard():
    node = Replicated(0, [1], [], 0, opens={0: rule()})
    frames = [Increments(1, 1, 1, seq, (), (((SUBJECT, 0), OpenCount(seq, 4 - 2 * seq)),)) for seq in (1, 2)]
    for frame in (*frames, *frames):
        node.receive(frame, 0)
        node.forget(0)
    assert node.look(SUBJECT, 0)[0].left == 8 * TOKEN
    assert node.counts == 0


def test_l1_to_a_peer_that_starts_again_the_last_version_is_said():
    link, key = Link(0, 1, 1), (SUBJECT, 0)
    for version in range(1, 66):
        link.send((), 0, opened=[(key, OpenCount(version, 65 - version))])
    (again,) = link.restart(2, 0)
    assert again.opened == ((key, OpenCount(65, 0)),)


def test_a_reset_ends_what_is_open_at_all_nodes():
    cluster = Cluster(3, rule(6))
    for name in range(3):
        cluster.take(name)
        cluster.take(name)
    cluster.network.run(SECOND)
    assert cluster.left(1) == 0
    cluster.node(1).reset(SUBJECT, SECOND)
    cluster.network.pump(1)
    cluster.network.run(SECOND)
    assert [cluster.left(name) for name in range(3)] == [6] * 3


def test_a_policy_that_is_not_here_is_an_error_of_the_peer_and_nothing_is_counted():
    node = Replicated(0, [1], [Refill(rate_micro=1, burst_micro=1_000_000)], 0, opens={1: rule()})
    opened = ((SUBJECT, 1), OpenCount(1, 3)), ((SUBJECT, 0), OpenCount(1, 3))
    with pytest.raises(PeerError, match="policy 0, which is not here"):
        node.receive(Increments(1, 1, 1, 1, (), opened), 0)
    with pytest.raises(PeerError, match="policy 2, which is not here"):
        node.receive(Snapshot(1, 1, (), (((SUBJECT, 2), (5, 1), OpenCount(1, 1)),)), 0)
    assert node.look(SUBJECT, 0)[1].left == 8 * TOKEN
    node.receive(Close(1, SUBJECT), 0)
    assert node.outbox() == []


@given(quotas, counts, st.lists(st.integers(0, 6), min_size=8, max_size=8), seeds)
def test_l3_beyond_the_bound_on_subjects_no_subject_has_more_open_than_the_quota(quota, count, most, seed):
    cluster = Cluster(count, rule(quota, 30), seed=seed)
    for name in range(count):
        cluster.node(name).opens.most = most[name]
    subjects = [bytes(2) + bytes([number]) * 14 for number in range(1, 6)]  # all in one place
    is_open: dict[int, tuple[int, bytes, int]] = {}
    for name in asked_nodes(cluster.network, cluster.chance, 100, SECOND):
        now_ns = cluster.network.now_ns
        is_open = {each: had for each, had in is_open.items() if now_ns - had[2] < 30 * SECOND}
        if is_open and cluster.chance.random() < 0.35:
            request = cluster.chance.choice(list(is_open))
            at, subject, _ = is_open.pop(request)
            assert cluster.node(at).release(subject, request, now_ns)
            cluster._say(at)
        subject, request = cluster.chance.choice(subjects), next(cluster.names)
        if cluster.node(name).take(subject, 1, now_ns, request).allowed:
            is_open[request] = name, subject, now_ns
            assert sum(had[1] == subject for had in is_open.values()) <= quota
        cluster._say(name)
        if cluster.chance.random() < 0.2:
            cluster.node(name).forget(now_ns)
