"""What a broker's figures are to be taken with, in words: a laboratory, a quota on its processors, time that its host
gave to others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from srtm.control import Throttling

_SMALLEST = 0.005  # shares below are noise, and would show as 0 %


def conditions(view: Mapping[str, Any]) -> tuple[int, Throttling | None]:
    """Of a broker, as the distributor shows it: what ``remarks`` takes."""
    return view.get("lab_service_time_ns", 0), msgspec.convert(view.get("throttling"), Throttling | None)


def remarks(lab_service_time_ns: int, throttling: Throttling | None) -> list[str]:
    """None where there is nothing to be said."""
    found = []
    if lab_service_time_ns:
        found.append(f"laboratory: {lab_service_time_ns / 1000:g} us a message")
    if throttling is None:
        return found
    if throttling.throttled_share >= _SMALLEST:
        quota = "a quota" if throttling.quota_cores is None else f"a quota of {throttling.quota_cores:g} cores"
        found.append(f"throttled by {quota} in {throttling.throttled_share:.0%} of its periods")
    if throttling.steal_share >= _SMALLEST:
        found.append(f"steal {throttling.steal_share:.0%}")
    return found
