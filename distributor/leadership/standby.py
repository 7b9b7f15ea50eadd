"""A distributor that stands by: it answers reads from the store and refers everything else to the leader.

It does not have what is only observed: reports, and which brokers are alive.
"""

from __future__ import annotations

import trio
from starlette.requests import Request

from distributor.api.app import make_app
from distributor.config import DistributorConfig
from distributor.registry.registry import Registry
from distributor.registry.state import ClusterState
from distributor.storage import cluster_rows
from distributor.storage.cluster_rows import Stored
from distributor.storage.store import Store
from distributor.sync.service import SyncService
from srtm.errors import NotLeader

_READS = ("GET", "HEAD")


class Standby:
    """``app``: its HTTP application. ``stored``: what it read last; None: nothing that may be relied on."""

    def __init__(self, store: Store, config: DistributorConfig) -> None:
        self.stored: Stored | None = None
        self._store = store
        self._state = ClusterState(store, config)
        self._state.leads = False
        self._reading = trio.Lock()
        registry = Registry(self._state)
        self.app = make_app(registry, SyncService(registry), self._admit)

    async def refresh(self) -> None:
        """Read what has changed. Raises Unavailable.

        After that everything is read again: a store that was away may have been restored from an older copy.
        """
        async with self._reading:
            known, self.stored = self.stored, None
            edition = await self._store.edition()
            if known is None or known.edition != edition:
                known = await cluster_rows.load(self._store, known)
                self._state.reset(known)
                self._state.leader_url = await self._store.leader_url()
            self.stored = known

    def forget(self) -> None:
        """Read everything again the next time."""
        self.stored = None

    async def _admit(self, request: Request) -> None:
        """Raises NotLeader, Unavailable."""
        await self.refresh()
        if request.method not in _READS:
            raise NotLeader(self._state.leader_url)
