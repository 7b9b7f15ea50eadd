"""What every node of a replicated mode does: levels, links to all peers, a start after others, and messages out.

A node that starts where others already run is ``unsettled``: what it does not know counts as a full burst taken, until
a peer's snapshot is in, or until that much has drained. It asks for one when all peers are linked, or have had the time
for it: what a peer takes that is not linked is in no snapshot. So it never lets through what it has forgotten of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from limiting.replication.levels import Levels
from limiting.replication.link import UNKNOWN, Link
from limiting.replication.messages import Ack, Frame, Hello, Increments, Snapshot, SnapshotAsk
from limiting.replication.refill import Key, Left, Look, Refill, SliceKey, Subject
from srtm.errors import PeerError

SECOND_NS = 1_000_000_000
FIRST_EPOCH = 1


class Node:
    """Instants are of the node's own monotonic clock, ns. ``outbox`` has what to send after each call.

    ``alone_ns``: from then on a node that starts waits for no peer.
    """

    def __init__(
        self,
        name: int,
        peers: Iterable[int],
        refills: Sequence[Refill],
        at_ns: int,
        *,
        epoch: int = FIRST_EPOCH,
        rejoins: bool = False,
        refuses_ns: int = 0,
        repeat_ns: int = SECOND_NS,
    ) -> None:
        """``refuses_ns``: how long after a start among others nothing drains, unless a peer's snapshot is in."""
        self.name = name
        self.epoch = epoch
        assumed = [refill.units + refill.rate_micro * refuses_ns if rejoins else 0 for refill in refills]
        self.levels = Levels(refills, assumed, at_ns)
        self._links = {peer: Link(name, epoch, UNKNOWN if rejoins else FIRST_EPOCH) for peer in peers}
        self._repeat_ns = repeat_ns
        self._out: list[tuple[int, Frame]] = []
        self._heard: dict[Key, int] | None = {} if rejoins else None  # units since the start, while unsettled
        self.alone_ns = at_ns + refuses_ns
        self._asked_ns = at_ns
        self._asked = 0
        if rejoins:
            self.greet()

    @property
    def nodes(self) -> int:
        """How many there are, this one included."""
        return len(self._links) + 1

    @property
    def held(self) -> int:
        """How many entries are kept because a peer has not acknowledged them, over all links."""
        return sum(link.entries for link in self._links.values())

    @property
    def settled(self) -> bool:
        return self._heard is None

    def outbox(self) -> list[tuple[int, Frame]]:
        """(peer, frame) to send, in order. They are handed over once."""
        out, self._out = self._out, []
        return out

    def receive(self, frame: Frame, at_ns: int) -> None:
        """Take in a frame from the peer that ``frame.origin`` names. Raises PeerError for one that cannot be."""
        link = self._links.get(frame.origin)
        if link is None:
            return
        if isinstance(frame, Increments):
            self._increments(link, frame, at_ns)
        elif isinstance(frame, Ack):
            self._acknowledged(frame.origin, frame, at_ns)
        elif isinstance(frame, Hello):
            self._hello(link, frame, at_ns)
        elif isinstance(frame, SnapshotAsk):
            if self.settled and frame.epoch == link.peer_epoch:
                self._put(frame.origin, self._snapshot(frame.epoch, at_ns))
        elif isinstance(frame, Snapshot):
            if frame.to_epoch == self.epoch:
                self._check(frame)
                self._settle(frame, at_ns)
        else:
            self._other(frame, at_ns)

    def is_linked(self, at_ns: int) -> bool:
        """All peers have greeted this node, or have had the time for it."""
        return at_ns >= self.alone_ns or all(link.peer_epoch != UNKNOWN for link in self._links.values())

    def begin_unused(self, at_ns: int) -> None:
        """Nothing was taken before: this is the first start of all nodes."""
        self._settle(Snapshot(self.name, self.epoch, ()), at_ns)

    def change(self, refills: Sequence[Refill], at_ns: int) -> None:
        """Decide by other numbers from now on, for as many policies as before."""
        self.levels.change(refills, at_ns)

    def bound(self, subjects: int) -> None:
        """Count so many subjects apart at most. Further ones share places."""
        self.levels.most = subjects * len(self.levels.refills)

    def is_shared(self, subject: Subject) -> bool:
        """Whether a subject is counted in a shared place."""
        return any(self.levels.is_shared((subject, policy)) for policy in range(len(self.levels.refills)))

    @property
    def counts(self) -> int:
        """How many are in memory: one for each subject and policy."""
        return len(self.levels)

    def forget(self, at_ns: int) -> None:
        """Forget subjects that have nothing used."""
        self.levels.forget(at_ns)

    def look(self, subject: Subject, at_ns: int) -> list[Left]:
        """What this node knows to be left, for each policy. It changes nothing."""
        levels = [self.levels.level((subject, policy), at_ns) for policy in range(len(self.levels.refills))]
        numbers = zip(levels, self.levels.rates, self.levels.bursts, strict=True)
        return [Look(burst - level, rate, burst) for level, rate, burst in numbers]

    def reached(self, peer: int, at_ns: int) -> None:
        """A peer can be reached again: tell it at once what it has not acknowledged."""
        self.greet()
        self._put(peer, *self._links[peer].repeat(0, at_ns))

    def tick(self, at_ns: int) -> None:
        """Repeat what was not acknowledged for a second. Call it about as often."""
        for peer, link in self._links.items():
            self._put(peer, *link.repeat(self._repeat_ns, at_ns))
        if at_ns - self._asked_ns < self._repeat_ns:
            return
        self._asked_ns = at_ns
        self.greet()
        if not self.settled:
            self._ask_snapshot(at_ns)
            if not self._assumes(at_ns):
                self._heard = None

    def add_peer(self, peer: int) -> None:
        """A node that was not there before."""
        self._links[peer] = Link(self.name, self.epoch, UNKNOWN)
        self._put(peer, Hello(self.name, self.epoch, UNKNOWN))

    def remove_peer(self, peer: int, at_ns: int) -> None:  # noqa: ARG002 - the modes use it
        """A node that is gone for good: a new incarnation is added anew."""
        del self._links[peer]
        self._confirmed()

    # for the modes

    def _put(self, peer: int, *frames: Frame) -> None:
        self._out += [(peer, frame) for frame in frames]

    def _meet(self, key: Key, at_ns: int) -> None:
        """A peer tells of ``key``, which may be new here."""

    def _applied(self, key: Key, level: int, at_ns: int) -> None:
        """A peer's increment is in ``level``."""

    def _confirmed(self) -> None:
        """A peer has confirmed more than before, or counts no more."""

    def _other(self, frame: Frame, at_ns: int) -> None:
        """A frame of the mode's own."""

    def _check(self, frame: Increments | Snapshot) -> None:
        """Raises PeerError for a policy that there is not: the nodes have different contracts."""
        unknown = [key[1] for key, _ in frame.entries if not self._has_policy(key)]
        unknown += [each[0][1] for each in frame.opened if not self._has_open(each[0][1])]
        if unknown:
            raise PeerError(f"node {frame.origin} told of policy {unknown[0]}, which is not here")

    def _has_open(self, number: int) -> bool:  # noqa: ARG002
        """Open requests of this policy are counted."""
        return False

    def _has_policy(self, key: Key | SliceKey) -> bool:
        return len(key) == 2 and 0 <= key[1] < len(self.levels.refills)

    def _apply(self, key: Key | SliceKey, units: int, at_ns: int) -> None:
        """Count what a peer took."""
        assert len(key) == 2
        self._meet(key, at_ns)
        level = self.levels.add(key, units, at_ns)
        self._count(key, units)
        self._applied(key, level, at_ns)

    def _joined(self, frame: Increments, at_ns: int) -> None:
        """Take in what is open at a peer."""

    def _snapshot(self, to_epoch: int, at_ns: int) -> Snapshot:
        """What this node knows to be taken."""
        return Snapshot(self.name, to_epoch, self.levels.snapshot(at_ns))

    def _assumes(self, at_ns: int) -> bool:
        """Something counts as taken of subjects that this node does not know."""
        return any(self.levels.assumed(at_ns))

    def _count(self, key: Key, units: int) -> None:
        if self._heard is not None:
            key = self.levels.kept(key)
            self._heard[key] = self._heard.get(key, 0) + units

    # frames that every mode has

    def _increments(self, link: Link, frame: Increments, at_ns: int) -> None:
        self._check(frame)
        entries = link.accept(frame)
        if entries is None:
            if frame.to_epoch < self.epoch:  # meant for an earlier incarnation
                self._put(frame.origin, Hello(self.name, self.epoch, link.peer_epoch))
            return
        for key, units in entries:
            self._apply(key, units, at_ns)
        if frame.seq == link.applied:
            self._joined(frame, at_ns)
        self._put(frame.origin, link.ack())
        self._acknowledged(frame.origin, None, at_ns)

    def _acknowledged(self, peer: int, ack: Ack | None, at_ns: int) -> None:
        more, frames = self._links[peer].take_ack(ack, at_ns)
        self._put(peer, *frames)
        if more:
            self._confirmed()

    def _hello(self, link: Link, frame: Hello, at_ns: int) -> None:
        frames = link.restart(frame.epoch, at_ns) if frame.epoch > link.peer_epoch else []
        if frame.epoch == link.peer_epoch and frame.knows != self.epoch:
            self._put(frame.origin, Hello(self.name, self.epoch, link.peer_epoch))
        self._put(frame.origin, *frames)  # after the hello: none is taken of an incarnation that is not known
        if not self.settled:
            self._ask_snapshot(at_ns)

    def greet(self) -> None:
        """Say hello to the peers that have not answered yet."""
        for peer, link in self._links.items():
            if link.peer_epoch == UNKNOWN:
                self._put(peer, Hello(self.name, self.epoch, UNKNOWN))

    def _ask_snapshot(self, at_ns: int) -> None:
        """Of one peer after the other, until one answers."""
        linked = sorted(peer for peer, link in self._links.items() if link.peer_epoch != UNKNOWN)
        if linked and self.is_linked(at_ns):
            self._put(linked[self._asked % len(linked)], SnapshotAsk(self.name, self.epoch))
            self._asked += 1

    def _settle(self, known: Snapshot, at_ns: int) -> None:
        """Begin with a peer's levels. What came in since the start is added: it may count twice, never not at all."""
        if self._heard is None:
            return
        heard, self._heard = self._heard, None
        self.levels.begin([(key, units) for key, units in known.entries if len(key) == 2], heard, at_ns)
