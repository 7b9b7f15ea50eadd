"""Writes the list of topics, channels, pauses and limits (``metadata``): after every change, before a pause or a limit
is answered, and at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from broker import snapshot
from broker.nsqd import metadata
from broker.nsqd.kept_buckets import KeptBuckets
from broker.runtime.health import Health
from broker.runtime.wakeup import Wakeup
from srtm.log import Log

if TYPE_CHECKING:
    from srtm._native import Engine

_RETRY_S = 1.0
# Pause after a write, as a multiple of the time that the snapshot took: thousands of topics that are created one by one
# cost a twentieth of a core.
_PAUSE_FACTOR = 20.0


class TopicListWriter:
    """``version`` is the nsqd version that the file names."""

    def __init__(self, engine: Engine, directory: Path, version: str, health: Health, log: Log) -> None:
        self._engine = engine
        self._directory = directory
        self._version = version
        self._health = health
        self._log = log
        self._changed = Wakeup()
        self.buckets = KeptBuckets(engine, self.note_change)
        self._asked, self._written = trio.Event(), trio.Event()  # of the next list: wanted by a caller, and on disk

    def note_change(self) -> None:
        self._changed.set()

    async def write(self) -> None:
        """Returns when the present list is on disk, or when the disk has refused it; then the health says so."""
        self._asked.set()
        self._changed.set()
        await self._written.wait()

    async def keep(self) -> None:
        """Write until cancelled. A disk that refuses shows in the health until it takes the list."""
        while True:
            await self._changed.wait()
            written = self._written
            self._asked, self._written = trio.Event(), trio.Event()
            began_s = trio.current_time()
            now = self._now()
            pause_s = _PAUSE_FACTOR * (trio.current_time() - began_s)
            try:
                await trio.to_thread.run_sync(metadata.save, self._directory, now)
            except OSError as error:
                if self._health.note("topics", str(error)):
                    self._log.failure("the list of topics was not written", reason=error)
                self._changed.set()
                pause_s = _RETRY_S
            else:
                if self._health.note("topics", None):
                    self._log.info("the list of topics is written again")
            written.set()
            with trio.move_on_after(pause_s):
                await self._asked.wait()

    def save_at_end(self) -> None:
        """Write the last changes. The engine makes no later ones."""
        try:
            self._engine.finish_list()
            metadata.save(self._directory, self._now())
        except (OSError, RuntimeError) as error:  # the disk refuses, or the engine has failed
            self._log.failure("the list of topics was not written", reason=error)

    def _now(self) -> metadata.Metadata:
        return metadata.from_snapshot(snapshot.take(self._engine), self._version, self.buckets.all)
