"""The audit log: who changed what, from where, and what it was before and after."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import trio
from sqlalchemy import Connection, func, select

from distributor.storage.store import Replace, Store, audit

KEPT = 10_000  # entries; some 10 MB: a year of 27 changes a day


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change. ``number`` counts up without a gap."""

    number: int = 0
    at: float = 0.0  # unix time, s
    who: str  # the name of the token; "anybody": none was needed
    what: str  # method and path
    source: str  # address of the caller
    subject: str  # "topic NAME", "broker NAME"; "": neither
    before: Any = None  # null: it was not there
    after: Any = None  # null: it is not there any more


class AuditLog:
    """The latest ``KEPT`` changes in the store."""

    def __init__(self, store: Store, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._store = store
        self._wall_ns = wall_ns
        self._writing = trio.Lock()
        self._next: int | None = None  # number; None: not read yet

    async def note(self, entry: AuditEntry) -> AuditEntry:
        """Store a change with its number and instant, and return it so. Raises Unavailable, NotLeader."""
        async with self._writing:
            if self._next is None:
                self._next = await self._store.read(_latest) + 1
            numbered = msgspec.structs.replace(entry, number=self._next, at=self._wall_ns() / 1e9)
            slot = numbered.number % KEPT
            row = {"slot": slot, "number": numbered.number, "entry": msgspec.json.encode(numbered).decode()}
            await self._store.apply([Replace(audit, {"slot": slot}, [row])])
            self._next += 1
            return numbered

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


def _latest(connection: Connection) -> int:
    return int(connection.execute(select(func.max(audit.c.number))).scalar() or 0)
