"""Instants for people."""

from __future__ import annotations

import time


def utc(wall_ns: int) -> str:
    """ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_ns // 10**9))
