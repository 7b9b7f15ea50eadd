"""The state of a topic's history at a broker: what the distributor knows of the topic's traffic. Pure."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """What the distributor knows."""

    ACTIVE = auto()  # messages arrive, or nothing yet: their end has to be reported, too
    IDLE = auto()  # nothing arrives: nothing is reported until something does
    STEADY = auto()  # traffic stays as it is: nothing is reported but renewals


class Event(Enum):
    """What changes it."""

    SENT_TRAFFIC = auto()  # a report with messages up to its end
    SENT_END = auto()  # a report that ends without messages
    SENT_STEADY = auto()  # a report that says that traffic is steady
    DISTURBED = auto()  # traffic is no longer steady
    LOST = auto()  # the latest report was not taken, or is forgotten there


TRANSITIONS: dict[Event, dict[Phase, Phase]] = {
    Event.SENT_TRAFFIC: {Phase.ACTIVE: Phase.ACTIVE, Phase.IDLE: Phase.ACTIVE, Phase.STEADY: Phase.ACTIVE},
    Event.SENT_END: {Phase.ACTIVE: Phase.IDLE, Phase.IDLE: Phase.IDLE, Phase.STEADY: Phase.IDLE},
    Event.SENT_STEADY: {Phase.ACTIVE: Phase.STEADY, Phase.IDLE: Phase.STEADY, Phase.STEADY: Phase.STEADY},
    Event.DISTURBED: {Phase.ACTIVE: Phase.ACTIVE, Phase.IDLE: Phase.IDLE, Phase.STEADY: Phase.ACTIVE},
    Event.LOST: {Phase.ACTIVE: Phase.ACTIVE, Phase.IDLE: Phase.ACTIVE, Phase.STEADY: Phase.ACTIVE},
}
