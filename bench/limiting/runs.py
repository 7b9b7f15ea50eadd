"""One design on one set of requests: what it refuses, says, keeps, and how long until all nodes know the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.limiting.designs import HEADER_B, Deciding, Design, memory_bytes, payload_bytes
from bench.limiting.network import Network
from bench.limiting.request_sets import NODES, SECOND, RequestSet
from limiting.replication.levels import Levels
from limiting.replication.refill import Subject
from limiting.replication.replicated import Replicated
from srtm.token_bucket.bucket import TOKEN

LONGEST_S = 300  # a run ends then, though nodes may still gossip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """``above``: tokens above (r, b) at the worst instant; ``memory_b``: of a node, on average, while requests come;
    ``converged_s``: after the last request, nothing is queued at any node or on its way; None: not within 5 min."""

    refused: int
    above: float
    payload_b: int
    frames: int
    memory_b: float
    converged_s: float | None

    @property
    def header_b(self) -> int:
        return HEADER_B * self.frames


def centralized(requests: RequestSet) -> int:
    """How many requests one node that sees them all refuses."""
    node = Replicated(0, [], [requests.refill], 0)
    return sum(not node.take(one.subject, 1, one.at_ns).allowed for one in requests.requests)


class Run:
    """``outcome`` runs it to the end."""

    def __init__(self, design: Design, requests: RequestSet, seed: int) -> None:
        self._requests = requests
        self._payload = self._frames = self._refused = self._moving = 0
        self._wire_ns = design.wire_ns
        self._network = Network(lambda: design.wire_ns, seed=seed, sent=self._sent)
        self._nodes: dict[int, Deciding] = {}
        for name in range(NODES):
            peers = [peer for peer in range(NODES) if peer != name]
            node = design.make(name, peers, requests.refill, requests.interval_ns, seed)
            self._nodes[name] = node
            self._network.add(name, node)
            self._network.at(node.due_ns if node.due_ns < SECOND else SECOND, _Ticks(self, name))
        self._let: list[tuple[int, Subject]] = []
        self._memory: list[int] = []

    def outcome(self) -> Outcome:
        network, next_sample = self._network, 0
        for one in self._requests.requests:
            while next_sample <= one.at_ns:
                network.run(next_sample)
                self._memory.append(sum(memory_bytes(node, next_sample) for node in self._nodes.values()))
                next_sample += SECOND
            network.run(one.at_ns)
            if self._nodes[one.node].take(one.subject, 1, one.at_ns).allowed:
                self._let.append((one.at_ns, one.subject))
            else:
                self._refused += 1
            network.pump(one.node)
        return Outcome(
            converged_s=self._converged_s(),
            refused=self._refused,
            above=self._above(),
            payload_b=self._payload,
            frames=self._frames,
            memory_b=sum(self._memory) / len(self._memory) / NODES,
        )

    def ticked(self, name: int) -> None:
        """Let a node do what is due, and come back when something is again, or in a second."""
        self._network.tick(name)
        now_ns = self._network.now_ns
        self._network.at(max(now_ns + 1, min(self._nodes[name].due_ns, now_ns + SECOND)), _Ticks(self, name))

    def _sent(self, _origin: int, _peer: int, frame: Any) -> None:
        self._payload += payload_bytes(frame)
        self._frames += 1

    def _converged_s(self) -> float | None:
        network, ends_ns = self._network, self._requests.ends_ns
        while network.now_ns < ends_ns + LONGEST_S * SECOND:
            network.run(network.now_ns + self._wire_ns)  # what is on its way arrives
            if all(node.told for node in self._nodes.values()):
                return (network.now_ns - ends_ns) / SECOND
            network.run(network.now_ns + SECOND // 10)
        return None

    def _above(self) -> float:
        levels, worst = Levels([self._requests.refill], [0], 0), 0
        for at_ns, subject in self._let:
            worst = max(worst, levels.add((subject, 0), TOKEN, at_ns) - self._requests.refill.units)
        return worst / TOKEN


class _Ticks:
    """A node's next tick, as an event."""

    __slots__ = ("_name", "_run")

    def __init__(self, run: Run, name: int) -> None:
        self._run, self._name = run, name

    def __call__(self) -> None:
        self._run.ticked(self._name)
