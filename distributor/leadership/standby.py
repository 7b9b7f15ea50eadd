"""A distributor that stands by: answers reads from the store, fresh, and sends everything else to the leader.

What is only observed (reports, who is heard) a standby does not have.
"""

from __future__ import annotations

import trio
from starlette.requests import Request

from distributor.api.app import make_app
from distributor.config import DistributorConfig
from distributor.registry.registry import Registry
from distributor.storage import cluster_rows as records
from distributor.storage.cluster_rows import Stored
from distributor.storage.store import Store
from distributor.sync.service import SyncService
from srtm.errors import NotLeader

_READS = ("GET", "HEAD")


class Standby:
    """``app`` is its HTTP; ``stored`` what it read last, None: nothing that may be relied on."""

    def __init__(self, store: Store, config: DistributorConfig) -> None:
        self.stored: Stored | None = None
        self._store = store
        self._registry = Registry(store, config)
        self._registry.leads = False
        self._reading = trio.Lock()
        self.app = make_app(self._registry, SyncService(self._registry), self._admit)

    async def refresh(self) -> None:
        """Read what has changed. Raises Unavailable; then everything is read again the next time, for a store that
        was away may have been put back from an older copy."""
        async with self._reading:
            known, self.stored = self.stored, None
            edition = await self._store.edition()
            if known is None or known.edition != edition:
                known = await records.load(self._store, known)
                self._registry.show(known)
                self._registry.leader_url = await self._store.leader_url()
            self.stored = known

    def forget(self) -> None:
        """What was read last was long ago."""
        self.stored = None

    async def _admit(self, request: Request) -> None:
        """Raises NotLeader, Unavailable."""
        await self.refresh()
        if request.method not in _READS:
            raise NotLeader(self._registry.leader_url)
