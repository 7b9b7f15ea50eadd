"""Refuses JSON objects that have a key twice: readers differ in which one counts, so neither is meant."""

from __future__ import annotations

import json

from srtm.errors import BadInput


def refuse_repeated_keys(content: bytes) -> None:
    """Check JSON that was decoded before. Raises BadInput, which names the key."""
    try:
        json.loads(content, object_pairs_hook=_checked, parse_int=str, parse_float=str)  # numbers of any length
    except RecursionError:
        raise BadInput("body", content[:80], "must not be nested so deep") from None


def _checked(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise BadInput(key, key, "must not stand twice in one object")
        seen.add(key)
