"""The states of the layout loop, every step between them in one table, and its settings. Pure.

``docs/control-loop.md`` draws the table, and a test holds the drawing to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """What the loop of one topic is doing."""

    WATCHING = "watching"  # the verdict on the promise
    GRACE = "grace"  # the promise is broken; that may pass by itself
    QUEUED = "queued"  # a search is to begin; searches take turns
    MEASURING = "measuring"  # the layout in force
    EXPLAINING = "explaining"  # brokers send what they recorded, and it is replayed
    SCALING = "scaling"  # more brokers were asked for
    PLACING = "placing"  # another layout is brought into force
    JUDGING = "judging"  # it is measured
    TAKING_BACK = "taking back"  # the layout before is brought into force again
    RESTING = "resting"  # the cool-down after a search


class Trigger(Enum):
    """What moves it on."""

    ASKED = "asked"  # the topic was submitted under ``always``
    BROKEN = "broken"
    MENDED = "mended"
    GRACE_OVER = "grace over"
    BEGUN = "begun"  # it is its turn
    LATE = "late"  # the promise is broken in what was measured
    UNCLEAR = "unclear"  # many bursts do not say whether it is
    DOUBTFUL = "doubtful"  # a replay of what arrived does not say the same: it is measured again
    BETTER = "better"  # a layout is predicted to be better
    SHORT = "short"  # no layout of the brokers there are would do, and more may be asked for
    STEP = "step"  # some publishers have moved, and more are to follow
    IN_FORCE = "in force"
    WORSE = "worse"  # than the layout before
    OTHERS_BROKEN = "others broken"  # the promise of another topic, for 2 s
    ENDED = "ended"  # the search, with an ``Outcome``
    RESTED = "rested"
    DISTURBED = "disturbed"  # others placed or changed the topic


TRANSITIONS: dict[tuple[State, Trigger], State] = {
    (State.WATCHING, Trigger.ASKED): State.QUEUED,
    (State.WATCHING, Trigger.BROKEN): State.GRACE,
    (State.WATCHING, Trigger.ENDED): State.RESTING,
    (State.GRACE, Trigger.MENDED): State.WATCHING,
    (State.GRACE, Trigger.ASKED): State.QUEUED,
    (State.GRACE, Trigger.GRACE_OVER): State.QUEUED,
    (State.QUEUED, Trigger.MENDED): State.WATCHING,
    (State.QUEUED, Trigger.BEGUN): State.MEASURING,
    (State.QUEUED, Trigger.BETTER): State.PLACING,
    (State.QUEUED, Trigger.SHORT): State.SCALING,
    (State.QUEUED, Trigger.ENDED): State.RESTING,
    (State.MEASURING, Trigger.LATE): State.EXPLAINING,
    (State.MEASURING, Trigger.UNCLEAR): State.EXPLAINING,
    (State.MEASURING, Trigger.OTHERS_BROKEN): State.EXPLAINING,
    (State.MEASURING, Trigger.ENDED): State.RESTING,
    (State.EXPLAINING, Trigger.DOUBTFUL): State.JUDGING,
    (State.EXPLAINING, Trigger.BETTER): State.PLACING,
    (State.EXPLAINING, Trigger.SHORT): State.SCALING,
    (State.EXPLAINING, Trigger.WORSE): State.TAKING_BACK,
    (State.EXPLAINING, Trigger.ENDED): State.RESTING,
    (State.SCALING, Trigger.BETTER): State.PLACING,
    (State.SCALING, Trigger.SHORT): State.SCALING,
    (State.SCALING, Trigger.WORSE): State.TAKING_BACK,
    (State.SCALING, Trigger.ENDED): State.RESTING,
    (State.PLACING, Trigger.STEP): State.PLACING,
    (State.PLACING, Trigger.IN_FORCE): State.JUDGING,
    (State.PLACING, Trigger.OTHERS_BROKEN): State.TAKING_BACK,
    (State.PLACING, Trigger.WORSE): State.TAKING_BACK,
    (State.JUDGING, Trigger.LATE): State.EXPLAINING,
    (State.JUDGING, Trigger.UNCLEAR): State.EXPLAINING,
    (State.JUDGING, Trigger.OTHERS_BROKEN): State.TAKING_BACK,
    (State.JUDGING, Trigger.WORSE): State.TAKING_BACK,
    (State.JUDGING, Trigger.ENDED): State.RESTING,
    (State.TAKING_BACK, Trigger.ENDED): State.RESTING,
    (State.RESTING, Trigger.RESTED): State.WATCHING,
} | {(state, Trigger.DISTURBED): State.WATCHING for state in State}

SEARCHING = frozenset(State) - {State.WATCHING, State.GRACE, State.QUEUED, State.RESTING}


class Machine:
    """In which state a loop is, and since when."""

    def __init__(self) -> None:
        self.state = State.WATCHING
        self.since_ns = 0

    def go(self, trigger: Trigger, now_ns: int) -> None:
        """Take the step of the table."""
        self.state, self.since_ns = TRANSITIONS[self.state, trigger], now_ns


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Settings of the loop.

    ``always``: search for every layout that is submitted, without grace. ``may_move``: else what would be done is said,
    and nobody moves.
    """

    always: bool = False
    may_move: bool = True
    grace_s: float = 15.0
    moves: int = 200  # publishers that move at once where other topics are
    cool_down_s: float = 300.0  # after a search; twice as long after each that failed in a row
    margin: float = 0.1  # of the worst percentile: what is predicted to be better by less is left alone
