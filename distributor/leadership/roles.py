"""The roles of one of several distributors: it stands by, asks for the lead, leads while its term lasts, stands by."""

from __future__ import annotations

from collections.abc import Callable

import trio

from distributor.config import DistributorConfig
from distributor.leadership.election import ASK_S, Election, Term
from distributor.leadership.front_door import FrontDoor
from distributor.leadership.leader import leader_app
from distributor.leadership.standby import Standby
from distributor.registry.registry import Registry
from distributor.registry.state import ClusterState
from distributor.storage import cluster_rows
from distributor.storage.store import Store
from srtm.concurrency.background import background_nursery
from srtm.concurrency.outage import Outage
from srtm.errors import Unavailable
from srtm.log import Log


class Roles:
    """``front_door`` is the HTTP application. ``url``: of this distributor, for the others while it leads."""

    def __init__(self, store: Store, config: DistributorConfig, election: Election, url: str, log: Log) -> None:
        self.decided = trio.Event()  # it leads, or stands by for another one
        self._store = store
        self._config = config
        self._election = election
        self._url = url
        self._log = log
        self._standby = Standby(store, config)
        self.front_door = FrontDoor(self._standby.app)
        self._outage = Outage()

    async def run(self) -> None:
        """Until cancelled. Waits for a store that is away."""
        try:
            while True:
                try:
                    await self._run_role()
                except Unavailable as error:
                    if self._outage.is_news(str(error)):
                        self._log.warning("stands by without the store", reason=error)
                else:
                    self._outage.ends()
                await trio.sleep(ASK_S)
        finally:
            await self._election.aclose()

    async def _run_role(self) -> None:
        term = await self._election.ask()
        if term is not None:
            await self._lead(term)
            return
        # Read ahead: what is known already does not delay a takeover.
        await self._standby.refresh()
        if not self.decided.is_set():
            self._log.info("stands by", leader=await self._store.leader_url())
            self.decided.set()

    async def _lead(self, term: Term) -> None:
        """Lead until the term is over."""
        try:
            async with background_nursery() as nursery:
                nursery.start_soon(self._serve_term, term, nursery.cancel_scope.cancel)
                await term.hold()
            self._log.warning("does not lead any more", reason=term.lost_because)
        finally:
            self._store.follow()
            self._standby.forget()

    async def _serve_term(self, term: Term, end: Callable[[], None]) -> None:
        """Serve what is in the store, until the term is over or it is not certain what the store holds."""
        if not term.is_sure:
            end()
            return
        await self._store.lead(self._url)
        state = ClusterState(self._store, self._config)
        state.reset(await cluster_rows.load(self._store, self._standby.stored))
        registry = Registry(state)
        app, tasks = leader_app(registry, self._url)
        with self.front_door.show_leader(app, lambda: term.is_sure):
            self._log.info("leads", topics=len(registry.managed()), brokers=len(registry.brokers))
            self.decided.set()
            async with background_nursery() as nursery:
                for task in (registry.run, *tasks):
                    nursery.start_soon(task)
                await self._store.doubtful.wait()
        term.lost_because = "the store is not certain to be as this one left it, and is read again"
        end()
