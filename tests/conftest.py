"""The rules of this house.

* A test's name is a sentence about what must hold; the comment inside says how the condition is forced.
* No luck: time is virtual (``autojump_clock``), streams are in memory, random inputs come from Hypothesis or from a
  seed that stands in the test.
* Real sockets and processes only where they are the point (``tests/system``, ``tests/compat`` and what says so): free
  ports, waits that are bounded, processes stopped by the id that the test started, nothing but loopback.
* A wait is for a signal, never for a length of time that "should do".
* What takes more than a quarter of a second is marked ``slow``. A skip says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from hypothesis import settings

from tests.support import postgres
from tests.support.signals import let_children_be_interrupted

# A shared machine can stop for a while in the middle of an example: that is no finding. The seed is fixed, so that a
# run can be repeated.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")


def pytest_configure() -> None:
    let_children_be_interrupted()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: postgres.Server) -> str:
    """Of an empty database."""
    return postgres_server.new_database()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.slow])])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store, of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 's.sqlite3'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work for threads is done at once instead: a simulated clock would jump on while a thread is busy."""

    async def at_once(work: Callable[..., object], *arguments: object, **_: object) -> object:
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
