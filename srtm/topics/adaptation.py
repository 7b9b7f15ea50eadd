"""How a topic's shares are kept right: what an operator can set (design section 6). Plain values.

``mode``: ``static`` (nobody changes the split), ``proportional`` (the paper's, section 5.4), ``fitted`` (the default),
``gdrl`` (the brokers among themselves), ``central`` (one broker has it all but the others' floors).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Mode = Literal["static", "proportional", "fitted", "gdrl", "central"]
Partners = Literal["random", "ring"]
Indicator = Literal["fill", "slack"]

MODES: tuple[str, ...] = get_args(Mode)
ADAPTED: tuple[Mode, ...] = ("proportional", "fitted", "central")  # somebody outside the brokers proposes shares
SHORTEST_S, LONGEST_S = 0.1, 600.0  # of a window: one bin, and what brokers keep is less than that
LARGEST_FLOOR = 0.5


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """What the modes take besides their name; each uses what it needs."""

    window_s: float = 10.0  # proportional, central: of history
    interval_s: float = 0.5  # proportional, central: between updates
    floor: float = 0.02  # part of the topic that no broker gets less than
    dead_band: float = 0.1  # proportional: part of a share by which it has to change
    partners: Partners = "random"  # gdrl
    indicator: Indicator = "slack"  # gdrl: what is to be equal
