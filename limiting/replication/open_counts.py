"""Open requests as replicated data: of each subject one slot for each node, which that node alone writes.

A node tells how many requests are open that it let in. The last version of a slot wins, so what is told may come in any
order, and any number of times. An incarnation of a node is a writer of its own: it does not know what an earlier one
let in, which nobody can release any more.

No request is open for longer than ``expires``. So what was heard of a writer that long ago is over, whether the node
lives or not, and nothing has to be renewed.

Slots are bounded. Beyond the bound new subjects are counted in 1,024 shared places, by hash. There a writer counts with
the most that it told of any of them, until it has told of none for ``expires``. So a flood of new subjects may refuse
too early, and lets nothing through. On the wire a subject has its own name always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, merge
from itertools import takewhile
from typing import NamedTuple

from limiting.replication.levels import place_of
from limiting.replication.refill import Key, Subject
from srtm.contracts.policy import Concurrency
from srtm.token_bucket.bucket import TOKEN

Writer = tuple[int, int]  # a node and its epoch


class OpenCount(NamedTuple):
    """How many tokens are open at a writer. The larger tuple is the later one."""

    version: int
    open: int


class _Own(NamedTuple):
    subject: Subject
    cost: int
    began_ns: int


class _Slot:
    """``own``: requests that this node let in, by name, the oldest first; ``used``: their tokens; ``told``: as many of
    them as peers know; ``heard``: of other writers, and when."""

    __slots__ = ("heard", "is_due", "own", "told", "used")

    def __init__(self) -> None:
        self.own: dict[int, _Own] = {}
        self.used = 0
        self.told = 0
        self.heard: dict[Writer, tuple[OpenCount, int]] = {}
        self.is_due = False  # ``OpenCounts._due`` has it

    def end(self, name: int) -> None:
        self.used -= self.own.pop(name).cost

    def of(self, subject: Subject) -> int:
        """Own tokens of one subject in a shared place."""
        return sum(own.cost for own in self.own.values() if own.subject == subject)


class OpenLook:
    """What is left of a quota at ``at_ns``. ``left`` and ``burst``: units; below 0 more is open than the quota.
    ``slot``: with own requests; ``others``: for how long what else is open still counts, ns, and its tokens."""

    def __init__(self, rule: Concurrency, at_ns: int, slot: _Slot | None, others: list[tuple[int, int]]) -> None:
        self._quota, self._others = rule.quota, sorted(others)
        self._own = {} if slot is None else slot.own
        self._lasts_ns = rule.expires_ns - at_ns  # of a request that began at 0
        over = takewhile(lambda own: own.began_ns + self._lasts_ns <= 0, self._own.values())
        used = 0 if slot is None else slot.used - sum(own.cost for own in over)
        self._used = used + sum(tokens for _, tokens in others)
        self.left, self.burst = (rule.quota - self._used) * TOKEN, rule.quota * TOKEN

    def wait_ns(self, units: int) -> int | None:
        """How long until ``units`` are left, if nothing is released. None: never."""
        most = self._quota - -(-units // TOKEN)
        if most < 0:
            return None
        used = self._used
        own = ((each.began_ns + self._lasts_ns, each.cost) for each in self._own.values())
        for ns, tokens in merge((each for each in own if each[0] > 0), self._others) if used > most else ():
            used -= tokens
            if used <= most:
                return ns
        return 0

    def reset_ns(self) -> int:
        """How long until everything is left, if nothing is released."""
        last = next(reversed(self._own.values()), None)
        own_ns = 0 if last is None else last.began_ns + self._lasts_ns
        return max(0, own_ns, *(ns for ns, tokens in self._others if tokens))


class OpenCounts:
    """The open requests of all subjects at one node, ``writer``. ``rules``: by the number of their policy in the
    contract. ``assumed``: of every subject a whole quota counts as begun at ``at_ns``. ``most``: slots, without those
    of shared places."""

    def __init__(self, writer: Writer, rules: Mapping[int, Concurrency], at_ns: int, *, assumed: bool) -> None:
        self.rules = dict(rules)
        self.most = 1 << 62
        self._writer = writer
        self._slots: dict[Key, _Slot] = {}
        self._assumed_ns = at_ns if assumed else None
        self._version = 0  # one for all slots: places need no memory of each subject's
        self._due: list[tuple[int, Key]] = []  # a heap: when a slot's oldest own request may be over

    def __len__(self) -> int:
        return len(self._slots)

    def has(self, key: Key) -> bool:
        """A subject has a slot of its own."""
        return key in self._slots

    def look(self, subject: Subject, number: int, at_ns: int) -> OpenLook:
        """What is left of policy ``number``. It changes nothing."""
        rule, key = self.rules[number], (subject, number)
        slot = heard = self._slots.get(key)
        if slot is None:
            heard = self._slots.get(place_of(key))
            slot = heard if self.is_shared(key) else None
        others = []
        if self._assumed_ns is not None:
            others.append((self._assumed_ns + rule.expires_ns - at_ns, rule.quota))
        if heard is not None:
            others += [(since_ns + rule.expires_ns - at_ns, count.open) for count, since_ns in heard.heard.values()]
        return OpenLook(rule, at_ns, slot, [each for each in others if each[0] > 0])

    def is_shared(self, key: Key) -> bool:
        """Whether a subject is counted in a shared place. There it stays while its requests there are open."""
        if key in self._slots:
            return False
        place = self._slots.get(place_of(key))
        return len(self._slots) >= self.most or (place is not None and place.of(key[0]) > 0)

    # own requests

    def take(self, subject: Subject, number: int, cost: int, name: int, at_ns: int) -> None:
        """Open a request. ``name``: no other one of this node has it."""
        key = self._kept((subject, number))
        slot = self._at(key)
        slot.own[name] = _Own(subject, cost, at_ns)
        slot.used += cost
        self._is_due(key, slot)

    def release(self, subject: Subject, name: int, at_ns: int) -> list[Key]:
        """End a request, of all policies. Return what has changed: nothing where it is not open."""
        changed = []
        for number, slot in self._slots_of(subject):
            own = slot.own.get(name)
            if own is None or own.subject != subject:
                continue
            if at_ns - own.began_ns < self.rules[number].expires_ns:
                slot.end(name)
                changed.append((subject, number))
        return changed

    def close(self, subject: Subject) -> list[Key]:
        """End all own requests of a subject. Return what has changed."""
        changed = []
        for number, slot in self._slots_of(subject):
            names = [name for name, own in slot.own.items() if own.subject == subject]
            for name in names:
                slot.end(name)
            if names:
                changed.append((subject, number))
        return changed

    def _slots_of(self, subject: Subject) -> Iterator[tuple[int, _Slot]]:
        for number in self.rules:
            slot = self._slots.get(self._kept((subject, number)))
            if slot is not None:
                yield number, slot

    def expire(self, at_ns: int) -> list[Key]:
        """End own requests that nobody has released in time. Return what has changed."""
        changed: dict[Key, None] = {}
        while self._due and self._due[0][0] <= at_ns:
            _, key = heappop(self._due)
            slot, expires_ns = self._slots[key], self.rules[key[1]].expires_ns
            slot.is_due = False
            for name, own in list(slot.own.items()):
                if at_ns - own.began_ns < expires_ns:
                    break
                slot.end(name)
                changed[own.subject, key[1]] = None
            self._is_due(key, slot)
        return list(changed)

    def _is_due(self, key: Key, slot: _Slot) -> None:
        if slot.own and not slot.is_due:
            slot.is_due = True
            oldest = next(iter(slot.own.values()))
            heappush(self._due, (oldest.began_ns + self.rules[key[1]].expires_ns, key))

    # what nodes tell each other

    def untold(self, key: Key) -> int:
        """How many more are open here than peers know of a subject with a slot; below 0: fewer."""
        slot = self._slots.get(key)
        return 0 if slot is None else slot.used - slot.told

    def news(self, key: Key) -> OpenCount:
        """What to tell of a subject: from now on it counts as told."""
        slot = self._slots.get(key)
        if slot is not None:
            slot.told = slot.used
        return self._own_count(key)

    def _own_count(self, key: Key) -> OpenCount:
        self._version += 1
        slot, place = self._slots.get(key), self._slots.get(place_of(key))
        if slot is not None:
            return OpenCount(self._version, slot.used)
        return OpenCount(self._version, 0 if place is None else place.of(key[0]))

    def join(self, key: Key, writer: Writer, count: OpenCount, at_ns: int) -> None:
        """Take in what a writer told. The last version wins; in a shared place the most that any subject has."""
        if writer == self._writer:
            return
        kept = self._kept(key)
        slot = self._at(kept)
        before = slot.heard.get(writer)
        if kept == place_of(key):
            known = before[0] if before is not None else OpenCount(0, 0)
            count = OpenCount(max(known.version, count.version), max(known.open, count.open))
        elif before is not None and count <= before[0]:
            return
        slot.heard[writer] = count, at_ns

    def _kept(self, key: Key) -> Key:
        return place_of(key) if self.is_shared(key) else key

    def _at(self, key: Key) -> _Slot:
        """Made where there is none. A subject that was in a shared place begins with what was heard there."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = _Slot()
            place = self._slots.get(place_of(key))
            slot.heard = dict(place.heard) if place else {}
        return slot

    # all subjects

    def assumes(self, at_ns: int) -> bool:
        """Some of what counts as open of every subject is not over."""
        since_ns = self._assumed_ns
        return since_ns is not None and any(at_ns - since_ns < rule.expires_ns for rule in self.rules.values())

    def snapshot(self, at_ns: int) -> Iterator[tuple[Key, Writer, OpenCount]]:
        """What is open, by subject and writer."""
        for key, slot in self._slots.items():
            expires_ns = self.rules[key[1]].expires_ns
            for writer, (count, since_ns) in slot.heard.items():
                if count.open and at_ns - since_ns < expires_ns:
                    yield key, writer, count
            for subject in {own.subject for own in slot.own.values()}:
                yield (subject, key[1]), self._writer, self._own_count((subject, key[1]))

    def begin(self, theirs: Iterable[tuple[Key, Writer, OpenCount]], at_ns: int) -> None:
        """Join a peer's snapshot with what was heard since the start. Nothing is assumed any more."""
        for key, writer, count in theirs:
            self.join(key, writer, count, at_ns)
        for key, slot in self._slots.items():
            place = self._slots.get(place_of(key))
            slot.heard = {**place.heard, **slot.heard} if place is not None else slot.heard
        self._assumed_ns = None

    def change(self, rules: Mapping[int, Concurrency]) -> None:
        """Decide by changed policies, as many as before."""
        self.rules = dict(rules)
        self._due = []
        for key, slot in self._slots.items():
            slot.is_due = bool(slot.own)
            if slot.own:
                oldest = next(iter(slot.own.values()))
                self._due.append((oldest.began_ns + self.rules[key[1]].expires_ns, key))
        heapify(self._due)

    def forget(self, at_ns: int) -> None:
        """Drop what is over, and the subjects of which nothing is open or to be told."""
        for key, slot in list(self._slots.items()):
            expires_ns = self.rules[key[1]].expires_ns
            for writer, (count, since_ns) in list(slot.heard.items()):
                if count.open == 0 or at_ns - since_ns >= expires_ns:
                    del slot.heard[writer]
            if not slot.own and not slot.heard and (slot.told == 0 or key == place_of(key)):
                del self._slots[key]
        self._due = [each for each in self._due if each[1] in self._slots]
        heapify(self._due)
