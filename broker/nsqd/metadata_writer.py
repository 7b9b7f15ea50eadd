"""The list of topics, channels and pauses on disk (``metadata``): written a moment after every change, before a pause
is answered, and at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from broker import snapshot
from broker.nsqd import metadata
from broker.runtime.health import Health
from broker.runtime.wakeup import Wakeup
from srtm.log import Log

if TYPE_CHECKING:
    from srtm._native import Engine

_RETRY_S = 1.0
# Of the time that a look at all topics took: thousands of topics that come one by one cost a twentieth of a core.
_REST_PER_LOOK = 20.0


class TopicList:
    """``version``: of nsqd, which the file names."""

    def __init__(self, engine: Engine, directory: Path, version: str, health: Health, log: Log) -> None:
        self._engine = engine
        self._directory = directory
        self._version = version
        self._health = health
        self._log = log
        self._changed = Wakeup()
        self._asked, self._written = trio.Event(), trio.Event()  # of the next list, by who waits for it

    def note_change(self) -> None:
        self._changed.set()

    async def write(self) -> None:
        """Returns when what is so now is on disk. Where the disk refuses it, the health says so, as of any change."""
        self._asked.set()
        self._changed.set()
        await self._written.wait()

    async def keep(self) -> None:
        """Until cancelled. A disk that refuses shows in the health until it takes the list."""
        while True:
            await self._changed.wait()
            written = self._written
            self._asked, self._written = trio.Event(), trio.Event()
            began_s = trio.current_time()
            now = self._now()
            rest_s = _REST_PER_LOOK * (trio.current_time() - began_s)
            try:
                await trio.to_thread.run_sync(metadata.save, self._directory, now)
            except OSError as error:
                self._health.note("topics", str(error))
                self._log.failure("the list of topics was not written", reason=error)
                self._changed.set()
                rest_s = _RETRY_S
            else:
                self._health.note("topics", None)
            written.set()
            with trio.move_on_after(rest_s):
                await self._asked.wait()

    def save_at_end(self) -> None:
        """What changed in the last moment may not have been written yet; and what would come after it is not made."""
        try:
            self._engine.finish_list()
            metadata.save(self._directory, self._now())
        except (OSError, RuntimeError) as error:  # the disk refuses, or the engine is what has failed
            self._log.failure("the list of topics was not written", reason=error)

    def _now(self) -> metadata.Metadata:
        return metadata.from_snapshot(snapshot.take(self._engine), self._version)
