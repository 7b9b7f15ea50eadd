"""Subjects beyond the bound of a node: counted in shared places, whoever tells of them, and never free of charge."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.limiting.network import Network
from limiting.replication.auto import Auto
from limiting.replication.exact import Exact
from limiting.replication.levels import SHARED_PLACES, Levels, place_of
from limiting.replication.messages import Increments
from limiting.replication.refill import ALLOWED, Refill
from limiting.replication.replicated import Replicated
from srtm.token_bucket.bucket import TOKEN
from tests.limiting.replication import test_exact

MICRO = 1_000_000
MS = 1_000_000
SECOND = 1_000 * MS
REFILL = Refill(rate_micro=2 * MICRO, burst_micro=6 * MICRO)
SUBJECTS = [bytes([0, number % 3]) + bytes([number + 1]) * 14 for number in range(12)]  # of three places


def levels(most: int) -> Levels:
    made = Levels([REFILL], [0], 0)
    made.most = most
    return made


class Crowd:
    """Requests of twelve subjects at three nodes that have room for a few. ``let``: what passed when, by subject."""

    def __init__(self, seed: int, refill: Refill) -> None:
        self.chance, self.refill = Random(seed), refill
        self.network = Network(lambda: self.chance.choice([0, 20 * MS, 300 * MS]), loss=0.05, seed=seed)
        self.let: dict[bytes, list[int]] = {}
        for name in range(3):
            self.start(name, epoch=1)

    def start(self, name: int, epoch: int) -> None:
        peers = [peer for peer in range(3) if peer != name]
        node = Replicated(name, peers, [self.refill], self.network.now_ns, epoch=epoch, rejoins=epoch > 1)
        node.levels.most = self.chance.choice([1, 2, 5, 100])
        self.network.add(name, node)

    def nodes(self) -> Iterator[Replicated]:
        for node in self.network.nodes.values():
            assert isinstance(node, Replicated)
            yield node

    def ask(self, requests: int) -> None:
        for _ in range(requests):
            self.network.run(self.network.now_ns + round(self.chance.expovariate(1 / (40 * MS))))
            node = self.chance.choice(list(self.nodes()))
            subject = self.chance.choice(SUBJECTS)
            if node.take(subject, 1, self.network.now_ns).allowed:
                self.let.setdefault(subject, []).append(self.network.now_ns)
            if self.chance.random() < 0.2:
                node.levels.forget(self.network.now_ns)
            node.tick(self.network.now_ns)
            self.network.pump(node.name)

    def flush(self) -> None:
        """Until everything is told, and has come."""
        for _ in range(400):
            self.network.run(self.network.now_ns + SECOND)
            for name in list(self.network.nodes):
                self.network.tick(name)
            if all(node.told and node.settled for node in self.nodes()):
                return
        raise AssertionError("not everything is told after 400 s")

    def truth(self, subject: bytes) -> int:
        one = Levels([self.refill], [0], 0)
        for at_ns in self.let.get(subject, []):
            one.add((subject, 0), TOKEN, at_ns)
        return one.level((subject, 0), self.network.now_ns)


def below_the_truth(crowd: Crowd) -> list[tuple[int, bytes]]:
    """Nodes and subjects whose views are below, once all is told. Until then nothing drains any more at the nodes."""
    truth = {subject: crowd.truth(subject) for subject in SUBJECTS}
    for node in crowd.nodes():
        node.change([Refill(rate_micro=0, burst_micro=crowd.refill.burst_micro)], crowd.network.now_ns)
    crowd.flush()
    assert all(len(node.levels) <= node.levels.most + 3 for node in crowd.nodes())
    views = [
        (node.name, each, node.levels.level((each, 0), crowd.network.now_ns))
        for node in crowd.nodes()
        for each in SUBJECTS
    ]
    return [(name, subject) for name, subject, level in views if level < truth[subject]]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 100_000))
def test_no_view_is_below_the_truth_however_few_places_a_node_has(seed: int) -> None:
    crowd = Crowd(seed, REFILL)
    crowd.ask(150)
    assert below_the_truth(crowd) == []


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.integers(0, 100_000))
def test_a_node_that_starts_again_knows_at_least_the_truth(seed: int) -> None:
    crowd = Crowd(seed, Refill(rate_micro=MICRO // 1_000, burst_micro=30 * MICRO))
    crowd.ask(100)
    crowd.flush()
    crowd.network.stop(0)
    crowd.start(0, epoch=2)
    crowd.ask(100)
    assert below_the_truth(crowd) == []


def test_a_subject_beyond_the_bound_is_refused_for_what_others_of_its_place_took() -> None:
    node = Replicated(0, [1], [REFILL], 0)
    node.levels.most = 1
    first, second, third = SUBJECTS[0], SUBJECTS[3], SUBJECTS[6]
    assert [node.take(first, 6, 0).allowed, node.take(second, 6, 0).allowed] == [True, True]
    assert not node.take(third, 1, 0).allowed
    assert node.levels.level((first, 0), 0) == node.levels.level((third, 0), 0) == 6 * TOKEN


def test_takes_in_a_shared_place_are_told_at_once_and_by_name() -> None:
    node = Replicated(0, [1, 2], [REFILL], 0)
    node.levels.most = 1
    node.take(SUBJECTS[0], 1, 0)
    node.outbox()
    node.take(SUBJECTS[3], 1, 0)
    told = [(peer, frame.entries) for peer, frame in node.outbox() if isinstance(frame, Increments)]
    assert told == [(peer, (((SUBJECTS[3], 0), TOKEN),)) for peer in (1, 2)]


def test_where_there_is_room_again_a_subject_begins_with_the_level_of_its_place() -> None:
    full = levels(1)
    full.add((SUBJECTS[0], 0), TOKEN, 0)
    full.add((SUBJECTS[3], 0), 6 * TOKEN, 0)
    at_ns = SECOND
    assert full.forget(at_ns) == 1
    full.most = 2
    assert not full.is_shared((SUBJECTS[3], 0))
    assert full.ask((SUBJECTS[3], 0), at_ns) == 4 * TOKEN
    assert full.level((SUBJECTS[1], 0), at_ns) == 0, "of another place"


def test_a_flood_that_a_peer_tells_of_makes_a_bounded_number_of_slots() -> None:
    node = Replicated(0, [1], [REFILL], 0)
    node.levels.most = 100
    chance = Random(1)
    for seq in range(1, 101):
        entries = tuple(((chance.randbytes(16), 0), TOKEN) for _ in range(100))
        node.receive(Increments(1, 1, 1, seq, entries), 0)
        node.outbox()
    assert len(node.levels) <= 100 + SHARED_PLACES
    joined = Replicated(0, [1], [REFILL], 0, rejoins=True)
    joined.levels.most = 100
    joined.levels.begin([((chance.randbytes(16), 0), TOKEN) for _ in range(10_000)], {}, 0)
    assert len(joined.levels) <= 100 + SHARED_PLACES


def test_what_was_heard_before_the_snapshot_counts_though_it_was_heard_of_a_place() -> None:
    node = levels(1)
    snapshot = [((SUBJECTS[0], 0), TOKEN), ((SUBJECTS[1], 0), TOKEN)]
    place = place_of((SUBJECTS[0], 0))
    node.begin(snapshot, {place: 2 * TOKEN}, 0)
    assert node.level((SUBJECTS[0], 0), 0) == 3 * TOKEN
    assert node.level((SUBJECTS[1], 0), 0) == TOKEN


def test_what_is_unsent_outlives_a_snapshot_that_leaves_no_room() -> None:
    node = levels(2)
    for subject in SUBJECTS[:2]:
        node.ask((subject, 0), 0)
        node.unsent[subject, 0] = 5
    node.begin([((subject, 0), TOKEN) for subject in SUBJECTS[2:]], {}, 0)
    assert all(node.has((subject, 0)) for subject in SUBJECTS[:2])
    assert node.unsent == {(subject, 0): 5 for subject in SUBJECTS[:2]}


def test_a_place_is_its_own_place() -> None:
    for number in range(5_000):
        place = place_of((Random(number).randbytes(16), 1))
        assert place == place_of(place)
        assert (len(place[0]), place[1]) == (16, 1)


def test_a_hot_subject_of_a_shared_place_gives_nothing_back_that_others_took() -> None:
    node = Auto(0, [1], [REFILL], 0, 55 * MS)
    node.replicated.levels.most = 1
    first, hot, other = SUBJECTS[0], SUBJECTS[3], SUBJECTS[6]
    node.take(first, 1, 0)
    node._set_share(hot, ((MICRO, 3 * MICRO),), 0)
    assert node.replicated.take(other, 6, 0).allowed
    node._set_share(hot, (), 0)
    assert node.look(other, 0)[0].left == 0


class Crowded(test_exact.World):
    """Nodes with room for one or two subjects, that forget whom they can."""

    def start(self, name: int, peers: list[int], *, rejoins: bool) -> None:
        super().start(name, peers, rejoins=rejoins)
        self.network.nodes[name].levels.most = self.chance.choice([0, 1, 2])

    def forget(self) -> None:
        for name, node in self.network.nodes.items():
            node.levels.forget(self.network.clock_ns(name))


@pytest.mark.slow
def test_exact_is_never_above_though_subjects_share_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_exact, "SUBJECTS", [SUBJECTS[0], SUBJECTS[3]])
    above = []
    for seed in range(100):
        world = Crowded(seed)
        world.network.every(200 * MS, 100 * MS, 1_000 * SECOND, world.forget)
        if world.run(80).above() > 0:
            above.append(seed)
    assert above == []


def test_an_exact_subject_leaves_its_place_once_all_that_was_taken_there_is_confirmed() -> None:
    network = Network(lambda: MS)
    for name in range(2):
        network.add(name, Exact(name, [1 - name], [Refill(rate_micro=MICRO, burst_micro=40 * MICRO)], 0))
    node, key = network.nodes[0], (SUBJECTS[3], 0)
    assert isinstance(node, Exact)
    node.levels.most = 1
    assert [node.take(subject, 1, 0) for subject in (SUBJECTS[0], SUBJECTS[3])] == [ALLOWED] * 2
    node.levels.most = 100
    assert node.levels.is_shared(key)
    assert node.levels.unacked[place_of(key)] == TOKEN
    network.pump(0)
    network.run(SECOND)
    assert node.levels.unacked == {}
    assert not node.levels.is_shared(key)
