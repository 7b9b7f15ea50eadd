"""Requests at random nodes of one limit, at random instants of a network in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from bench.limiting.network import Network
from limiting.replication.node import SECOND_NS
from limiting.replication.replicated import Replicated


def asked_nodes(network: Network, chance: Random, requests: int, mean_gap_ns: float) -> Iterator[int]:
    """The node that is asked next. What goes without delay is there before it is asked, and after."""
    at_ns = network.now_ns
    for _ in range(requests):
        at_ns += round(chance.expovariate(1 / mean_gap_ns))
        network.run(at_ns)
        name = chance.choice(sorted(network.nodes))
        network.tick(name)
        network.run(at_ns)
        yield name
        network.run(at_ns)


def flush(network: Network, wire_ns: int) -> None:
    """Every node tells all that is unsent, and repeats it until it has come."""
    for _ in range(60):
        for name in sorted(network.nodes):
            node = network.nodes[name]
            assert isinstance(node, Replicated)
            node._spread(list(node._since), network.clock_ns(name))
            network.tick(name)
        network.run(network.now_ns + wire_ns + SECOND_NS)
