"""A network of nodes in virtual time: delays, losses, cuts, nodes that stop and join, clocks that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Protocol


class Peer(Protocol):
    """A state machine: frames in, frames out, the time as a parameter."""

    def receive(self, frame: Any, at_ns: int) -> None: ...
    def tick(self, at_ns: int) -> None: ...
    def outbox(self) -> list[tuple[int, Any]]: ...


class Network:
    """``delay_ns``: of one frame, drawn for each; ``loss``: the part of frames that are lost; ``sent``: told of every
    frame that leaves a node, also of lost ones."""

    def __init__(
        self,
        delay_ns: Callable[[], int] = lambda: 0,
        *,
        loss: float = 0.0,
        seed: int = 0,
        sent: Callable[[int, int, Any], None] = lambda *_: None,
    ) -> None:
        self.nodes: dict[int, Peer] = {}
        self.now_ns = 0
        self._clocks: dict[int, int] = {}  # ns that a node's clock is ahead
        self._delay_ns = delay_ns
        self._loss = loss
        self._chance = Random(seed)
        self._sent = sent
        self._cut: dict[int, int] = {}  # {node: its side}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()

    def add(self, name: int, node: Peer, clock_ns: int = 0) -> None:
        """A node that is reached from now on; its clock is ``clock_ns`` ahead of the network's."""
        self.nodes[name] = node
        self._clocks[name] = clock_ns
        self.pump(name)

    def stop(self, name: int) -> None:
        """The node loses everything. What it sent before still arrives."""
        del self.nodes[name]

    def cut(self, *sides: Iterable[int]) -> None:
        """Nothing passes between ``sides``; what is on its way is lost. Without sides all is whole."""
        self._cut = {name: number for number, side in enumerate(sides) for name in side}

    def clock_ns(self, name: int) -> int:
        """What the node's clock says now."""
        return self.now_ns + self._clocks[name]

    def at(self, at_ns: int, action: Callable[[], None]) -> None:
        """Do ``action`` at an instant of the network's clock."""
        heappush(self._events, (at_ns, next(self._numbers), action))

    def every(self, period_ns: int, first_ns: int, until_ns: int, action: Callable[[], None]) -> None:
        """Do ``action`` again and again."""

        def again() -> None:
            action()
            if self.now_ns + period_ns <= until_ns:
                self.at(self.now_ns + period_ns, again)

        self.at(first_ns, again)

    def tick(self, name: int) -> None:
        """Let a node do what its clock asks for, if it is there."""
        if name in self.nodes:
            self.nodes[name].tick(self.clock_ns(name))
            self.pump(name)

    def pump(self, name: int) -> None:
        """Take what a node has to send, and put it on its way. Call it after each call of the node."""
        for peer, frame in self.nodes[name].outbox():
            self._sent(name, peer, frame)
            if self._loss and self._chance.random() < self._loss:
                continue
            self.at(self.now_ns + self._delay_ns(), _Delivery(self, name, peer, frame))

    def deliver(self, origin: int, peer: int, frame: Any) -> None:
        """The frame arrives, unless the peer is gone or out of reach."""
        if peer in self.nodes and self._cut.get(origin) == self._cut.get(peer):
            self.nodes[peer].receive(frame, self.clock_ns(peer))
            self.pump(peer)

    def run(self, until_ns: int) -> None:
        """Do all that happens up to ``until_ns``, included."""
        while self._events and self._events[0][0] <= until_ns:
            self.now_ns, _, action = heappop(self._events)
            action()
        self.now_ns = max(self.now_ns, until_ns)


class _Delivery:
    """A frame on its way."""

    __slots__ = ("_frame", "_network", "_origin", "_peer")

    def __init__(self, network: Network, origin: int, peer: int, frame: Any) -> None:
        self._network, self._origin, self._peer, self._frame = network, origin, peer, frame

    def __call__(self) -> None:
        self._network.deliver(self._origin, self._peer, self._frame)
