"""Long work in portions, between which other tasks get their turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import trio

_T = TypeVar("_T")
PORTION = 20  # topics, brokers or views of them: some ms


async def in_portions(made: Iterable[_T], size: int = PORTION) -> list[_T]:
    """The items of ``made``, which takes its time: after each ``size`` of them other tasks get their turn."""
    found = []
    for number, item in enumerate(made, start=1):
        found.append(item)
        if number % size == 0:
            await trio.lowlevel.checkpoint()
    return found
