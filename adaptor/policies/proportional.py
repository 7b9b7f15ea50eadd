"""The adaptor of the main paper (section 5.4): token rates in proportion to the average rate of arrivals, bursts to the
largest backlog, both over a sliding window.

Backlog is the unfinished work U: of traffic that conforms nothing ever waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from adaptor.observations import BIN_S, Envelope, Member, Shares
from adaptor.policies.bounds import is_over, limits, shares_within


def proportional(
    envelope: Envelope, members: Sequence[Member], *, window_s: float, floor: float, dead_band: float
) -> Shares | None:
    """New shares, or None where none of them would change by more than ``dead_band`` (a part of the share there is),
    and none is more than its broker can process, or where nothing arrived anywhere in the window. ``floor``: part of
    the topic. Raises BadInput as ``limits`` does."""
    recent = [member.bins[-max(1, round(window_s / BIN_S)) :] for member in members]
    arrived = [sum(one.arrivals for one in bins) / max(1, len(bins)) for bins in recent]
    if sum(arrived) == 0:
        return None
    work = [max((one.work for one in bins), default=0.0) for bins in recent]
    shares = shares_within(envelope, limits(envelope, members, floor), arrived, work)
    near = is_within(dead_band, [member.share for member in members], shares)
    return None if near and not is_over(members) else shares


def is_within(dead_band: float, old: Shares, new: Shares) -> bool:
    """Whether no rate and no burst differs by more than ``dead_band`` of what it was."""
    pairs = [pair for was, shall in zip(old, new, strict=True) for pair in zip(was, shall, strict=True)]
    return all(abs(shall - was) <= dead_band * was for was, shall in pairs)
