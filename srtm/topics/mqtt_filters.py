"""Names that two topic filters of MQTT share (MQTT 5.0, section 4.7). Pure, and light: brokers use it."""

from __future__ import annotations


def shared_name(one: str, other: str) -> str | None:
    """Return a name that both filters match, such as ``plant/1``; None: there is none."""
    levels = _shared_levels(one.split("/"), other.split("/"))
    if levels is None:
        return None
    name = "/".join("1" if level == "+" else level for level in levels)
    if name or not levels:
        return name or "1"
    return "/1" if one.endswith("#") and other.endswith("#") else None  # a name has at least one character


def _shared_levels(left: list[str], right: list[str]) -> list[str] | None:
    shared: list[str] = []
    for position in range(max(len(left), len(right)) + 1):
        here = left[position] if position < len(left) else None
        there = right[position] if position < len(right) else None
        if here == "#" or there == "#":
            rest = right[position:] if here == "#" else left[position:]
            return [*shared, *(level for level in rest if level != "#")]
        if here is None or there is None:
            return shared if here == there else None
        if here != there and "+" not in (here, there):
            return None
        shared.append(there if here == "+" else here)
    return None
