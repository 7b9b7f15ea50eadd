"""The mode ``exact``: a node decides alone while far from the limit; near it, the subject's owner decides.

* Alone: ``unacked + w <= beta * rest / N``. ``unacked``: own takes that not every peer has confirmed.
* Owner: ``w <= (1 - 2 beta) * rest - 2 beta * unacked``. Owner: the highest rendezvous hash of subject and node.

Never above (r, b), whatever the delays, losses of frames and nodes, and weights. That is shown by 10,000 random runs
(``tests/limiting/replication/test_exact.py``), not proven.

A node that cannot reach a peer decides nothing until the link is back or the peer is removed. Whoever removes a peer
must know that it decides no more (its lease is over, or its process is). Until drained, the bucket counts as full for
subjects that the lost node owned. Of others it may have taken ``beta * b / N`` that nobody heard of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b

from limiting.replication.levels import add_up, decayed
from limiting.replication.link import UNKNOWN, Link
from limiting.replication.messages import Answer, Ask, Frame, Hello
from limiting.replication.node import FIRST_EPOCH, Node
from limiting.replication.refill import ALLOWED, Key, Refill, Subject, Verdict, refused, units_of
from srtm.errors import BadInput, Unavailable

BETA = Fraction(1, 4)
ASK_AGAIN = Verdict(allowed=False, wait_ns=0)


def owner(subject: Subject, nodes: Iterable[int]) -> int:
    """The node that decides about ``subject`` near its limit: the highest rendezvous hash."""
    return max(nodes, key=lambda node: blake2b(subject + node.to_bytes(4, "big"), digest_size=8).digest())


@dataclass(frozen=True, slots=True)
class Asked:
    """The owner was asked: ``answers`` will have the verdict by ``ticket``."""

    ticket: int


@dataclass(frozen=True, slots=True)
class _Loss:
    """A node that was lost at ``at_ns``, and the ``nodes`` there were with it."""

    node: int
    nodes: tuple[int, ...]
    at_ns: int


@dataclass(frozen=True, slots=True)
class _Take:
    """An own take that waits to be confirmed. ``kept``: where it is counted; ``frames``: {peer: number of the frame
    that tells it}."""

    kept: Key
    units: int
    frames: dict[int, int]


class Exact(Node):
    """One node. ``cut``: peers that cannot be reached now; the transport keeps it."""

    def __init__(
        self,
        name: int,
        peers: Iterable[int],
        refills: Sequence[Refill],
        at_ns: int,
        *,
        beta: Fraction = BETA,
        epoch: int = FIRST_EPOCH,
        rejoins: bool = False,
    ) -> None:
        if not 0 < beta < Fraction(1, 2):
            raise BadInput("beta", str(beta), "must be above 0 and below 1/2")
        self.cut: set[int] = set()
        self._numerator, self._denominator = beta.numerator, beta.denominator
        self._takes: deque[_Take] = deque()
        self._losses: list[_Loss] = []
        self._tickets = 0
        self._asks: dict[int, tuple[int, int]] = {}  # {ticket: (owner, asked at)}
        self._answers: dict[int, Verdict] = {}
        self._joining = rejoins
        self._forgets_nothing = False  # nothing was taken before
        super().__init__(name, peers, refills, at_ns, epoch=epoch, rejoins=rejoins)

    @property
    def ready(self) -> bool:
        """Every peer knows this incarnation and can be reached."""
        return not self._joining and not self.cut

    def take(self, subject: Subject, cost: int, at_ns: int) -> Verdict | Asked:
        """Take ``cost`` tokens from every policy of ``subject``, or nothing; or ask the owner."""
        units = units_of(cost)
        if not self.ready:
            return ASK_AGAIN
        levels = self._ask(subject, at_ns)
        if all(self._far(key, level, units) for key, level in levels):
            for key, _ in levels:
                self._take(key, units, at_ns)
            return ALLOWED
        decides = owner(subject, self._nodes())
        if decides == self.name:
            return self._grant(subject, units, at_ns)
        self._tickets += 1
        self._asks[self._tickets] = decides, at_ns
        self._put(decides, Ask(self.name, self.epoch, self._tickets, subject, cost))
        return Asked(self._tickets)

    def debit(self, subject: Subject, units: Sequence[int], at_ns: int) -> None:
        """Correct a take afterwards: take ``units`` of each policy without a test.

        Nothing is given back: peers would hear of it late. What they have taken meanwhile would count as given back,
        where the first take has drained already.
        """
        for (key, _), more in zip(self._ask(subject, at_ns), units, strict=True):
            if more > 0:
                self._take(key, more, at_ns)

    def reset(self, subject: Subject, at_ns: int) -> None:
        """Give back all that is taken. Until others hear of it they drain as before: so r times that delay more may
        pass, once. Raises Unavailable where a peer cannot be reached, which would hear of it far too late."""
        if not self.ready:
            raise Unavailable('mode "exact" resets nothing here now: this node cannot reach all others', 1.0)
        for key, level in self._ask(subject, at_ns):
            self.levels.add(key, -level, at_ns)
            for peer, link in self._links.items() if level else ():
                self._put(peer, *link.send([(key, -level)], at_ns))

    def answers(self) -> dict[int, Verdict]:
        """Verdicts of owners by ticket. They are handed over once."""
        answers, self._answers = self._answers, {}
        return answers

    def tick(self, at_ns: int) -> None:
        """Repeat what was not acknowledged, and give up what an owner has not answered for a second."""
        super().tick(at_ns)
        for ticket, (_, asked_ns) in list(self._asks.items()):
            if at_ns - asked_ns >= self._repeat_ns:
                self._answer(ticket, ASK_AGAIN)

    def remove_peer(self, peer: int, at_ns: int) -> None:
        """Go on without a node that decides no more, and count what it may have let through unheard."""
        nodes = tuple(self._nodes())
        bursts = self.levels.bursts
        self.levels.add_to_all(
            [-(-burst * self._numerator // (self._denominator * len(nodes))) for burst in bursts], at_ns
        )
        loss = _Loss(peer, nodes, at_ns)
        self._losses.append(loss)
        for key, _ in self.levels.snapshot(at_ns):
            self.levels.raise_to(key, self._lost(key, loss, at_ns), at_ns)
        for take in self._takes:
            take.frames.pop(peer, None)
        for ticket, (asked, _) in list(self._asks.items()):
            if asked == peer:
                self._answer(ticket, ASK_AGAIN)
        self.cut.discard(peer)
        super().remove_peer(peer, at_ns)
        self._join(at_ns)

    def begin_unused(self, at_ns: int) -> None:
        super().begin_unused(at_ns)
        self._forgets_nothing = True

    # decisions

    def _far(self, key: Key, level: int, units: int) -> bool:
        rest = self.levels.bursts[key[1]] - level
        return (self._unacked(key) + units) * self._denominator * self.nodes <= self._numerator * rest

    def _grant(self, subject: Subject, units: int, at_ns: int) -> Verdict:
        """The owner's decision."""
        levels = self._ask(subject, at_ns)
        for key, level in levels:
            missing = self._missing(key, level, units)
            if missing > 0:
                possible = units * self._denominator <= self._owners_part() * self.levels.bursts[key[1]]
                return refused(missing, self.levels.rates[key[1]], possible)
        for key, _ in levels:
            self._take(key, units, at_ns)
        return ALLOWED

    def _missing(self, key: Key, level: int, units: int) -> int:
        """Units that must drain before the owner may grant."""
        needed = units * self._denominator + 2 * self._numerator * self._unacked(key)
        return level - self.levels.bursts[key[1]] - (-needed // self._owners_part())

    def _owners_part(self) -> int:
        return self._denominator - 2 * self._numerator

    def _take(self, key: Key, units: int, at_ns: int) -> None:
        """Count an own take, and tell every peer at once."""
        self.levels.add(key, units, at_ns)
        kept = self.levels.kept(key)
        add_up(self.levels.unacked, kept, units)
        frames = {}
        for peer, link in self._links.items():
            self._put(peer, *link.send([(key, units)], at_ns))
            frames[peer] = link.sent
        self._takes.append(_Take(kept, units, frames))
        self._confirmed()

    def _confirmed(self) -> None:
        while self._takes and all(self._links[peer].acked >= seq for peer, seq in self._takes[0].frames.items()):
            take = self._takes.popleft()
            add_up(self.levels.unacked, take.kept, -take.units)

    # asking

    def _other(self, frame: Frame, at_ns: int) -> None:
        if isinstance(frame, Ask) and frame.epoch == self._links[frame.origin].peer_epoch:
            self._put(frame.origin, Answer(self.name, frame.epoch, frame.ticket, self._decided(frame, at_ns)))
        elif isinstance(frame, Answer) and frame.to_epoch == self.epoch and frame.ticket in self._asks:
            self._answer(frame.ticket, frame.verdict)

    def _decided(self, ask: Ask, at_ns: int) -> Verdict:
        """Only the owner decides: where nodes see different ones, nobody does."""
        if not self.ready or owner(ask.subject, self._nodes()) != self.name:
            return ASK_AGAIN
        return self._grant(ask.subject, units_of(ask.cost), at_ns)

    def _answer(self, ticket: int, verdict: Verdict) -> None:
        del self._asks[ticket]
        self._answers[ticket] = verdict

    # nodes that come and go

    def _nodes(self) -> list[int]:
        return [self.name, *self._links]

    def _ask(self, subject: Subject, at_ns: int) -> list[tuple[Key, int]]:
        """Each policy of ``subject``, and its level."""
        keys = [(subject, policy) for policy in range(len(self.levels.refills))]
        for key in keys if self._losses else ():
            self._meet(key, at_ns)
        return [(key, self.levels.ask(key, at_ns)) for key in keys]

    def _meet(self, key: Key, at_ns: int) -> None:
        if not self.levels.has(key):
            for loss in self._losses:
                self.levels.raise_to(key, self._lost(key, loss, at_ns), at_ns)

    def _unacked(self, key: Key) -> int:
        unacked = self.levels.unacked
        return unacked.get(self.levels.kept(key), 0) if unacked else 0

    def _lost(self, key: Key, loss: _Loss, at_ns: int) -> int:
        """The level that ``loss`` leaves at ``at_ns``: a full burst where the lost node was the owner."""
        if owner(key[0], loss.nodes) != loss.node:
            return 0
        return decayed(self.levels.bursts[key[1]], self.levels.rates[key[1]], at_ns - loss.at_ns)

    def _hello(self, link: Link, frame: Hello, at_ns: int) -> None:
        """A peer that started again counts once its earlier incarnation is removed."""
        if link.peer_epoch in (UNKNOWN, frame.epoch):
            super()._hello(link, frame, at_ns)
            self._join(at_ns)

    def _join(self, at_ns: int) -> None:
        """Once every peer knows this node, begin with full levels: what came before is in them."""
        if self._joining and all(link.peer_epoch != UNKNOWN for link in self._links.values()):
            self._joining = False
            if not self._forgets_nothing:
                self.levels.fill(at_ns)

    def _ask_snapshot(self, at_ns: int) -> None:
        """A snapshot lacks what is on its way: a node that joins drains instead."""
