"""Units of rates and bursts: micro-messages, as whole numbers.

A micro-message is 1e-6 of a message. Rates (msg/s) and bursts (messages) are kept in it, so that sums stay exact.
"""

from __future__ import annotations

from srtm.errors import BadInput

MICRO = 1_000_000  # micro-messages in a message
LARGEST = 1e9  # msg/s or messages; above it a float cannot hold micro-messages exactly


def to_micro(value: float, field: str) -> int:
    """Convert ``value`` (msg/s or messages) to micro-messages, rounded to the nearest.

    Raises BadInput, which names ``field``, unless ``value`` is from 0.000001 to 1e9.
    """
    if not 0 < value <= LARGEST:  # false for NaN too
        raise BadInput(field, value, f"must be a number above 0 and at most {LARGEST:g}")
    micro = round(value * MICRO)
    if micro == 0:
        raise BadInput(field, value, "must be at least 0.000001")
    return micro


def from_micro(micro: int) -> float:
    """Convert micro-messages to msg/s or messages. ``to_micro`` restores ``micro`` exactly."""
    return micro / MICRO
