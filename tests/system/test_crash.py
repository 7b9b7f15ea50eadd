"""SIGKILL under load, five times (``make soak``: a hundred): what was acknowledged comes, whatever was on its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import crash

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")


@pytest.mark.timeout(300)
async def test_what_was_acknowledged_is_delivered_however_often_the_broker_is_killed(tmp_path: Path) -> None:
    book = await crash.run(tmp_path, kills=5, seed=1)
    assert (book.lost, book.faults) == (0, []), book.verdict(5)
    assert len(book.acknowledged) >= 5
