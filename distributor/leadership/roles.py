"""A distributor among several: stands by, asks for the lead, leads while it lasts, stands by again."""

from __future__ import annotations

from collections.abc import Callable

import trio

from distributor.config import DistributorConfig
from distributor.leadership.election import ASK_S, Election, Term
from distributor.leadership.front_door import Front
from distributor.leadership.leader import leading
from distributor.leadership.standby import Standby
from distributor.registry.registry import Registry
from distributor.registry.state import ClusterState
from distributor.storage import cluster_rows
from distributor.storage.store import Store
from srtm.concurrency.background import background_nursery
from srtm.concurrency.outage import Outage
from srtm.errors import Unavailable
from srtm.log import Log


class Turns:
    """``front`` is what HTTP reaches. ``url``: where the others are told to ask while this one leads."""

    def __init__(self, store: Store, config: DistributorConfig, election: Election, url: str, log: Log) -> None:
        self.decided = trio.Event()  # it leads, or stands by for another one
        self._store = store
        self._config = config
        self._election = election
        self._url = url
        self._log = log
        self._standby = Standby(store, config)
        self.front = Front(self._standby.app)
        self._outage = Outage()

    async def run(self) -> None:
        """Until cancelled. A store that is away is waited for."""
        try:
            while True:
                try:
                    await self._take_turn()
                except Unavailable as error:
                    if self._outage.is_news(str(error)):
                        self._log.warning("stands by without the store", reason=error)
                else:
                    self._outage.ends()
                await trio.sleep(ASK_S)
        finally:
            await self._election.aclose()

    async def _take_turn(self) -> None:
        term = await self._election.ask()
        if term is not None:
            await self._lead(term)
            return
        # Not only when asked: what is read already does not delay a takeover.
        await self._standby.refresh()
        if not self.decided.is_set():
            self._log.info("stands by", leader=await self._store.leader_url())
            self.decided.set()

    async def _lead(self, term: Term) -> None:
        """Until the term is over."""
        try:
            async with background_nursery() as nursery:
                nursery.start_soon(self._serve_term, term, nursery.cancel_scope.cancel)
                await term.hold()
            self._log.warning("does not lead any more", reason=term.lost_because)
        finally:
            self._store.follow()
            self._standby.forget()

    async def _serve_term(self, term: Term, end: Callable[[], None]) -> None:
        """The term begins with what is in the store; it ends when nobody knows what is there."""
        if not term.is_sure:
            end()
            return
        await self._store.lead(self._url)
        state = ClusterState(self._store, self._config)
        state.reset(await cluster_rows.load(self._store, self._standby.stored))
        registry = Registry(state)
        app, tasks = leading(registry, self._url)
        with self.front.leading(app, lambda: term.is_sure):
            self._log.info("leads", topics=len(registry.managed()), brokers=len(registry.brokers))
            self.decided.set()
            async with background_nursery() as nursery:
                for task in (registry.run, *tasks):
                    nursery.start_soon(task)
                await self._store.doubtful.wait()
        term.lost_because = "the store is not certain to be as this one left it, and is read again"
        end()
