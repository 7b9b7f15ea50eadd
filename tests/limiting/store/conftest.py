from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.redis_server import COMMAND, RedisProcess


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """A server for tests that leave it running."""
    if COMMAND is None:
        pytest.skip("needs redis-server or valkey-server")
    with RedisProcess(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def ask(redis_server: RedisProcess) -> Iterator[Callable[..., Any]]:
    """Sends a command to the server, and returns its answer."""
    with redis_server.asking() as asking:
        yield asking


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisProcess]:
    """A server that the test may stop."""
    if COMMAND is None:
        pytest.skip("needs redis-server or valkey-server")
    with RedisProcess(tmp_path) as server:
        yield server
