"""What goes into a search for a layout and what comes out of it: events and actions, values only. ``layout_loop``
and ``paper`` have the same interface, so one shell runs either.

The shell carries actions out (tells brokers, waits until shares and publishers are where they should be, asks the
scaler) and hands in what happens, each event with the time at which it came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Protocol

from distributor.model.columns import NOWHERE, Ints
from distributor.placement.allocation import BrokerCapacity, Demand
from distributor.prediction.replay import Latency, Trace
from distributor.prediction.sequential_test import CONFIDENCE, Intervals, Verdict
from srtm.token_bucket.fitted_split import Shares

# (demand, placement, number of brokers) -> (r_l, b_l) of each, micro; sums exact
Split = Callable[[Demand, Ints, int], Shares]


class Scaler(Enum):
    """Who is asked when brokers run out."""

    PROCESS = "process"  # a local broker is started
    COMMAND = "command"  # the operator's own
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is to be fitted.

    ``full``: {broker: msg/s that it keeps of this SLO and traffic class}. ``others``: {broker: msg/s of other topics
    that it lets go}. ``pinned``: {index of a publisher that stays where it is: its broker}.
    """

    demand: Demand
    percentile: float
    target_ns: int
    strategy: str = "srtm"
    confidence: float = CONFIDENCE
    scaler: Scaler = Scaler.NONE
    full: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, float] = field(default_factory=dict)
    pinned: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Who is where, under which share. ``placement[i]``: index into ``brokers``, NOWHERE for who must wait."""

    brokers: tuple[str, ...]
    placement: Ints
    shares_micro: tuple[tuple[int, int], ...]  # (r_l, b_l) of each broker

    @property
    def is_complete(self) -> bool:
        """Whether everybody is somewhere."""
        return len(self.brokers) > 0 and NOWHERE not in self.placement


# Events


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A look at the topic. ``heard``: messages came in the last 60 s, or wait; ``short``: publishers have no place."""

    promise: Literal["kept", "broken", "unknown"]
    heard: bool
    short: bool = False


@dataclass(frozen=True, kw_only=True)
class Begin:
    """It is the topic's turn. ``in_force``: where its publishers are; None: nowhere, or without a share."""

    task: Task
    brokers: Sequence[BrokerCapacity]
    split: Split
    in_force: Layout | None = None


@dataclass(frozen=True, kw_only=True)
class Disturbed:
    """Others placed or changed the topic: what was found does not hold."""


@dataclass(frozen=True, kw_only=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The layout of round ``round`` is in force: shares, and every publisher at its broker. ``calm_ns``: for so long
    already; buckets have filled meanwhile."""

    round: int
    calm_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a broker has measured since its last word. ``final``: it has measured for as long as it was to."""

    broker: str
    round: int
    intervals: Intervals  # of the new topic: access, processing and network together, against the target
    latency: Latency = field(default_factory=Latency)  # of the new topic since the measurement began
    others_kept: bool = True  # the topics that were there kept their SLO in the last second
    others_worst_ns: int = 0  # their largest percentile in the last second
    lost: int = 0  # messages since the measurement began whose latency nobody knows any more: too many came
    unsent: int = 0  # and those that no subscriber took in time
    final: bool = False


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What arrived at a broker while it measured; publishers by their index in the demand, on the common clock."""

    broker: str
    round: int
    trace: Trace


@dataclass(frozen=True, kw_only=True)
class BrokerJoined:
    """It may be used; of one that was known this is what is known now: other topics came there or left."""

    broker: BrokerCapacity


@dataclass(frozen=True, kw_only=True)
class BrokerLeft:
    """It is gone, or may take nothing new."""

    broker: str


@dataclass(frozen=True, kw_only=True)
class ScalerAnswered:
    """The brokers that it brought; none if it could or would not."""

    brokers: tuple[BrokerCapacity, ...] = ()


Event = Placed | Progress | Recorded | BrokerJoined | BrokerLeft | ScalerAnswered | Seen | Begin | Disturbed | Tick


# Actions


@dataclass(frozen=True, kw_only=True)
class Queue:
    """Say ``Begin`` when it is the topic's turn."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Bring ``layout`` into force, then say ``Placed``."""

    round: int
    layout: Layout


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Have ``broker`` measure, once ``after_ns`` have passed, and report several times a second. ``held``: not yet; but
    it watches the promises to the topics that are there already, and says every second how they are kept."""

    broker: str
    round: int
    after_ns: int = 0  # for buckets to fill
    at_least_ns: int = 0
    at_most_ns: int = 0
    held: bool = False


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Enough measured; ``Recorded`` is expected if ``trace_wanted``."""

    broker: str
    round: int
    trace_wanted: bool


@dataclass(frozen=True, kw_only=True)
class AskScaler:
    brokers: int  # how many more


class Outcome(Enum):
    """How a search ended."""

    FITS = "fits"
    NO_BETTER = "no layout is better"
    ONE_BUCKET = "one bucket would not keep the promise"
    NO_MOVES = "nobody may be moved"
    TAKEN_BACK = "taken back"
    NO_TRAFFIC = "no traffic"
    NO_CONSUMER = "no consumer"
    NO_BROKER = "no broker"
    BROKERS_CAME = "brokers came"
    SILENT = "a broker is silent"
    TIME_UP = "time is up"
    DEFECT = "a defect"


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """One measurement of one layout."""

    layout: Layout
    started_ns: int
    ended_ns: int
    verdicts: Mapping[str, Verdict]
    latency: Mapping[str, Latency]


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What would have to be there for the promise to hold. 0: that is not it."""

    brokers: int = 0  # more of them
    burst: float = 0.0  # b of the topic, messages: one bucket makes too many wait, or brokers lack tokens for shares
    mcap: float = 0.0  # a broker that takes so many msg/s: one publisher alone sends that


@dataclass(frozen=True, kw_only=True)
class Report:
    """How a fitting ended. ``layout`` is in force."""

    outcome: Outcome
    certain: bool  # it fits with the confidence asked for, not just by the sample
    layout: Layout
    latency: Mapping[str, Latency]  # as measured in its last round; empty: it was not measured
    rounds: tuple[RoundRecord, ...]
    full: Mapping[str, float]  # {broker: msg/s that it keeps}: those that had to give up publishers
    missing: Missing | None
    others_worst_ns: int  # the worst second of the topics that were there
    took_ns: int
    reason: str = ""
    # {broker: part of the messages that no subscriber took in time}, of those where it is more than may be late
    unsent: Mapping[str, float] = field(default_factory=dict)
    unscaled: str = ""  # why the scaler that was asked brought less than was wanted

    @property
    def fits(self) -> bool:
        """Whether every broker was found within the target."""
        return self.outcome is Outcome.FITS

    @property
    def heard(self) -> bool:
        """False: no message came, so nothing was measured."""
        return self.outcome not in (Outcome.NO_TRAFFIC, Outcome.NO_CONSUMER)


@dataclass(frozen=True, kw_only=True)
class Done:
    report: Report


Action = Queue | Place | Measure | Stop | AskScaler | Done


class Steps(Protocol):
    """``handle`` a ``Begin``, and every event after it until a ``Done`` comes out. Times are of any one monotonic
    clock. ``rounds``: measured so far; ``full``: {broker: msg/s that it keeps}, of those that are full whatever becomes
    of the rest."""

    @property
    def rounds(self) -> Sequence[RoundRecord]: ...

    @property
    def full(self) -> Mapping[str, float]: ...

    def handle(self, event: Event, now_ns: int) -> list[Action]: ...
