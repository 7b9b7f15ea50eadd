"""Of a subject whose takes all peers know, a slot in a native table is all that a node keeps."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from bench.limiting.network import Network
from limiting.replication.exact import Exact
from limiting.replication.refill import Refill
from limiting.replication.replicated import Replicated
from srtm.contracts.policy import Concurrency, Window
from srtm.units import MICRO

SECOND = 1_000_000_000
REFILL = Refill(rate_micro=1, burst_micro=100 * MICRO)
WINDOW = Window(name="w", quota=100, window_ns=86_400 * SECOND, slices=6, weighted=True, aligned=True)

Node = Replicated | Exact


def bucket(name: int) -> Replicated:
    return Replicated(name, [1 - name], [REFILL], 0)


def window(name: int) -> Replicated:
    return Replicated(name, [1 - name], [], 0, windows={0: WINDOW})


def exact(name: int) -> Exact:
    return Exact(name, [1 - name], [REFILL], 0)


def table_bytes(node: Node) -> int:
    return node.levels.bytes + (node.windows.bytes if isinstance(node, Replicated) else 0)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "most"), [(bucket, 100), (exact, 100), (window, 100 + 28)])
def test_of_a_settled_subject_a_slot_is_kept_and_nothing_else(make: Callable[[int], Node], most: int) -> None:
    network, chance, nodes = Network(), Random(1), [make(0), make(1)]
    empty = [table_bytes(node) for node in nodes]
    for name in range(2):
        network.add(name, nodes[name])

    def take_of_500(before: int) -> None:
        for number in range(before + 1, before + 501):
            taken = nodes[0].take(chance.randbytes(16), 1, network.now_ns)
            assert taken.allowed  # type: ignore[union-attr]  # far from the limit: no owner is asked
            assert number < 20_000 or number % 10 or all(table_bytes(node) <= most * number for node in nodes)
            network.pump(0)
        network.run(network.now_ns + 11 * SECOND)
        for name in range(2):
            network.tick(name)
        network.run(network.now_ns + SECOND)

    take_of_500(0)
    tracemalloc.start()
    try:
        for before in range(500, 25_000, 500):
            take_of_500(before)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [node.counts for node in nodes] == [25_000, 25_000]
    assert [node.held for node in nodes] == [0, 0]
    assert min(table_bytes(node) for node in nodes) > 48 * 25_000 > max(empty)
    assert kept < 6 * 25_000, "room for what the latest 500 had unsent, at two nodes"


def test_of_a_subject_without_open_requests_nothing_is_kept_once_it_is_forgotten() -> None:
    rule = Concurrency(name="open", quota=5, expires_ns=SECOND)
    network, nodes = Network(), [Replicated(name, [1 - name], [], 0, opens={0: rule}) for name in range(2)]
    for name in range(2):
        network.add(name, nodes[name])
    for name in range(100):
        nodes[0].take(name.to_bytes(16, "big"), 5, 0, name)
        nodes[0].release(name.to_bytes(16, "big"), name, 0)
        network.pump(0)
    network.run(SECOND)
    for node in nodes:
        node.tick(20 * SECOND)
        node.forget(20 * SECOND)
    assert [node.counts for node in nodes] == [0, 0]
