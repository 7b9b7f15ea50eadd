"""One hot subject on many nodes, in steps of 1 ms: what each mode lets through, and what its nodes say for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.limiting.network import Network
from bench.limiting.request_sets import NODES, SECOND, bucket, user
from limiting.replication.auto import Auto
from limiting.replication.exact import Asked, Exact
from limiting.replication.gossiped.gossip import MS
from limiting.replication.levels import Levels
from limiting.replication.messages import Increments
from limiting.replication.refill import Key, Refill
from limiting.replication.replicated import Options, Replicated
from srtm.token_bucket.bucket import TOKEN

BURST_S = 0.1  # of the rate: a burst is gone within as long
SUBJECT = user(0)

Node = Replicated | Auto | Exact
MakeNode = Callable[[int, list[int], Refill], Node]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """``above``: tokens above (r, b) at the worst instant; ``above_later``: after the first two seconds;
    ``entries``: increments that a node sends in a second, ``frames``: of any kind; ``alone``: requests decided without
    asking."""

    asked: int
    let: int
    central: int
    above: float
    above_later: float
    entries: float
    frames: float
    alone: float


class Logged(Exact):
    """Writes down what it lets through: an owner decides for others."""

    def __init__(self, log: list[int], *arguments: Any, **more: Any) -> None:
        self._log = log
        super().__init__(*arguments, **more)

    def _take(self, key: Key, units: int, at_ns: int) -> None:
        super()._take(key, units, at_ns)
        self._log += [at_ns] * (units // TOKEN)


class HotSubject:
    """``load``: times the rate, Poisson, at random nodes."""

    def __init__(self, rate: int, load: float, wire_ns: int, seconds: float, seed: int) -> None:
        self.refill = bucket(round(rate * BURST_S), rate)
        self._a_step = rate * load / 1_000
        self._steps = round(seconds * 1_000)
        self._chance = Random(seed)
        self._entries = self._frames = 0
        self.network = Network(lambda: wire_ns, sent=self._sent)
        self.log: list[int] = []  # when each token was let through

    def run(self, make: MakeNode) -> Outcome:
        network, chance = self.network, self._chance
        for name in range(NODES):
            network.add(name, make(name, [peer for peer in range(NODES) if peer != name], self.refill))
        asked = alone = 0
        central = Replicated(0, [], [self.refill], 0)
        by_central = 0
        for step in range(self._steps):
            network.run(step * MS)
            self._tick(step)
            for _ in range(_poisson(chance, self._a_step)):
                name, asked = chance.randrange(NODES), asked + 1
                verdict = self._node(name).take(SUBJECT, 1, network.now_ns)
                if isinstance(verdict, Asked):
                    network.pump(name)
                    network.run(network.now_ns)
                else:
                    alone += 1
                    if verdict.allowed:
                        network.pump(name)
                        network.run(network.now_ns)
                        self._passed(name)
                by_central += central.take(SUBJECT, 1, network.now_ns).allowed
        network.run(self._steps * MS + SECOND)
        return self._outcome(asked, by_central, alone)

    def _node(self, name: int) -> Node:
        node = self.network.nodes[name]
        assert isinstance(node, Replicated | Auto | Exact)
        return node

    def _passed(self, name: int) -> None:
        if not isinstance(self._node(name), Logged):
            self.log.append(self.network.now_ns)

    def _tick(self, step: int) -> None:
        """Nodes with a frame to send, and each in turn every 100 ms."""
        for name in range(NODES):
            node = self._node(name)
            replicated = node.replicated if isinstance(node, Auto) else node
            due = isinstance(replicated, Replicated) and replicated.due_ns <= self.network.now_ns
            if due or step % 100 == name:
                self.network.tick(name)

    def _sent(self, _origin: int, _peer: int, frame: Any) -> None:
        self._frames += 1
        if isinstance(frame, Increments):
            self._entries += len(frame.entries)

    def _outcome(self, asked: int, central: int, alone: int) -> Outcome:
        a_node_s = NODES * self._steps / 1_000
        return Outcome(
            asked=asked,
            let=len(self.log),
            central=central,
            above=self._above(0),
            above_later=self._above(2 * SECOND),
            entries=self._entries / a_node_s,
            frames=self._frames / a_node_s,
            alone=alone / asked,
        )

    def _above(self, from_ns: int) -> float:
        levels, worst = Levels([self.refill], [0], 0), 0
        for at_ns in sorted(self.log):
            if at_ns >= from_ns:
                worst = max(worst, levels.add((SUBJECT, 0), TOKEN, at_ns) - self.refill.units)
        return worst / TOKEN


def replicated(frame_ns: int) -> MakeNode:
    return lambda name, peers, refill: Replicated(name, peers, [refill], 0, Options(frame_ns=frame_ns))


def auto(frame_ns: int, wire_ns: int) -> MakeNode:
    return lambda name, peers, refill: Auto(name, peers, [refill], 0, frame_ns + wire_ns, Options(frame_ns=frame_ns))


def _poisson(chance: Random, mean: float) -> int:
    """By exponential gaps: a step has few."""
    count, at = 0, chance.expovariate(1)
    while at < mean:
        count += 1
        at += chance.expovariate(1)
    return count
