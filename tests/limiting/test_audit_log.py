"""The audit log of a limit service: what it keeps, for how long, and what comes back after a restart."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limiting import audit_log, database
from limiting.audit_log import AuditLog
from limiting.database import FILE, Database
from srtm.errors import BadInput, Unavailable
from srtm.web.audit_entry import AuditEntry


def entry(subject: str, after: Any = None) -> AuditEntry:
    return AuditEntry(who="ann", what="PUT /", source="10.0.0.7:5", subject=subject, after=after)


async def shown(log: AuditLog, most: int = 100, subject: str | None = None) -> list[tuple[int, str]]:
    found = [msgspec.json.decode(raw, type=AuditEntry) for raw in await log.latest(most, subject)]
    assert all(one.at == 5.0 for one in found)
    return [(one.number, one.subject) for one in found]


@pytest.fixture(autouse=True)
def three_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "KEPT_CHANGES", 3)
    monkeypatch.setattr(audit_log, "KEPT_CHANGES", 3)


@pytest.mark.parametrize("kept", [True, False])
async def test_the_latest_are_there_newest_first_and_by_subject(tmp_path: Path, kept: bool) -> None:
    opened = Database(tmp_path) if kept else None
    log = AuditLog(opened, lambda: 5 * 10**9)
    assert await shown(log) == []
    await log.note([entry("node a"), entry("node b")])
    await log.note([entry("node a"), entry("node c")])
    assert await shown(log) == [(4, "node c"), (3, "node a"), (2, "node b")]
    assert await shown(log, most=1) == [(4, "node c")]
    assert await shown(log, subject="node a") == [(3, "node a")]
    if opened is not None:
        opened.close()


async def test_numbers_and_entries_go_on_after_a_restart(tmp_path: Path) -> None:
    for number in (1, 2):
        with closing(Database(tmp_path)) as opened:
            log = AuditLog(opened, lambda: 5 * 10**9)
            await log.note([entry(f"node {number}", {"removed": True})])
            assert await shown(log, most=1) == [(number, f"node {number}")]
    with closing(Database(tmp_path)) as opened:
        (raw, _) = await AuditLog(opened).latest(2)
    assert msgspec.json.decode(raw)["after"] == {"removed": True}


async def test_a_file_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    opened = Database(tmp_path)
    log = AuditLog(opened)
    opened.close()
    with pytest.raises(Unavailable, match=FILE):
        await log.note([entry("node a")])
    with pytest.raises(Unavailable, match=FILE):
        await log.latest(1)
    with pytest.raises(BadInput, match=FILE):
        AuditLog(opened)
