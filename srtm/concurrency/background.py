"""A nursery as a private detail of a context manager: its tasks end with the block, and one failure leaves as itself,
not as a group of one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio


@asynccontextmanager
async def background_nursery() -> AsyncIterator[trio.Nursery]:
    """Tasks started here are cancelled when the block ends. If exactly one thing failed, that exception itself is
    raised."""
    with lone_failure():
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()


@contextmanager
def lone_failure() -> Iterator[None]:
    """A group that leaves the block with one failure in it is raised as that failure."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = only_failure(group)
        if error is group:
            raise
        raise error from error.__cause__


def only_failure(group: BaseException) -> BaseException:
    """The one exception in ``group`` that is no cancellation (several tasks may have been handed the same one);
    ``group`` itself where there are several or none."""
    failures = {id(leaf): leaf for leaf in _leaves(group) if not isinstance(leaf, trio.Cancelled)}
    return failures.popitem()[1] if len(failures) == 1 else group


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
