"""What a broker that is killed owes, by channel: what it has acknowledged or written, and nobody has finished."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import trio

CHANNELS = ("a", "b")
_PROGRESS_S = 30.0  # without a message acknowledged or settled for so long: it hangs


def _by_channel() -> dict[str, set[bytes]]:
    return {channel: set() for channel in CHANNELS}


@dataclass
class Book:
    """Who got what: bodies by channel.

    ``delivered``: in earlier lives. ``kept``: owed when their broker was killed, and on disk. ``gone``: owed then, and
    in memory alone. ``copies``: how often the last kill left each on disk, less how often it came since.
    """

    acknowledged: set[bytes] = field(default_factory=set)
    settled: dict[str, set[bytes]] = field(default_factory=_by_channel)
    owed: dict[str, set[bytes]] = field(default_factory=_by_channel)
    kept: dict[str, set[bytes]] = field(default_factory=_by_channel)
    gone: dict[str, set[bytes]] = field(default_factory=_by_channel)
    delivered: dict[str, set[bytes]] = field(default_factory=_by_channel)
    copies: dict[str, Counter[bytes]] = field(default_factory=lambda: {channel: Counter() for channel in CHANNELS})
    redelivered: Counter[str] = field(default_factory=Counter)
    damages: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    changed: trio.Event = field(default_factory=trio.Event)

    def acknowledge(self, bodies: list[bytes]) -> None:
        self.acknowledged.update(bodies)
        for channel, owed in self.owed.items():
            owed.update(body for body in bodies if body not in self.settled[channel])
        self._note_change()

    def settle(self, channel: str, body: bytes) -> None:
        self.settled[channel].add(body)
        self.owed[channel].discard(body)
        self._note_change()

    def note_kill(self, life: int, channel: str, copies: Counter[bytes], memory: int) -> None:
        """``copies``: how often each message is on disk. From now on all is owed that is there, answered for or not.
        What is owed and not there was in memory: more than ``memory`` messages cannot have been."""
        self.copies[channel] = copies
        on_disk = set(copies)
        self.owed[channel] |= on_disk - self.settled[channel]
        gone = self.owed[channel] - on_disk
        self.kept[channel] |= self.owed[channel] & on_disk
        if len(gone) > memory:
            self.faults.append(f"life {life}: {len(gone)} messages owed to channel {channel} were not on disk")
            return
        self.owed[channel] -= gone
        self.gone[channel] |= gone

    def _note_change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def wait_until_acknowledged(self, count: int) -> None:
        while len(self.acknowledged) < count:
            with trio.fail_after(_PROGRESS_S):
                await self.changed.wait()

    async def wait_until_settled(self) -> None:
        """Raises trio.TooSlowError where nothing comes any more."""
        while any(self.owed.values()):
            with trio.fail_after(_PROGRESS_S):
                await self.changed.wait()

    @property
    def lost(self) -> int:
        return sum(map(len, self.owed.values()))

    def verdict(self, kills: int) -> str:
        kept, gone = (sum(map(len, bodies.values())) for bodies in (self.kept, self.gone))
        return (
            f"crash: {kills} kills, {len(self.acknowledged)} messages acknowledged; of what two channels were owed"
            f" then, {kept} on disk and {gone} in memory alone; {self.lost} lost, {self.redelivered.total()} delivered"
            f" again, {len(self.damages)} torn ends cut, {len(self.faults)} faults:"
            f" {'FAILED' if self.lost or self.faults else 'passed'}"
        )
