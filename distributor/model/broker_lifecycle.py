"""The states of a broker at the distributor, and the table of their transitions. Pure.

A state follows from what is stored (is it known, proven dead, draining?) and from what is observed (does it sync?).
``registry.state`` derives it; every decision about a broker's life asks this table.
"""

from __future__ import annotations

from enum import Enum, auto


class BrokerState(Enum):
    """Where a broker is in its life."""

    UNKNOWN = auto()  # never seen, or forgotten
    EXPECTED = auto()  # known from the store; has not synced since this distributor leads
    LIVE = auto()  # syncs; may get publishers
    SILENT = auto()  # has not synced for ``liveness_s``; keeps its shares until its lease ends
    DRAINING = auto()  # taken out of service: gets nothing new, gives up what it has, and ends
    DEAD = auto()  # proven: its shares are free, its publishers keep their assignment for the grace period


class BrokerEvent(Enum):
    """What happens to a broker."""

    SYNC = auto()  # the known incarnation syncs
    START = auto()  # a new incarnation syncs
    TIMEOUT = auto()  # no sync for ``liveness_s``
    DRAIN = auto()  # an operator takes it out of service
    UNDRAIN = auto()  # an operator takes the drain back
    DEATH = auto()  # there is proof that its incarnation ended
    FORGET = auto()  # an operator drops it


_S, _E = BrokerState, BrokerEvent

TRANSITIONS: dict[BrokerState, dict[BrokerEvent, BrokerState]] = {
    _S.UNKNOWN: {_E.START: _S.LIVE},
    _S.EXPECTED: {
        _E.SYNC: _S.LIVE,
        _E.START: _S.LIVE,
        _E.TIMEOUT: _S.SILENT,
        _E.DEATH: _S.DEAD,
        _E.FORGET: _S.UNKNOWN,
    },
    _S.LIVE: {
        _E.SYNC: _S.LIVE,
        _E.START: _S.LIVE,
        _E.TIMEOUT: _S.SILENT,
        _E.DRAIN: _S.DRAINING,
        _E.DEATH: _S.DEAD,
        _E.FORGET: _S.UNKNOWN,
    },
    _S.SILENT: {
        _E.SYNC: _S.LIVE,
        _E.START: _S.LIVE,
        _E.DEATH: _S.DEAD,
        _E.FORGET: _S.UNKNOWN,
    },
    _S.DRAINING: {
        _E.SYNC: _S.DRAINING,
        _E.START: _S.LIVE,  # started again: it is in service
        _E.TIMEOUT: _S.DRAINING,
        _E.DRAIN: _S.DRAINING,
        _E.DEATH: _S.DEAD,
        _E.FORGET: _S.UNKNOWN,
    },
    _S.DEAD: {
        _E.START: _S.LIVE,  # no SYNC: a dead incarnation is not heard again
        _E.UNDRAIN: _S.DEAD,  # it may be started again; while it still drains it cannot turn back
        _E.DEATH: _S.DEAD,
        _E.FORGET: _S.UNKNOWN,
    },
}


def next_state(state: BrokerState, event: BrokerEvent) -> BrokerState | None:
    """The state after ``event``; None: ``event`` is not allowed in ``state``."""
    return TRANSITIONS[state].get(event)
