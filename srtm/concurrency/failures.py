"""Single failures of concurrent tasks are raised as themselves, under every event loop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Where event loops keep the exception of a cancelled task. A loop that is not imported has cancelled nothing.
_CANCELLATIONS = (("trio", "Cancelled"), ("asyncio", "CancelledError"))


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
    kinds = tuple(getattr(sys.modules[module], name) for module, name in _CANCELLATIONS if module in sys.modules)
    failures = {id(leaf): leaf for leaf in _leaves(group) if not isinstance(leaf, kinds)}
    return failures.popitem()[1] if len(failures) == 1 else group


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
