"""How a topic's shares are adapted: what an operator can set. Plain values.

``mode``: ``static`` (the split never changes), ``proportional`` (the paper's, section 5.4), ``fitted`` (the default),
``gdrl`` (brokers exchange tokens), ``central`` (one broker has all tokens but the floors of the others).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Mode = Literal["static", "proportional", "fitted", "gdrl", "central"]
Partners = Literal["random", "ring"]
Indicator = Literal["fill", "slack"]

MODES: tuple[str, ...] = get_args(Mode)
ADAPTED: tuple[Mode, ...] = ("proportional", "fitted", "central")  # the adaptor proposes shares
SHORTEST_S, LONGEST_S = 0.1, 600.0  # of a window; 0.1 s is one bin of the brokers' histories
LARGEST_FLOOR = 0.5


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """The parameters of the modes; each mode uses those that it needs."""

    window_s: float = 10.0  # proportional, central: history that counts
    interval_s: float = 0.5  # proportional, central: time between updates
    floor: float = 0.02  # smallest share, as a fraction of the topic's bucket
    dead_band: float = 0.1  # proportional: smallest change, as a fraction of the share
    partners: Partners = "random"  # gdrl: how a broker chooses partners
    indicator: Indicator = "slack"  # gdrl: what the brokers equalize
