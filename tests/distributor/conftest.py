"""Fixtures of the distributor's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.distributor_in_process import Distributor


@pytest.fixture
async def distributor(tmp_path: Path) -> AsyncIterator[Distributor]:
    opened = await Distributor.open(tmp_path / "store.sqlite3")
    yield opened
    await opened.aclose()
