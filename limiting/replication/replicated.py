"""The mode ``replicated``: every node decides alone, and tells the others of its own takes when they begin to matter.

A node sends its own increments, once, directly to each peer, as soon as ``unsent > beta * rest / N``: far from the
limit seldom, near it at once. The laws (``tests/limiting/replication``):

* L1: increments are applied exactly once.
* L2: true <= view <= true + r D, once all increments have come. D: the longest time from a take to its arrival.
* L3: without wire delay never above (r, b), for costs of 1; heavier costs by at most beta * rest.
* L4: with a wire delay, above by at most what the others take within it. Who cannot have that uses ``exact``.
* L5: levels join by their maximum; a node that starts again asks for a snapshot.
* L6: no instant is on the wire. Clocks may differ by any amount.

Windows keep the same laws, but for L2 and L6: their slices are those of the wall clock, by which nodes must agree.

Open requests keep them with what is open in the place of what was taken. A node tells how many are open that it let in,
so L1 is a join: the last version wins. Their L2: once all news has come, every node sees what is open, no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from limiting.replication.levels import add_up
from limiting.replication.link import Link
from limiting.replication.messages import Ack, Close, Entry, Frame, Hello, Increments, OpenEntry, Snapshot
from limiting.replication.node import FIRST_EPOCH, SECOND_NS, Node
from limiting.replication.open_counts import OpenCounts
from limiting.replication.refill import (
    ALLOWED,
    NEVER_NS,
    Key,
    Left,
    Refill,
    SliceKey,
    Subject,
    Verdict,
    refused,
    units_of,
    wait_of,
)
from limiting.replication.windows import Windows
from srtm.contracts.policy import Concurrency, Window
from srtm.errors import BadInput
from srtm.token_bucket.bucket import TOKEN

_OpenKey = tuple[Key]  # among the keys of news: what is open of a subject
_NewsKey = Key | SliceKey | _OpenKey
LINKED_WITHIN_NS = 3 * SECOND_NS  # of a start: who calls a peer in vain calls again within 2 s


class OnPartition(Enum):
    """What a part does while it cannot reach the others: the whole bucket, or the reachable nodes' part of it."""

    GO_ON = "go on"
    SHARE = "share"


@dataclass(frozen=True, kw_only=True)
class Options:
    """``beta``: above it unsent takes are news; ``flush_ns``: takes wait no longer; ``frame_ns``: news waits for the
    next frame of so many ns, one entry a subject a frame; ``strict_weights``: costs above 1 keep law L3 too.

    Raises BadInput for a beta that is not between 0 and 1.
    """

    beta: Fraction = Fraction(1, 2)
    flush_ns: int = 10 * SECOND_NS
    frame_ns: int = 0
    strict_weights: bool = False
    on_partition: OnPartition = OnPartition.GO_ON

    def __post_init__(self) -> None:
        if not 0 < self.beta < 1:
            raise BadInput("beta", str(self.beta), "must be above 0 and below 1")


class Replicated(Node):
    """One node. ``due_ns``: the next instant at which ``tick`` has something to send.

    Policies are numbered as in the contract: ``windows`` has those of kind window by their numbers, ``opens`` those of
    kind concurrency, ``refills`` all others in order. Windows go by the wall clock, which is ``ahead_ns`` ahead of the
    clock of the calls, as of now.
    """

    def __init__(
        self,
        name: int,
        peers: Iterable[int],
        refills: Sequence[Refill],
        at_ns: int,
        options: Options = Options(),
        *,
        epoch: int = FIRST_EPOCH,
        rejoins: bool = False,
        windows: Mapping[int, Window] | None = None,
        opens: Mapping[int, Concurrency] | None = None,
        ahead_ns: int = 0,
    ) -> None:
        super().__init__(name, peers, refills, at_ns, epoch=epoch, rejoins=rejoins, refuses_ns=LINKED_WITHIN_NS)
        self.options = options
        self.ahead_ns = ahead_ns
        self.windows = Windows(windows or {}, self._wall(at_ns) + LINKED_WITHIN_NS, assumed=rejoins)
        self.opens = OpenCounts((name, epoch), opens or {}, at_ns + LINKED_WITHIN_NS, assumed=rejoins)
        self._numerator, self._denominator = options.beta.numerator, options.beta.denominator
        self._since: dict[_NewsKey, int] = {}  # of what is unsent, the oldest first
        self._urgent: dict[_NewsKey, None] = {}
        self._frame_due_ns = NEVER_NS
        self._away: set[int] = set()  # peers that have not answered for two flushes, or not yet since the start
        if rejoins:
            self._set_away(set(self._links), at_ns)

    @property
    def due_ns(self) -> int:
        oldest = next(iter(self._since.values()), NEVER_NS)
        return min(self._frame_due_ns, oldest + self.options.flush_ns)

    @property
    def told(self) -> bool:
        """Every peer knows of every own take."""
        return not self._since and self.held == 0

    def take(self, subject: Subject, cost: int, at_ns: int, name: int = 0) -> Verdict:
        """Take ``cost`` tokens from every policy of ``subject``, or nothing. The longest wait is the answer's.

        ``name``: of the request, for its release. No other one that is open here may have it.
        """
        units = units_of(cost)
        keys = [(subject, policy) for policy in range(len(self.levels.refills))]
        needed = self._needed(units)
        verdicts = [self._verdict(key, self.levels.ask(key, at_ns), needed) for key in keys]
        verdicts += [_waited(look.wait_ns(needed)) for look in self._others(subject, at_ns).values()]
        worst = max(verdicts, key=wait_of)
        if not worst.allowed:
            return worst
        for key in keys:
            self._take(key, units, at_ns)
        for number in self.windows.rules:
            self._take_of_window(subject, number, cost, at_ns)
        for number in self.opens.rules:
            self.opens.take(subject, number, cost, name, at_ns)
            self._open_changed((subject, number), at_ns)
        return ALLOWED

    def release(self, subject: Subject, name: int, at_ns: int) -> bool:
        """End an open request that this node let in. False: it is not open."""
        changed = self.opens.release(subject, name, at_ns)
        for key in changed:
            self._open_changed(key, at_ns)
        return bool(changed)

    def reset(self, subject: Subject, at_ns: int) -> None:
        """Give back all that is taken, as far as this node knows. End all that is open, here and at the peers that can
        be reached."""
        self.debit(subject, [look.left - look.burst for look in self.look(subject, at_ns)], at_ns)
        if self.opens.rules:
            self._close(subject, at_ns)
            for peer in self._links:
                self._put(peer, Close(self.name, subject))

    def look(self, subject: Subject, at_ns: int) -> list[Left]:
        looks = super().look(subject, at_ns)
        others = self._others(subject, at_ns)
        for number in sorted(others):
            looks.insert(number, others[number])
        return looks

    def _others(self, subject: Subject, at_ns: int) -> dict[int, Left]:
        """What is left of policies that are no buckets, by number."""
        wall_ns = self._wall(at_ns)
        looks: dict[int, Left] = {each: self.windows.look(subject, each, wall_ns) for each in self.windows.rules}
        return looks | {each: self.opens.look(subject, each, at_ns) for each in self.opens.rules}

    def debit(self, subject: Subject, units: Sequence[int], at_ns: int) -> None:
        """Correct a take afterwards: take ``units`` of each policy without a test; below 0 give back as much of what is
        taken, as far as this node knows. A window counts whole tokens: parts are rounded up, away from zero. An open
        request is one, whatever it came to."""
        others = self.windows.rules.keys() | self.opens.rules.keys()
        of_buckets = [each for number, each in enumerate(units) if number not in others]
        for policy, more in enumerate(of_buckets):
            key = (subject, policy)
            if more := max(more, -self.levels.ask(key, at_ns)):
                self._take(key, more, at_ns)
        for number in self.windows.rules:
            tokens = -(-abs(units[number]) // TOKEN)
            self._take_of_window(subject, number, tokens if units[number] > 0 else -tokens, at_ns)

    def bound(self, subjects: int) -> None:
        super().bound(subjects)
        self.windows.most = subjects * len(self.windows.rules)
        self.opens.most = subjects * len(self.opens.rules)

    def is_shared(self, subject: Subject) -> bool:
        in_window = any(self.windows.is_shared((subject, number)) for number in self.windows.rules)
        is_open = any(self.opens.is_shared((subject, number)) for number in self.opens.rules)
        return in_window or is_open or super().is_shared(subject)

    @property
    def counts(self) -> int:
        return super().counts + len(self.windows) + len(self.opens)

    def forget(self, at_ns: int) -> None:
        super().forget(at_ns)
        wall_ns = self._wall(at_ns)
        self.windows.forget(wall_ns)
        for link in self._links.values() if self.windows.rules else ():
            link.forget(lambda key: self.windows.is_over(key, wall_ns))
        self.opens.forget(at_ns)
        for peer in self._away:  # it knows of nothing that was open so long ago
            self._links[peer].forget_open(lambda key: not self.opens.has(key))

    def change(
        self,
        refills: Sequence[Refill],
        at_ns: int,
        windows: Mapping[int, Window] | None = None,
        opens: Mapping[int, Concurrency] | None = None,
    ) -> None:
        """Decide by other numbers from now on, for as many policies of each kind as before."""
        self._spread([key for key in self._since if len(key) == 3], at_ns)  # by the slices that it was counted in
        super().change(refills, at_ns)
        self.windows.change(windows or {}, self._wall(at_ns))
        self.opens.change(opens or {})

    def tick(self, at_ns: int) -> None:
        """Send what has waited long enough."""
        super().tick(at_ns)
        self._watch_links(at_ns)
        for key in self.opens.expire(at_ns):
            self._open_changed(key, at_ns)
        late = at_ns - self.options.flush_ns
        keys = dict(self._urgent) if at_ns >= self._frame_due_ns else {}
        for news, since_ns in self._since.items():
            if since_ns > late:
                break
            keys[news] = None
        self._spread(keys, at_ns)

    # decisions

    def _needed(self, units: int) -> int:
        """What must be left for a take of ``units``."""
        if self.options.strict_weights and units > TOKEN:
            return -(-units * self._denominator // (self._denominator - self._numerator))
        return units

    def _verdict(self, key: Key, level: int, needed: int) -> Verdict:
        burst = self.levels.bursts[key[1]]
        missing = level + needed - burst
        if missing <= 0:
            return ALLOWED
        return refused(missing, self.levels.rates[key[1]], needed <= burst)

    def _take(self, key: Key, units: int, at_ns: int) -> None:
        level = self.levels.add(key, units, at_ns)
        self._count(key, units)
        if self.levels.is_shared(key):  # beyond the bound nothing is kept of a subject, also not what is unsent
            for peer in self._links:
                self._tell(peer, [(key, units)], at_ns)
            return
        add_up(self.levels.unsent, key, units)
        self._since.setdefault(key, at_ns)
        self._applied(key, level, at_ns)

    def _applied(self, key: Key, level: int, at_ns: int) -> None:
        """Send what is news by now: ``unsent > beta * rest / N``."""
        rest, unsent = self.levels.bursts[key[1]] - level, self.levels.unsent.get(key, 0)
        if unsent * self.nodes * self._denominator <= self._numerator * rest or unsent == 0:
            return
        self._is_news([key], at_ns)

    def _is_news(self, keys: Sequence[_NewsKey], at_ns: int) -> None:
        if self.options.frame_ns == 0:
            self._spread(keys, at_ns)
            return
        self._urgent.update(dict.fromkeys(keys))
        self._frame_due_ns = min(self._frame_due_ns, at_ns + self.options.frame_ns)

    def _spread(self, keys: Iterable[_NewsKey], at_ns: int) -> None:
        """Tell every peer of what is unsent of ``keys``, in one frame."""
        entries: list[Entry] = []
        opened: list[OpenEntry] = []
        for key in keys:
            if len(key) == 1:
                if self.opens.untold(key[0]):
                    opened.append((key[0], self.opens.news(key[0])))
            elif units := self._unsent(key):
                entries.append((key, units))
            self._since.pop(key, None)
            self._urgent.pop(key, None)
        if not self._urgent:
            self._frame_due_ns = NEVER_NS
        if entries or opened:
            for peer in self._links:
                self._tell(peer, entries, at_ns, opened)

    def _unsent(self, key: Key | SliceKey) -> int:
        """Hand over what no peer was told of: from now on it counts as told."""
        if len(key) == 3:
            return self.windows.hand_over(key)
        return self.levels.unsent.pop(key, 0)

    def _tell(self, peer: int, entries: Sequence[Entry], at_ns: int, opened: Sequence[OpenEntry] = ()) -> None:
        """A peer that is away hears of a burst at most: a long cut is no long ban. It hears all of windows, which are
        over once, and what is open then."""
        cap = None
        if peer in self._away:
            if self.options.on_partition is OnPartition.SHARE:
                return  # its part of the bucket is kept for it
            cap = max(self.levels.bursts, default=None)
        self._put(peer, *self._links[peer].send(entries, at_ns, cap, opened))

    # windows

    def _wall(self, at_ns: int) -> int:
        return at_ns + self.ahead_ns

    def _take_of_window(self, subject: Subject, number: int, tokens: int, at_ns: int) -> None:
        taken = self.windows.take(subject, number, tokens, self._wall(at_ns))
        entries: list[tuple[SliceKey, int]] = [((subject, number, at), more) for at, more in taken.items()]
        if self.windows.is_shared((subject, number)):  # what is unsent would be told as the place's
            for peer in self._links if entries else ():
                self._tell(peer, entries, at_ns)
            return
        for key, more in entries:
            self.windows.to_tell(key, more)
            self._since.setdefault(key, at_ns)
        self._window_news(subject, number, at_ns)

    def _window_news(self, subject: Subject, number: int, at_ns: int) -> None:
        """As of ``_applied``, for all slices of a window together."""
        unsent = self.windows.unsent(subject, number)
        units = sum(unsent.values()) * TOKEN
        rest = self.windows.look(subject, number, self._wall(at_ns)).left
        if units > 0 and units * self.nodes * self._denominator > self._numerator * rest:
            self._is_news([(subject, number, at) for at in unsent], at_ns)

    def _has_policy(self, key: Key | SliceKey) -> bool:
        return key[1] in self.windows.rules if len(key) == 3 else super()._has_policy(key)

    def _apply(self, key: Key | SliceKey, units: int, at_ns: int) -> None:
        if len(key) == 2:
            super()._apply(key, units, at_ns)
        else:
            self.windows.told(key, units, self._wall(at_ns))
            self._window_news(key[0], key[1], at_ns)

    def _snapshot(self, to_epoch: int, at_ns: int) -> Snapshot:
        levels = super()._snapshot(to_epoch, at_ns).entries
        slices = self.windows.snapshot(self._wall(at_ns))
        return Snapshot(self.name, to_epoch, (*levels, *slices), tuple(self.opens.snapshot(at_ns)))

    def _assumes(self, at_ns: int) -> bool:
        in_windows = self.windows.assumes(self._wall(at_ns))
        return super()._assumes(at_ns) or in_windows or self.opens.assumes(at_ns)

    def _settle(self, known: Snapshot, at_ns: int) -> None:
        if not self.settled:
            slices = [(key, tokens) for key, tokens in known.entries if len(key) == 3]
            self.windows.begin(slices, self._wall(at_ns))
            self.opens.begin(known.opened, at_ns)
        super()._settle(known, at_ns)

    # open requests

    def _open_changed(self, key: Key, at_ns: int) -> None:
        """An own request was opened, or has ended."""
        if self.opens.has(key):
            self._since.setdefault((key,), at_ns)
            self._open_news(key, at_ns)
            return
        for peer in self._links:  # in a shared place, where nothing says what peers know of a subject
            self._tell(peer, (), at_ns, [(key, self.opens.news(key))])

    def _open_news(self, key: Key, at_ns: int) -> None:
        """As of ``_applied``."""
        changed = abs(self.opens.untold(key)) * TOKEN
        rest = self.opens.look(*key, at_ns).left
        if changed and changed * self.nodes * self._denominator > self._numerator * rest:
            self._is_news([(key,)], at_ns)

    def _has_open(self, number: int) -> bool:
        return number in self.opens.rules

    def _joined(self, frame: Increments, at_ns: int) -> None:
        for key, count in frame.opened:
            self.opens.join(key, (frame.origin, frame.epoch), count, at_ns)
            self._open_news(key, at_ns)

    def _other(self, frame: Frame, at_ns: int) -> None:
        if isinstance(frame, Close):
            self._close(frame.subject, at_ns)

    def _close(self, subject: Subject, at_ns: int) -> None:
        for key in self.opens.close(subject):
            self._open_changed(key, at_ns)

    # partitions

    def _watch_links(self, at_ns: int) -> None:
        silence_ns = 2 * self.options.flush_ns
        gone = {peer for peer, link in self._links.items() if link.silent_ns(at_ns) > silence_ns}
        if gone - self._away:
            self._set_away(self._away | gone, at_ns)
        if self.options.on_partition is OnPartition.SHARE:
            for peer, link in self._links.items():
                if link.quiet_ns(at_ns) >= self.options.flush_ns:
                    self._put(peer, *link.beat(at_ns))

    def _hello(self, link: Link, frame: Hello, at_ns: int) -> None:
        super()._hello(link, frame, at_ns)
        if frame.origin in self._away and frame.epoch == link.peer_epoch:
            self._set_away(self._away - {frame.origin}, at_ns)

    def _acknowledged(self, peer: int, ack: Ack | None, at_ns: int) -> None:
        super()._acknowledged(peer, ack, at_ns)
        if peer in self._away and self._links[peer].silent_ns(at_ns) == 0:
            self._set_away(self._away - {peer}, at_ns)

    def remove_peer(self, peer: int, at_ns: int) -> None:
        super().remove_peer(peer, at_ns)
        self._set_away(self._away - {peer}, at_ns)

    def _set_away(self, away: set[int], at_ns: int) -> None:
        """Under ``SHARE`` a part's bucket shrinks with what it cannot reach. What comes back counts as used up."""
        self._away = away
        if self.options.on_partition is not OnPartition.SHARE:
            return
        before = list(self.levels.bursts)
        self.levels.set_part(self.nodes - len(away), self.nodes, at_ns)
        if not self.settled:
            return  # everything counts as used up already
        grown = [max(0, now - was) for now, was in zip(self.levels.bursts, before, strict=True)]
        self.levels.add_to_all(grown, at_ns)


def _waited(wait_ns: int | None) -> Verdict:
    return ALLOWED if wait_ns == 0 else Verdict(allowed=False, wait_ns=wait_ns)
