"""Text that people write and read: counted nouns, figures, and durations in Go's notation (``250ms``, ``1h30m``)."""

from __future__ import annotations

import math
import re

_MS = 10**6  # ns
_S = 10**9
_UNITS_NS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": _MS, "s": _S, "m": 60 * _S, "h": 3600 * _S}
_PART = re.compile(r"[0-9]*\.?[0-9]*[a-zµμ]+")


def plural(count: int, noun: str) -> str:
    """Return ``noun`` in the form that follows ``count``: "1 round", "0 rounds"."""
    return noun if count == 1 else f"{noun}s"


def figure(value: float, digits: int = 3) -> str:
    """Return ``value`` with this many significant digits: above them whole, below them never with an exponent.

    ``digits``: 3 for what was measured; 6 for what somebody chose, such as a rate.
    """
    if not math.isfinite(value):
        return str(value)
    if value % 1 == 0 or abs(value) >= 10**digits - 0.5:
        return f"{value:,.0f}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def read_duration_ns(text: str) -> int:
    """Convert a duration such as ``250ms``, ``1.5s``, ``1h30m`` or ``0`` to nanoseconds.

    Raises ValueError, whose text is the rule.
    """
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
