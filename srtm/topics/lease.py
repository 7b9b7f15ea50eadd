"""The lease of a share: how long it lasts if it is not renewed: "keep", or a length. Pure.

Distributor and broker measure the length by their own clocks, which may differ in speed. The longest lease keeps that
error below the margin. The shortest lease leaves a standby the time to take over before it ends.
"""

from __future__ import annotations

from srtm.text import read_duration_ns

KEEP = "keep"
SHORTEST_MS = 5_000
LONGEST_MS = 1_800_000  # two clocks with errors of 0.05 % in opposite directions then differ by 1.8 s
MARGIN_MS = 2_000  # from the end of a lease until its tokens may go to another broker

RULE = f'must be "{KEEP}", or a length from {SHORTEST_MS // 1000}s to {LONGEST_MS // 60_000}m, such as "15s"'


def lease_ms(text: str) -> int | None:
    """Return the length of a lease, ms; None for "keep". Raises ValueError, whose text is the rule."""
    if text == KEEP:
        return None
    try:
        length_ns = read_duration_ns(text)
    except (ValueError, OverflowError):
        raise ValueError(RULE) from None
    if not SHORTEST_MS * 10**6 <= length_ns <= LONGEST_MS * 10**6:
        rule = f"{RULE}: a shorter one ends before another distributor can take over,"
        raise ValueError(f"{rule} a longer one needs clocks that run equally fast")
    return length_ns // 10**6
