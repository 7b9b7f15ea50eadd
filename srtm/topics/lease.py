"""How long a share lasts that is not renewed (design section 6): "keep", or a length. Pure.

Both sides count a length by their own clock, so only clocks that run equally fast, to within the margin, keep the law:
hence the longest. The shortest leaves a standby the time to take over before anybody stops.
"""

from __future__ import annotations

from srtm.text import read_duration_ns

KEEP = "keep"
SHORTEST_MS = 5_000
LONGEST_MS = 1_800_000  # two clocks that are slewed apart at 0.05 % each differ by 1.8 s then
MARGIN_MS = 2_000  # beyond the end of a lease, before its tokens go to another

RULE = f'must be "{KEEP}", or a length from {SHORTEST_MS // 1000}s to {LONGEST_MS // 60_000}m, such as "15s"'


def lease_ms(text: str) -> int | None:
    """The length, in whole milliseconds; None: "keep". Raises ValueError with the rule."""
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
