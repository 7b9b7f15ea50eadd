"""Keeps on disk what subjects have used of policies with ``persist``, so that it is there after a restart.

Each second it writes what has changed, and all the rest at the end. So a crash forgets what was taken in its last
second. Time goes on while the service is away, by the wall clock. A row was written under one version of its contract;
under another one it says nothing, until the service has written it anew.
"""

from __future__ import annotations

import trio

from limiting.contract_store import ContractStore
from limiting.database import Database, UsedRow
from srtm.concurrency.outage import Outage
from srtm.errors import Unavailable
from srtm.limiting.limiter import Limiter
from srtm.log import Log

_EVERY_S = 1.0
_PORTION = 500  # subjects between two turns of other tasks: some ms


class Usage:
    """What the subjects of ``limiter`` have used, in ``database``. ``contracts``: those in force."""

    def __init__(self, limiter: Limiter, contracts: ContractStore, database: Database, log: Log) -> None:
        self._limiter = limiter
        self._contracts = contracts
        self._database = database
        self._log = log
        self._unsaved: dict[tuple[str, str, bytes], UsedRow] = {}

    def restore(self) -> int:
        """Give all subjects what they had used; return how many. Raises BadInput, Unavailable."""
        versions = {each.contract.key: each.version for each in self._contracts.all()}
        found, gone = 0, []
        for row in self._database.used():
            words = row.words or b""
            is_known = versions.get((row.namespace, row.pattern)) == row.version
            saved = (row.mono_ns, row.wall_ns)
            if is_known and self._limiter.restore(row.namespace, row.pattern, row.subject, words, saved):
                found += 1
            else:
                gone.append(row._replace(words=None))
        self._database.put_used(gone)
        return found

    async def run(self) -> None:
        """Write what changes, until cancelled."""
        outage = Outage()
        while True:
            await trio.sleep(_EVERY_S)
            try:
                is_full = True
                while is_full and (rows := self._news()):
                    is_full = len(rows) >= _PORTION  # else what changes meanwhile is for the next second
                    await trio.to_thread.run_sync(self._database.put_used, rows)
                    self._unsaved.clear()
            except Unavailable as error:
                if outage.is_news(str(error)):
                    self._log.warning("usage_not_kept", error=str(error))
            else:
                if outage.ends():
                    self._log.info("usage_kept_again")

    def save(self) -> None:
        """Write all that has changed, now. Raises Unavailable."""
        while rows := self._news():
            self._database.put_used(rows)
            self._unsaved.clear()

    def _news(self) -> list[UsedRow]:
        """What is to be written: also what could not be written before."""
        now = self._limiter.clocks()
        for used in self._limiter.changed(_PORTION):
            version = self._contracts.get(used.namespace, used.pattern).version
            self._unsaved[used[:3]] = UsedRow(*used[:3], version, used.words, *now)
        return list(self._unsaved.values())
