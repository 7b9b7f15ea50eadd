"""What the distributor does not take."""

from __future__ import annotations

from itertools import pairwise

import pytest

from adaptor.observations import Bin, Envelope, Member, Shares
from adaptor.policy import Policy
from srtm.topics.adaptation import Adaptation
from srtm.units import MICRO

ENVELOPE = Envelope(rate_micro=11_000 * MICRO, burst_micro=25 * MICRO)
EVEN: Shares = [(5_500 * MICRO, 12_500_000)] * 2


def members() -> list[Member]:
    return [Member(name=name, share=share) for name, share in zip(("b0", "b1"), EVEN, strict=True)]


def moved(policy: Policy) -> None:
    policy.observe("b0", [Bin(100)])
    policy.observe("b1", [Bin(900)])


def test_what_is_refused_is_proposed_again_after_pauses_that_grow_to_two_seconds() -> None:
    policy, proposed = Policy("fitted", Adaptation()), []
    for tick in range(200):
        moved(policy)
        if policy.propose(tick / 10, ENVELOPE, members()) is not None:
            policy.note_answer(tick / 10, taken=False)
            proposed.append(tick / 10)
    pauses = [after - before for before, after in pairwise(proposed)]
    assert pauses[0] == pytest.approx(0.2)
    assert pauses[-1] == pytest.approx(2.0)
    assert len(proposed) <= 14


def test_a_refused_proposal_is_made_again_although_nothing_more_is_told() -> None:
    policy = Policy("fitted", Adaptation())
    moved(policy)
    shares = policy.propose(1.0, ENVELOPE, members())
    assert shares is not None
    policy.note_answer(1.0, taken=False)
    assert policy.due_s == pytest.approx(1.2)
    assert policy.propose(1.1, ENVELOPE, members()) is None
    assert policy.propose(1.2, ENVELOPE, members()) == shares


def test_once_one_is_taken_the_pause_is_short_again() -> None:
    policy, at_s = Policy("fitted", Adaptation()), 1.0
    for taken in (False, False, False, True, False):
        moved(policy)
        assert policy.propose(at_s, ENVELOPE, members()) is not None
        policy.note_answer(at_s, taken=taken)
        at_s = policy.due_s or at_s + 0.2
    assert at_s == pytest.approx(1.0 + 0.2 + 0.4 + 0.8 + 0.2 + 0.2)
