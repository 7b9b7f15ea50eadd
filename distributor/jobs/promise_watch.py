"""Notes in a topic's decision log when its promise breaks, and when it is kept again."""

from __future__ import annotations

import trio

from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from distributor.verdict.kept import Verdict
from srtm.concurrency.portions import in_portions
from srtm.errors import Unavailable
from srtm.log import Log

PERIOD_S = 5.0
_APART_S = 60.0  # notes of one topic: a figure at the border of its promise would fill the log


class PromiseWatch:
    """``run`` it once. A new leader says again what is broken then."""

    def __init__(self, registry: Registry, syncing: SyncService) -> None:
        self._registry = registry
        self._syncing = syncing
        self._told: dict[str, tuple[Verdict, float]] = {}  # {topic: what its log says, trio time of the note}
        self._log = Log("distributor")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._look()
            await trio.sleep(PERIOD_S)

    async def _look(self) -> None:
        topics = self._registry.managed()
        self._told = {topic.name: self._told[topic.name] for topic in topics if topic.name in self._told}
        for name, promise in await in_portions((one.name, self._syncing.sessions.promise(one)) for one in topics):
            now_s = trio.current_time()
            before, noted_s = self._told.get(name, ("kept", now_s - _APART_S))
            if promise.verdict in ("unknown", before) or now_s < noted_s + _APART_S:
                continue
            try:
                await self._registry.note(name, f"promise {promise.verdict}: {promise.reason}")
            except Unavailable as error:  # of the store: the next look tries again
                self._log.warning("a promise that turned is not noted", topic=name, reason=error)
                continue
            self._told[name] = (promise.verdict, now_s)
