"""The audit log: who changed what, from where, and what it was before and after."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
import trio
from sqlalchemy import Connection, func, select

from distributor.storage.store import Replace, Store, audit
from srtm.web.audit_entry import AuditEntry

KEPT = 10_000  # entries; some 10 MB: a year of 27 changes a day


class AuditLog:
    """The latest ``KEPT`` changes in the store."""

    def __init__(self, store: Store, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._store = store
        self._wall_ns = wall_ns
        self._writing = trio.Lock()
        self._next: int | None = None  # number; None: not read yet

    async def note(self, entries: Sequence[AuditEntry]) -> None:
        """Store changes of one instant, each with its number, all or none. Raises Unavailable, NotLeader."""
        async with self._writing:
            if self._next is None:
                self._next = await self._store.read(_latest) + 1
            at = self._wall_ns() / 1e9
            numbered = [
                msgspec.structs.replace(entry, number=number, at=at) for number, entry in enumerate(entries, self._next)
            ]
            await self._store.apply([_row(entry) for entry in numbered])
            self._next += len(numbered)

    async def latest(self, most: int, subject: str | None = None) -> list[AuditEntry]:
        """Return at most ``most`` entries, newest first; of one ``subject``, if it is named. Raises Unavailable."""

        def read(connection: Connection) -> list[AuditEntry]:
            found: list[AuditEntry] = []
            for (text,) in connection.execute(select(audit.c.entry).order_by(audit.c.number.desc())):
                entry = msgspec.json.decode(text, type=AuditEntry)
                if subject in (None, entry.subject):
                    found.append(entry)
                if len(found) == most:
                    break
            return found

        return await self._store.read(read)


def _row(entry: AuditEntry) -> Replace:
    slot = entry.number % KEPT
    row = {"slot": slot, "number": entry.number, "entry": msgspec.json.encode(entry).decode()}
    return Replace(audit, {"slot": slot}, [row])


def _latest(connection: Connection) -> int:
    return int(connection.execute(select(func.max(audit.c.number))).scalar() or 0)
