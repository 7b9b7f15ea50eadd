"""Durations as operators write them, in Go's notation: ``250ms``, ``1h30m``, ``1.5s``; a plain ``0``. Pure."""

from __future__ import annotations

import re

_MS = 10**6  # ns
_S = 10**9
_UNITS_NS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": _MS, "s": _S, "m": 60 * _S, "h": 3600 * _S}
_PART = re.compile(r"[0-9]*\.?[0-9]*[a-zµμ]+")


def read_duration_ns(text: str) -> int:
    """Raises ValueError with the rule."""
    bare = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    parts = _PART.findall(bare)
    if bare == "0":
        return 0
    if not parts or "".join(parts) != bare:
        raise ValueError("must be a duration with units, such as 250ms, 2s or 1h30m")
    total_ns = sum(_part_ns(part) for part in parts)
    return -round(total_ns) if text.startswith("-") else round(total_ns)


def _part_ns(part: str) -> float:
    number = part.rstrip("abcdefghijklmnopqrstuvwxyzµμ")
    if number in ("", ".") or part[len(number) :] not in _UNITS_NS:
        raise ValueError(f"must be a duration with the units {', '.join(list(_UNITS_NS)[:3])}, ms, s, m, h")
    return float(number) * _UNITS_NS[part[len(number) :]]
