"""What the distributor does not take."""

from __future__ import annotations

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


def test_a_refused_proposal_is_made_again_after_a_second_although_nothing_more_is_told() -> None:
    policy = Policy("fitted", Adaptation())
    moved(policy)
    shares = policy.propose(1.0, ENVELOPE, members())
    assert shares is not None
    policy.note_answer(1.0, taken=False)
    assert policy.due_s == pytest.approx(2.0)
    assert policy.propose(1.9, ENVELOPE, members()) is None
    assert policy.propose(2.0, ENVELOPE, members()) == shares
