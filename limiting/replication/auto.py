"""The mode ``auto``: subjects are ``replicated``; a hot one has shares, split by demand, while it is hot.

A subject is hot once what is asked of it within the delay exceeds b/10, and cool again below b/20: deciding alone would
let through that much above the limit, once (law L4). Shares let through nothing above, but may refuse too early. Of
several policies the smallest burst counts. All of them have shares, or none, and a take is of all or of none.

A correction of a hot subject is paid by the share of the node that decided. What an operator takes beyond that share
is owed by all: each share by its part. Debts are told as takes are, so they outlive a change of mode.

The subject's owner keeps its shares. Nodes report demand every second. Shares shrink, are confirmed, and only then
others grow, so they never sum up to more than (r, b). Both modes keep the same bucket: a change is a message, no
migration. A share begins with its part of the tokens that are left; what comes back begins with what is left of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from limiting.replication.exact import owner
from limiting.replication.messages import Frame, Increments
from limiting.replication.node import FIRST_EPOCH, SECOND_NS
from limiting.replication.refill import ALLOWED, Key, Left, Look, Refill, Subject, Verdict, refused, units_of, wait_of
from limiting.replication.replicated import Options, Replicated
from srtm.errors import PeerError
from srtm.token_bucket.bucket import UNITS_PER_MICRO
from srtm.token_bucket.exact_split import split_bucket
from srtm.units import MICRO

HOT_PART, COOL_PART = 10, 20  # of the burst, asked within the delay

Part = tuple[int, int]  # of one policy: micro-tokens/s and micro-tokens
_Shares = dict[int, tuple[Part, ...]]  # {node: its parts}


@dataclass(frozen=True, slots=True)
class Demand:
    """What ``origin`` was asked for in the last second, tokens, by subject."""

    origin: int
    asked: tuple[tuple[Subject, int], ...]


@dataclass(frozen=True, slots=True)
class Shares:
    """The receiver's share of ``subject`` from now on, of each policy; nothing: the whole buckets, replicated."""

    origin: int
    subject: Subject
    version: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """``origin`` has the share of this version."""

    origin: int
    subject: Subject
    version: int


Message = Demand | Shares | Confirmed


class _Share:
    """A node's own share of one policy: ``left`` units at ``at_ns``."""

    __slots__ = ("at_ns", "burst", "left", "rate")

    def __init__(self, part: Part, left: int, at_ns: int) -> None:
        self.rate, self.burst = part[0], part[1] * UNITS_PER_MICRO
        self.left, self.at_ns = min(left, self.burst), at_ns

    def fill(self, at_ns: int) -> int:
        elapsed_ns = max(0, at_ns - self.at_ns)
        self.left = min(self.burst, self.left + self.rate * elapsed_ns)
        self.at_ns = max(self.at_ns, at_ns)
        return self.left

    def look(self, at_ns: int) -> Look:
        return Look(self.fill(at_ns), self.rate, self.burst)

    def debit(self, units: int, at_ns: int) -> None:
        self.left = min(self.burst, self.fill(at_ns) - units)


@dataclass
class _Hot:
    """What the owner keeps of a hot subject; no ``shares``: it cools. ``later``: shares that grow once ``missing`` have
    confirmed ``version``."""

    version: int
    shares: _Shares
    missing: set[int] = field(default_factory=set)
    later: _Shares | None = None


class Auto:
    """One node, for policies of kind bucket. ``delay_ns``: of a frame and the wire."""

    def __init__(
        self,
        name: int,
        peers: Iterable[int],
        refills: Sequence[Refill],
        at_ns: int,
        delay_ns: int,
        options: Options = Options(),  # noqa: B008 - it is frozen
        *,
        epoch: int = FIRST_EPOCH,
        rejoins: bool = False,
    ) -> None:
        self.name = name
        self._peers = set(peers)
        self.replicated = Replicated(name, self._peers, refills, at_ns, options, epoch=epoch, rejoins=rejoins)
        self._refills = list(refills)
        self._delay_ns = delay_ns
        self._version = epoch << 32  # so that a node that starts again goes on above it
        self._asked: dict[Subject, int] = {}
        self._reported_ns = at_ns
        self._demand: dict[Subject, dict[int, tuple[int, int]]] = {}  # of owned subjects: {node: (tokens, at)}
        self._hot: dict[Subject, _Hot] = {}  # owned
        self._shares: dict[Subject, list[_Share]] = {}  # of each policy
        self._seen: dict[tuple[int, Subject], int] = {}  # the latest version of each owner
        self._out: list[tuple[int, Message]] = []

    @property
    def reports(self) -> int:
        """Of how many subjects this node, their owner, keeps what nodes were asked for."""
        return len(self._demand)

    def is_hot(self, subject: Subject) -> bool:
        """This node decides by its share."""
        return subject in self._shares

    def take(self, subject: Subject, cost: int, at_ns: int) -> Verdict:
        """Take ``cost`` tokens from each share of a hot subject, or nothing; else as ``replicated``."""
        units = units_of(cost)
        self._asked[subject] = self._asked.get(subject, 0) + cost
        shares = self._shares.get(subject)
        if shares is None:
            return self.replicated.take(subject, cost, at_ns)
        missing = [units - share.fill(at_ns) for share in shares]
        refusals = [
            refused(more, share.rate, units <= share.burst)
            for more, share in zip(missing, shares, strict=True)
            if more > 0
        ]
        if refusals:
            return max(refusals, key=wait_of)
        for share in shares:
            share.left -= units
        return ALLOWED

    def debit(self, subject: Subject, units: Sequence[int], at_ns: int) -> None:
        """Correct a take afterwards; below 0 give back. The share of a hot subject pays, and may owe."""
        shares = self._shares.get(subject)
        if shares is None:
            self.replicated.debit(subject, units, at_ns)
            return
        for share, more in zip(shares, units, strict=True):
            share.debit(more, at_ns)

    def debit_everywhere(self, subject: Subject, units: Sequence[int], at_ns: int) -> None:
        """The same of the whole buckets: what this node's share cannot pay, all shares owe."""
        shares = self._shares.get(subject)
        if shares is None:
            self.replicated.debit(subject, units, at_ns)
            return
        wholes, owed = self.replicated.look(subject, at_ns), [0] * len(shares)
        for policy, share in enumerate(shares):
            paid = min(units[policy], max(0, share.fill(at_ns)))
            share.debit(paid, at_ns)
            if paid < units[policy]:
                owed[policy] = max(0, wholes[policy].left) + units[policy] - paid
        if any(owed):
            self.replicated.debit(subject, owed, at_ns)
        for policy, units_owed in enumerate(owed):
            if units_owed:
                self._owe((subject, policy), at_ns)

    def look_everywhere(self, subject: Subject, at_ns: int) -> list[Left]:
        """What ``debit_everywhere`` finds to be left: below 0 the whole bucket owes."""
        shares, wholes = self._shares.get(subject), self.replicated.look(subject, at_ns)
        if shares is None:
            return wholes
        return [
            Look(max(0, share.fill(at_ns)) + min(0, whole.left), share.rate, share.burst)
            for share, whole in zip(shares, wholes, strict=True)
        ]

    def reset(self, subject: Subject, at_ns: int) -> None:
        """Give back all that is taken; of a hot subject this node's share, and what others owe."""
        self.replicated.reset(subject, at_ns)
        for share in self._shares.get(subject, ()):
            share.left = share.burst
            share.at_ns = at_ns

    def look(self, subject: Subject, at_ns: int) -> list[Left]:
        """What this node knows to be left: of its share of a hot subject, else of the bucket."""
        shares = self._shares.get(subject)
        if shares is None:
            return self.replicated.look(subject, at_ns)
        return [share.look(at_ns) for share in shares]

    def change(self, refills: Sequence[Refill], at_ns: int) -> None:
        """Decide by other numbers from now on, for as many policies as before."""
        self._replicate_all(at_ns)
        self._refills = list(refills)
        self.replicated.change(refills, at_ns)

    def outbox(self) -> list[tuple[int, Frame | Message]]:
        """(peer, frame) to send, in order. They are handed over once."""
        out, self._out = self._out, []
        return [*self.replicated.outbox(), *out]

    def receive(self, frame: Frame | Message, at_ns: int) -> None:
        """Take in a frame from a peer. Raises PeerError for one that cannot be."""
        if isinstance(frame, Demand):
            self._hear(frame, at_ns)
        elif isinstance(frame, Shares):
            self._obey(frame, at_ns)
        elif isinstance(frame, Confirmed):
            self._confirm(frame, at_ns)
        else:
            self.replicated.receive(frame, at_ns)
            if isinstance(frame, Increments):
                for key, units in frame.entries:
                    self._owe((key[0], key[1]), at_ns, forgiven=units < 0)

    def tick(self, at_ns: int) -> None:
        """Report demand every second, and fit the shares of owned subjects to it."""
        self.replicated.tick(at_ns)
        if at_ns - self._reported_ns < SECOND_NS:
            return
        self._report(at_ns)
        for subject in list(self._demand):
            self._fit(subject, at_ns)

    def add_peer(self, peer: int, at_ns: int) -> None:
        """A node that was not there before."""
        self._peers.add(peer)
        self.replicated.add_peer(peer)
        self._replicate_all(at_ns)

    def remove_peer(self, peer: int, at_ns: int) -> None:
        """A node that is gone for good."""
        self._peers.discard(peer)
        self.replicated.remove_peer(peer, at_ns)
        self._replicate_all(at_ns)

    def _replicate_all(self, at_ns: int) -> None:
        """Owners may have changed: all subjects are replicated until their owners find them hot again."""
        for subject in list(self._shares):
            self._set_share(subject, (), at_ns)
        self._hot.clear()
        self._demand.clear()

    # demand

    def _owner(self, subject: Subject) -> int:
        return owner(subject, (self.name, *self._peers))

    def _report(self, at_ns: int) -> None:
        """Tell owners what was asked a second, where it could matter."""
        elapsed_ns, self._reported_ns = at_ns - self._reported_ns, at_ns
        found: dict[int, list[tuple[Subject, int]]] = {}
        nodes = len(self._peers) + 1
        for subject in {*self._asked, *self._shares}:
            a_second = self._asked.get(subject, 0) * SECOND_NS // elapsed_ns
            if self.is_hot(subject) or self._more_than(COOL_PART, a_second * nodes):
                found.setdefault(self._owner(subject), []).append((subject, a_second))
        self._asked.clear()
        for node, asked_of in found.items():
            self._put(node, Demand(self.name, tuple(asked_of)), at_ns)

    def _more_than(self, part: int, a_second: int) -> bool:
        """``a_second`` tokens/s bring more than b / ``part`` within the delay, of the smallest burst."""
        return a_second * MICRO * self._delay_ns * part > self._smallest_micro() * SECOND_NS

    def _smallest_micro(self) -> int:
        return min(refill.burst_micro for refill in self._refills)

    def _hear(self, demand: Demand, at_ns: int) -> None:
        for subject, asked in demand.asked:
            if self._owner(subject) == self.name:
                self._demand.setdefault(subject, {})[demand.origin] = asked, at_ns
                if subject not in self._hot:
                    self._fit(subject, at_ns)  # hot at once; later changes wait for the second

    # at the owner

    def _fit(self, subject: Subject, at_ns: int) -> None:
        reports = self._demand[subject]
        demand = {node: asked for node, (asked, heard_ns) in reports.items() if at_ns - heard_ns < 2 * SECOND_NS}
        total, hot = sum(demand.values()), self._hot.get(subject)
        if not demand and hot is None:
            del self._demand[subject]
            return
        if hot is not None and hot.missing:
            for node in hot.missing:
                self._put(node, Shares(self.name, subject, hot.version, hot.shares.get(node, ())), at_ns)
        elif hot is not None and not self._more_than(COOL_PART, total):
            self._give(subject, hot, {}, at_ns)
        elif self._more_than(HOT_PART, total) or hot is not None:
            self._split(subject, demand, hot, at_ns)

    def _split(self, subject: Subject, demand: dict[int, int], hot: _Hot | None, at_ns: int) -> None:
        """Shares by demand. A node that has not reported yet has the mean demand; one more token, so that none is
        without."""
        nodes = sorted({self.name, *self._peers})
        if len(nodes) * MICRO > self._smallest_micro():
            return  # a share needs a token
        mean = sum(demand.values()) / max(1, len(demand))
        weights = [demand.get(node, mean) + 1.0 for node in nodes]
        of_policies = [split_bucket(refill.rate_micro, refill.burst_micro, weights) for refill in self._refills]
        shares = dict(zip(nodes, zip(*of_policies, strict=True), strict=True))
        if hot is None:
            hot = self._hot[subject] = _Hot(0, shares)
            self._give(subject, hot, shares, at_ns)
        elif shares != hot.shares:
            least = {node: _smaller(hot.shares[node], parts) for node, parts in shares.items()}
            hot.later = shares
            self._give(subject, hot, least, at_ns)

    def _give(self, subject: Subject, hot: _Hot, shares: _Shares, at_ns: int) -> None:
        self._version += 1
        hot.version, hot.shares, hot.missing = self._version, shares, {self.name, *self._peers}
        for node in list(hot.missing):
            self._put(node, Shares(self.name, subject, hot.version, shares.get(node, ())), at_ns)

    def _confirm(self, frame: Confirmed, at_ns: int) -> None:
        hot = self._hot.get(frame.subject)
        if hot is None or hot.version != frame.version:
            return
        hot.missing.discard(frame.origin)
        if hot.missing:
            return
        if hot.later is not None:
            shares, hot.later = hot.later, None
            self._give(frame.subject, hot, shares, at_ns)
        elif not hot.shares:
            del self._hot[frame.subject], self._demand[frame.subject]

    # at every node

    def _obey(self, frame: Shares, at_ns: int) -> None:
        if len(frame.parts) not in (0, len(self._refills)):
            raise PeerError(f"node {frame.origin} told of {len(frame.parts)} policies, not {len(self._refills)}")
        seen = self._seen.get((frame.origin, frame.subject), 0)
        if frame.version > seen and frame.origin == self._owner(frame.subject):
            self._seen[frame.origin, frame.subject] = frame.version
            self._set_share(frame.subject, frame.parts, at_ns)
        if frame.version >= seen:
            self._put(frame.origin, Confirmed(self.name, frame.subject, frame.version), at_ns)

    def _set_share(self, subject: Subject, parts: tuple[Part, ...], at_ns: int) -> None:
        """Change what this node decides by. No token is gained: a share begins with its part of what is left."""
        before, levels = self._shares.pop(subject, None), self.replicated.levels
        if before:
            lefts = [share.fill(at_ns) for share in before]
        else:  # below 0 it owes
            lefts = [each.units - levels.ask((subject, policy), at_ns) for policy, each in enumerate(self._refills)]
        if not self.replicated.settled:
            lefts = [max(0, left) for left in lefts]  # it only assumes so
        if parts:
            shares = self._shares[subject] = []
            for part, left, refill in zip(parts, lefts, self._refills, strict=True):
                mine = left if before else left * part[1] // refill.burst_micro
                shares.append(_Share(part, mine, at_ns))
        elif before:
            for policy, (left, refill) in enumerate(zip(lefts, self._refills, strict=True)):
                levels.raise_to((subject, policy), refill.units - left, at_ns)  # others may be counted there too

    def _owe(self, key: Key, at_ns: int, *, forgiven: bool = False) -> None:
        """Let a hot subject's share owe its part of what the whole bucket owes. ``forgiven``: or nothing more."""
        subject, policy = key
        shares = self._shares.get(subject)
        if shares is None or not self.replicated.settled:
            return
        share, owed = shares[policy], -self.replicated.look(subject, at_ns)[policy].left
        if owed > 0:
            share.left = min(share.fill(at_ns), -owed * share.burst // self._refills[policy].units)
        elif forgiven:
            share.left = max(share.fill(at_ns), 0)

    def _put(self, node: int, message: Message, at_ns: int) -> None:
        if node == self.name:
            self.receive(message, at_ns)
        else:
            self._out.append((node, message))


def _smaller(one: tuple[Part, ...], other: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple((min(a[0], b[0]), min(a[1], b[1])) for a, b in zip(one, other, strict=True))
