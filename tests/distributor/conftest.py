"""Fixtures of the distributor's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio

from tests.support.distributor_in_process import Distributor


@pytest.fixture
async def distributor(tmp_path: Path) -> AsyncIterator[Distributor]:
    opened = await Distributor.open(tmp_path / "store.sqlite3")
    yield opened
    await opened.aclose()


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work for threads is done at once instead: a simulated clock would jump on while a thread is busy."""

    async def at_once(work: Callable[..., object], *arguments: object, **_: object) -> object:
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
