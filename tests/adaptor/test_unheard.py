"""Brokers of which nothing was told yet: silence is no word that nothing comes there."""

from __future__ import annotations

import pytest

from adaptor.observations import Bin, Envelope, Member, Shares
from adaptor.policy import Policy
from srtm.token_bucket.fitted_split import Traffic, fitted_bucket
from srtm.topics.adaptation import Adaptation
from srtm.units import MICRO

ENVELOPE = Envelope(rate_micro=440 * MICRO, burst_micro=60 * MICRO)
DECLARED = (220.0, 180.0)


def dealt() -> Shares:
    return fitted_bucket(ENVELOPE.rate_micro, ENVELOPE.burst_micro, [Traffic(rate=rate) for rate in DECLARED])


def members() -> list[Member]:
    return [
        Member(name=name, share=share, declared=rate) for name, share, rate in zip("ab", dealt(), DECLARED, strict=True)
    ]


def asked(policy: Policy, at_s: float) -> Shares | None:
    return policy.propose(at_s, ENVELOPE, members())


def test_a_report_of_one_broker_leaves_the_declared_split_until_the_other_was_heard() -> None:
    policy = Policy("fitted", Adaptation())
    policy.observe("b", [Bin(16)])
    assert asked(policy, 10.0) is None
    policy.observe("b", [Bin(18)] * 5)
    assert asked(policy, 10.5) is None
    policy.observe("a", [Bin(22)] * 6)
    assert asked(policy, 10.7) is None


def test_who_is_silent_for_two_seconds_has_no_traffic_and_the_moment_is_told() -> None:
    policy = Policy("fitted", Adaptation())
    policy.observe("b", [Bin(18)] * 10)
    assert asked(policy, 10.0) is None
    assert policy.due_s == pytest.approx(12.0)
    policy.observe("b", [Bin(18, work=59.0)] * 20)
    shares = asked(policy, 12.0)
    assert shares is not None
    assert shares[1][0] > 390 * MICRO
    assert policy.due_s is None


def test_a_broker_that_nobody_could_hear_is_waited_for_anew() -> None:
    policy = Policy("fitted", Adaptation())
    policy.observe("b", [Bin(18)] * 10)
    assert asked(policy, 10.0) is None
    policy.disconnected()
    policy.observe("b", [Bin(18, work=59.0)] * 20)
    assert asked(policy, 35.0) is None
    assert asked(policy, 36.9) is None
    assert asked(policy, 37.1) is not None


def test_a_backlog_is_answered_before_the_other_broker_was_heard_and_leaves_it_what_it_declared() -> None:
    policy = Policy("fitted", Adaptation())
    policy.observe("b", [Bin(18, waiting=400)] * 5)
    shares = asked(policy, 10.0)
    assert shares is not None
    assert shares[0][0] >= 220 * MICRO * 0.999
    assert shares[1][0] > dealt()[1][0]


def test_proportional_takes_a_broker_for_idle_that_stays_silent() -> None:
    policy = Policy("proportional", Adaptation())
    policy.observe("b", [Bin(18)])
    assert asked(policy, 10.0) is None
    policy.observe("b", [Bin(18)] * 10)
    assert asked(policy, 11.0) is None
    assert asked(policy, 12.9) is None
    shares = asked(policy, 13.0)
    assert shares is not None
    assert shares[1][0] > 400 * MICRO
