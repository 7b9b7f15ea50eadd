"""One turn of ``srtm bench overhead``: what is asked for, and what was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STEADY, SHIFTING = "steady", "shifting"
SCENARIOS = (STEADY, SHIFTING)
_SENT_SHARE = 0.99
_DEVIATIONS = 3  # of a Poisson number, below its mean: one turn of a thousand


@dataclass(frozen=True)
class OverheadOptions:
    topics: int = 1_000
    moving: int = 10  # of these, under shifting traffic
    every_s: float = 5.0  # it stays with a broker
    seconds: float = 30.0  # of a turn
    turns: int = 1  # of each kind of traffic under each mode
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # to write the table into


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Processor time while it lasted, in ms a second."""

    scenario: str
    mode: str
    number: int
    adaptor: float
    distributor: float
    brokers: float  # Python of all together
    engines: float  # which carry the messages
    changes: float  # of shares, a second
    histories: Mapping[str, float]  # {kind: taken by the distributor, a second}
    bins: Mapping[str, float]  # in them
    sent: int  # messages, as the generators say
    planned: int  # in the mean: traffic is Poisson

    @property
    def total(self) -> float:
        return self.control + self.engines

    @property
    def control(self) -> float:
        """All but the engines."""
        return self.adaptor + self.distributor + self.brokers

    @property
    def reasons(self) -> list[str]:
        """Why it does not count: less traffic than planned costs less, and chance does not explain it."""
        if self.sent >= _SENT_SHARE * self.planned - _DEVIATIONS * math.sqrt(self.planned):
            return []
        rule = f"less than {100 * _SENT_SHARE:g} % of the plan by more than {_DEVIATIONS} standard deviations"
        return [f"{self.scenario}, {self.mode}, turn {self.number}: sent {self.sent:,} of {self.planned:,}, {rule}"]
