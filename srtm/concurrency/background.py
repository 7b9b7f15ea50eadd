"""Background tasks of a context manager: they end with its block, and a single failure is raised as itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio


@asynccontextmanager
async def background_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled when the block ends. A single failure is raised as itself."""
    with lone_failure():
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()


@contextmanager
def lone_failure() -> Iterator[None]:
    """Raise the only failure of an exception group as itself."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = only_failure(group)
        if error is group:
            raise
        raise error from error.__cause__


def only_failure(group: BaseException) -> BaseException:
    """Return the one exception in ``group`` that is no cancellation, or ``group`` if there are several or none.

    Several tasks may raise the same exception object: it counts once.
    """
    failures = {id(leaf): leaf for leaf in _leaves(group) if not isinstance(leaf, trio.Cancelled)}
    return failures.popitem()[1] if len(failures) == 1 else group


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
