"""Background tasks of the client library, which runs under trio and asyncio alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from srtm.concurrency.failures import lone_failure


@asynccontextmanager
async def background_tasks() -> AsyncIterator[TaskGroup]:
    """Open a task group that is cancelled when the block ends. A single failure is raised as itself."""
    with lone_failure():
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()
