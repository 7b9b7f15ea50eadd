"""The designs that are compared, and what their states and messages weigh.

Bytes are counted alike, whatever a language needs for its objects. On the wire: 32 B for a subject, then 16 B and 8 B
for each node that took (counter), 16 B an element (queue), 4 B (replicated). In memory the same, but 48 B a subject for
``replicated``, and 20 B for each increment that a peer has not confirmed. A frame has 60 B of TCP and IP of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from limiting.replication.gossiped.counter import CounterBucket, CounterNode
from limiting.replication.gossiped.gossip import Delta, Gossip, GossipNode, GossipOptions
from limiting.replication.gossiped.queue import QueueNode
from limiting.replication.messages import Increments
from limiting.replication.refill import Refill, Subject, Verdict
from limiting.replication.replicated import Replicated

KEY_B, BUCKET_B, COUNT_B, ELEMENT_B, INCREMENT_B = 32, 16, 8, 16, 4
SLOT_B, HELD_B, HEADER_B = 48, 20, 60
MS = 1_000_000


class Deciding(Protocol):
    """A node of any design."""

    @property
    def due_ns(self) -> int: ...
    @property
    def told(self) -> bool: ...
    def take(self, subject: Subject, cost: int, at_ns: int) -> Verdict: ...
    def receive(self, frame: Any, at_ns: int) -> None: ...
    def tick(self, at_ns: int) -> None: ...
    def outbox(self) -> list[tuple[int, Any]]: ...


Make = Callable[[int, list[int], Refill, int, int], Deciding]


@dataclass(frozen=True, kw_only=True)
class Design:
    """``make``: of a node's name, its peers, the bucket, the gossip interval (ns) and a seed."""

    name: str
    make: Make
    wire_ns: int = 0


def state_bytes(state: Any) -> int:
    """Of one subject's state, in a message of the thesis's designs or in memory."""
    if isinstance(state, CounterBucket):
        return KEY_B + BUCKET_B + COUNT_B * len(state.counts)
    return KEY_B + ELEMENT_B * len(state)


def payload_bytes(frame: Any) -> int:
    """Of a message, without headers. What only acknowledges has none."""
    if isinstance(frame, Delta):
        return sum(map(state_bytes, frame.users.values()))
    if isinstance(frame, Increments):
        return (KEY_B + INCREMENT_B) * len(frame.entries)
    return 0


def memory_bytes(node: Deciding, at_ns: int) -> int:
    """Of a node's state and of what it keeps for its peers."""
    if isinstance(node, GossipNode):
        states = [node.local, *node.deltas.values()]
        return sum(state_bytes(state) for users in states for state in users.values())
    if isinstance(node, Replicated):
        node.levels.forget(at_ns)
        return SLOT_B * len(node.levels) + HELD_B * node.held
    raise TypeError(f"{type(node).__name__} is no design")


def gossiped(
    kind: type[CounterNode] | type[QueueNode], *, frequency_analysis: bool = False, gossip: Gossip = Gossip.RANDOM
) -> Make:
    def make(name: int, peers: list[int], refill: Refill, interval_ns: int, seed: int) -> Deciding:
        options = GossipOptions(gossip=gossip, frequency_analysis=frequency_analysis, interval_ns=interval_ns)
        return kind(name, peers, refill, 0, options, seed)

    return make


def replicated(name: int, peers: list[int], refill: Refill, interval_ns: int, seed: int) -> Deciding:
    del interval_ns, seed  # it has neither
    return Replicated(name, peers, [refill], 0)


DESIGNS = [
    Design(name="counter", make=gossiped(CounterNode)),
    Design(name="counter + LINF", make=gossiped(CounterNode, gossip=Gossip.LINF)),
    Design(name="counter + frequency", make=gossiped(CounterNode, frequency_analysis=True)),
    Design(name="counter + both", make=gossiped(CounterNode, frequency_analysis=True, gossip=Gossip.LINF)),
    Design(name="queue", make=gossiped(QueueNode)),
    Design(name="queue + LINF", make=gossiped(QueueNode, gossip=Gossip.LINF)),
    Design(name="queue + frequency", make=gossiped(QueueNode, frequency_analysis=True)),
    Design(name="queue + both", make=gossiped(QueueNode, frequency_analysis=True, gossip=Gossip.LINF)),
    Design(name="replicated", make=replicated),
    Design(name="replicated, 50 ms wire", make=replicated, wire_ns=50 * MS),
]
