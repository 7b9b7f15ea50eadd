"""The table of phases: every event has a place in it."""

from __future__ import annotations

import pytest

from broker.history.phase import TRANSITIONS, Event, Phase


@pytest.mark.parametrize("event", Event)
def test_every_event_leads_somewhere_from_every_phase(event: Event) -> None:
    assert TRANSITIONS[event].keys() == set(Phase)


def test_only_a_report_that_says_so_makes_traffic_steady() -> None:
    leads = {event for event, rows in TRANSITIONS.items() for old, new in rows.items() if new is Phase.STEADY != old}
    assert leads == {Event.SENT_STEADY}


def test_a_lost_report_or_a_disturbance_ends_what_is_known() -> None:
    assert {TRANSITIONS[event][Phase.STEADY] for event in (Event.LOST, Event.DISTURBED)} == {Phase.ACTIVE}
    assert TRANSITIONS[Event.LOST][Phase.IDLE] is Phase.ACTIVE
