"""SIGKILL under load, some times (``make soak``: a hundred): what was acknowledged comes, whatever was on its way. With
messages in memory: what was on disk does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import crash

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")


@pytest.mark.timeout(300)
async def test_what_was_acknowledged_is_delivered_however_often_the_broker_is_killed(tmp_path: Path) -> None:
    book = await crash.run(tmp_path, kills=5, seed=1)
    assert (book.lost, book.faults) == (0, []), book.verdict(5)
    assert len(book.acknowledged) >= 5


@pytest.mark.timeout(300)
async def test_what_a_kill_finds_on_disk_is_delivered_however_much_is_in_memory(tmp_path: Path) -> None:
    book = await crash.run(tmp_path, kills=4, seed=2, mem_queue_size=20)
    assert (book.lost, book.faults) == (0, []), book.verdict(4)
    assert any(book.kept.values()), "nothing was on disk: that shows nothing"
