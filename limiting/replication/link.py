"""One link to one peer: the increments of each side are applied exactly once, in order (law L1).

The receiver applies a frame only if its (epoch, seq) is the next. The sender repeats what is not acknowledged. So
duplicates, losses and disorder on the way change nothing but the time it takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from limiting.replication.messages import Ack, Entry, Increments, OpenEntry
from limiting.replication.open_counts import OpenCount
from limiting.replication.refill import Key, SliceKey
from srtm.errors import PeerError

UNKNOWN = 0  # no incarnation has this epoch
WINDOW = 64  # frames on their way at most: what is said meanwhile is added up behind them


class Link:
    """``name`` and ``epoch``: of this node. ``peer_epoch``: UNKNOWN until the peer has said hello."""

    def __init__(self, name: int, epoch: int, peer_epoch: int) -> None:
        self._name = name
        self._epoch = epoch
        self.peer_epoch = peer_epoch
        self._waiting: dict[Key | SliceKey, int] = {}  # units or tokens for the next frame
        self._opened: dict[Key, OpenCount] = {}  # the same of open requests
        self._outstanding: deque[Increments] = deque()
        self._next_seq = 1
        self._applied = 0
        self._held: Ack | None = None
        self._moved_ns = 0  # since then the oldest frame on its way waits
        self._repeated_ns = 0

    @property
    def applied(self) -> int:
        """The number of the latest frame of the peer that counts."""
        return self._applied

    @property
    def acked(self) -> int:
        """The number of frames of this link that the peer has acknowledged."""
        return self._next_seq - 1 - len(self._outstanding)

    @property
    def idle(self) -> bool:
        """Nothing is on its way, or waits for it."""
        return not self._outstanding and not self._waits

    @property
    def entries(self) -> int:
        """How many entries are on their way, or wait for it."""
        on_their_way = sum(len(frame.entries) + len(frame.opened) for frame in self._outstanding)
        return len(self._waiting) + len(self._opened) + on_their_way

    @property
    def sent(self) -> int:
        """The number of the frame after which everything said so far has been said."""
        return self._next_seq - 1 + self._waits

    @property
    def _waits(self) -> bool:
        return bool(self._waiting or self._opened)

    def send(
        self, entries: Iterable[Entry], at_ns: int, cap: int | None = None, opened: Iterable[OpenEntry] = ()
    ) -> list[Increments]:
        """Add ``entries`` and what is ``opened``, and return the frames that may go now. ``cap``: units that wait at
        most, for each key."""
        for key, units in entries:
            waits = self._waiting.get(key, 0) + units
            self._waiting[key] = waits if cap is None else min(cap, waits)
        self._open(opened)
        return self._framed(at_ns)

    def _open(self, opened: Iterable[OpenEntry]) -> None:
        """The last version is told."""
        for key, count in opened:
            self._opened[key] = max(count, self._opened.get(key, count))

    def forget(self, is_over: Callable[[SliceKey], bool]) -> None:
        """Tell no more of slices that are over, where it was not said yet."""
        self._waiting = {key: count for key, count in self._waiting.items() if len(key) == 2 or not is_over(key)}

    def forget_open(self, is_over: Callable[[Key], bool]) -> None:
        """The same of open requests."""
        self._opened = {key: count for key, count in self._opened.items() if not is_over(key)}

    def beat(self, at_ns: int) -> list[Increments]:
        """A frame that says nothing, where nothing is on its way."""
        return self._frame((), (), at_ns) if self.idle and self.peer_epoch != UNKNOWN else []

    def silent_ns(self, at_ns: int) -> int:
        """How long the peer has owed an acknowledgement, ns."""
        return at_ns - self._moved_ns if self._outstanding else 0

    def quiet_ns(self, at_ns: int) -> int:
        """How long nothing was said or confirmed, ns."""
        return at_ns - self._moved_ns

    def repeat(self, after_ns: int, at_ns: int) -> list[Increments]:
        """All frames that are not acknowledged, every ``after_ns``."""
        if not self._outstanding or at_ns - max(self._moved_ns, self._repeated_ns) < after_ns:
            return []
        self._repeated_ns = at_ns
        return list(self._outstanding)

    def accept(self, frame: Increments) -> tuple[Entry, ...] | None:
        """What to apply of ``frame``. None: it is not for this incarnation, and is not acknowledged."""
        if frame.epoch != self.peer_epoch or frame.to_epoch != self._epoch:
            return None
        if frame.seq != self._applied + 1:
            return ()
        self._applied += 1
        return frame.entries

    def ack(self) -> Ack:
        """What to answer a frame with."""
        return Ack(self._name, self._epoch, self.peer_epoch, self._applied, self.sent)

    def take_ack(self, ack: Ack | None, at_ns: int) -> tuple[bool, list[Increments]]:
        """Whether the peer has confirmed anything new, and the frames that may go now.

        ``ack``: None where only frames came, after which one that was held may count. Raises PeerError for a frame that
        was never sent.
        """
        if ack is not None and ack.epoch == self.peer_epoch and ack.to_epoch == self._epoch:
            if ack.seq >= self._next_seq:
                raise PeerError(f"node {ack.origin} acknowledged frame {ack.seq} of {self._next_seq - 1}")
            if self._held is None or ack.seq >= self._held.seq:
                self._held = ack
        held = self._held
        if held is None or held.after > self._applied:
            return False, []
        self._held = None
        before = len(self._outstanding)
        while self._outstanding and self._outstanding[0].seq <= held.seq:
            self._outstanding.popleft()
        if len(self._outstanding) < before:
            self._moved_ns = at_ns
        return len(self._outstanding) < before, self._framed(at_ns)

    def restart(self, peer_epoch: int, at_ns: int) -> list[Increments]:
        """The peer begins anew: what it did not acknowledge is said again, in new frames."""
        for frame in self._outstanding:
            for key, units in frame.entries:
                self._waiting[key] = self._waiting.get(key, 0) + units
            self._open(frame.opened)
        self._outstanding.clear()
        self.peer_epoch, self._next_seq, self._applied, self._held = peer_epoch, 1, 0, None
        return self._framed(at_ns)

    def _framed(self, at_ns: int) -> list[Increments]:
        if self.peer_epoch == UNKNOWN or not self._waits or len(self._outstanding) >= WINDOW:
            return []
        entries, opened = tuple(self._waiting.items()), tuple(self._opened.items())
        self._waiting, self._opened = {}, {}
        return self._frame(entries, opened, at_ns)

    def _frame(self, entries: tuple[Entry, ...], opened: tuple[OpenEntry, ...], at_ns: int) -> list[Increments]:
        frame = Increments(self._name, self._epoch, self.peer_epoch, self._next_seq, entries, opened)
        if not self._outstanding:
            self._moved_ns = at_ns
        self._outstanding.append(frame)
        self._next_seq += 1
        return [frame]
