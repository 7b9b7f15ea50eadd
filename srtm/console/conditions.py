"""Remarks on the conditions of a broker: simulated service time, a CPU quota, steal time of its host. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from srtm.control import Throttling
from srtm.text import figure

_MIN_FRACTION = 0.005  # smaller fractions are noise and would be shown as 0 %


def conditions(view: Mapping[str, Any]) -> tuple[int, Throttling | None]:
    """Return the arguments of ``remarks`` from the distributor's view of a broker."""
    return view.get("lab_service_time_ns", 0), msgspec.convert(view.get("throttling"), Throttling | None)


def remarks(lab_service_time_ns: int, throttling: Throttling | None) -> list[str]:
    """Return one line for each condition that affects the broker's figures."""
    found = []
    if lab_service_time_ns:
        found.append(f"laboratory: {figure(lab_service_time_ns / 1000, 6)} us a message")
    if throttling is None:
        return found
    if throttling.throttled_share >= _MIN_FRACTION:
        quota = "a quota" if throttling.quota_cores is None else f"a quota of {figure(throttling.quota_cores, 6)} cores"
        found.append(f"throttled by {quota} in {throttling.throttled_share:.0%} of its periods")
    if throttling.steal_share >= _MIN_FRACTION:
        found.append(f"steal {throttling.steal_share:.0%}")
    return found
