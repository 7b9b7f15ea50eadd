"""Background tasks of a service: they end with their block, and a single failure is raised as itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from srtm.concurrency.failures import lone_failure


@asynccontextmanager
async def background_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled when the block ends. A single failure is raised as itself."""
    with lone_failure():
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
