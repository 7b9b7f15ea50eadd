"""Words as people write them."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """``noun`` as it stands behind ``count``: "1 round", "0 rounds"."""
    return noun if count == 1 else f"{noun}s"
