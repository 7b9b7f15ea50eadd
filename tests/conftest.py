"""The rules of this house.

* A test's name is a sentence about what must hold; the comment inside says how the condition is forced.
* No luck: time is virtual (``autojump_clock``), streams are in memory, random inputs come from Hypothesis or from a
  seed that stands in the test.
* Real sockets and processes only where they are the point (``tests/system``, ``tests/compat`` and what says so): free
  ports, waits that are bounded, processes stopped by the id that the test started, nothing but loopback.
* A wait is for a signal, never for a length of time that "should do".
* What takes more than a quarter of a second is marked ``slow``: `make check` leaves it out. What repeats at length what
  a shorter test holds is marked ``long``: `make test` leaves it out. A skip says why.
* Several workers share the tests: a test counts nothing that another one on this machine may add to.
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


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pytest's own carries the name of the test. This one is short: a refusal shows the first part of a value only, and
    tests look there for the name of a file."""
    return tmp_path_factory.mktemp("t")


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
