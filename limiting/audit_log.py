"""The audit log of a limit service: who changed which contract, subject or node, and what it was before and after."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec
import trio

from limiting.database import KEPT_CHANGES, ChangeRow, Database
from srtm.web.audit_entry import AuditEntry


class AuditLog:
    """The latest ``KEPT_CHANGES`` changes, in the database; without one they end with the process."""

    def __init__(self, database: Database | None = None, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._database = database
        self._wall_ns = wall_ns
        self._writing = trio.Lock()
        self._kept: deque[ChangeRow] = deque(maxlen=KEPT_CHANGES)
        self._next = 1 if database is None else database.latest_change() + 1

    async def note(self, entries: Sequence[AuditEntry]) -> None:
        """Keep changes of one instant, each with its number, all or none. Raises Unavailable."""
        async with self._writing:
            at = self._wall_ns() / 1e9
            rows = (_row(entry, number, at) for number, entry in enumerate(entries, self._next))
            if self._database is None:
                self._kept.extend(rows)
            else:
                await trio.to_thread.run_sync(self._database.put_changes, rows)
            self._next += len(entries)

    async def latest(self, most: int, subject: str | None = None) -> list[msgspec.Raw]:
        """Return at most ``most`` ``AuditEntry`` as JSON, newest first; of one ``subject``, if it is named.

        Raises Unavailable.
        """
        if self._database is None:
            found = (row for row in reversed(self._kept) if subject in (None, row.subject))
            rows = list(islice(found, most))
        else:
            rows = await trio.to_thread.run_sync(self._database.changes, most, subject)
        return [msgspec.Raw(row.entry) for row in rows]


def _row(entry: AuditEntry, number: int, at: float) -> ChangeRow:
    numbered = msgspec.structs.replace(entry, number=number, at=at)
    return ChangeRow(number, entry.subject, msgspec.json.encode(numbered))
