"""What a bench says while it runs, so that minutes of work are not minutes of silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

_LINES = 50  # at most about so many, however many runs there are

_T = TypeVar("_T")


def counted(runs: Sequence[_T], show: Callable[[str], None]) -> Iterator[_T]:
    """Each of ``runs``; which one it is of how many goes to ``show`` before it is made."""
    step = -(-len(runs) // _LINES)
    for number, run in enumerate(runs):
        if number % step == 0:
            show(f"run {number + 1:,} of {len(runs):,}")
        yield run
