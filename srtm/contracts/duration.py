"""Durations of contracts: Go's notation and days, such as ``1d``, ``90s`` or ``1h30m``."""

from __future__ import annotations

import re

from srtm.text import read_duration_ns

_DAYS = re.compile(r"([0-9]+)d(.*)")
_DAY_NS = 86_400 * 10**9
_UNITS_NS = (("d", _DAY_NS), ("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6), ("us", 1000))


def duration_ns(text: str) -> int:
    """Convert a duration to ns. Raises ValueError, whose text is the rule."""
    days = _DAYS.fullmatch(text)
    if days is None:
        return read_duration_ns(text)
    return int(days[1]) * _DAY_NS + (read_duration_ns(days[2]) if days[2] else 0)


def duration_text(duration: int) -> str:
    """Convert ns to the shortest text of one unit. ``duration_ns`` restores them."""
    unit, length = next(((unit, length) for unit, length in _UNITS_NS if duration % length == 0), ("ns", 1))
    return f"{duration // length}{unit}" if duration else "0"
