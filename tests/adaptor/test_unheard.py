"""Brokers of which nothing was told yet: silence is no word that nothing comes there."""

from __future__ import annotations

import pytest

from adaptor.observations import Bin, Change, Envelope, Member, Shares
from adaptor.policies.expectation import Expected, expected
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
    assert asked(policy, 10.6) is None


def test_who_is_silent_for_two_seconds_has_no_traffic_and_the_moment_is_told() -> None:
    policy = Policy("fitted", Adaptation())
    policy.observe("b", [Bin(38)] * 10)
    assert asked(policy, 10.0) is None
    assert policy.due_s == pytest.approx(12.0)
    policy.observe("b", [Bin(38)] * 20)
    shares = asked(policy, 12.0)
    assert shares is not None
    assert shares[1][0] > 390 * MICRO
    assert policy.due_s is None


def test_a_broker_that_nobody_could_hear_is_waited_for_anew() -> None:
    policy = Policy("fitted", Adaptation())
    policy.observe("b", [Bin(38)] * 10)
    assert asked(policy, 10.0) is None
    policy.disconnected()
    assert asked(policy, 35.0) is None
    assert asked(policy, 36.9) is None
    assert asked(policy, 37.0) is not None


def test_an_idle_bin_from_before_the_traffic_began_is_no_word_of_what_comes_since() -> None:
    policy = Policy("fitted", Adaptation())
    for name in "ab":
        policy.observe(name, [Bin(0)])
    assert asked(policy, 10.1) is None
    policy.observe("b", [Bin(18)] * 10)
    assert asked(policy, 11.0) is None
    policy.observe("a", [Bin(22)] * 10)
    assert asked(policy, 11.005) is None


def test_beside_idle_bins_of_the_other_a_backlog_leaves_that_one_what_it_declared() -> None:
    policy = Policy("fitted", Adaptation())
    policy.observe("a", [Bin(0)])
    policy.observe("b", [Bin(18, waiting=400)] * 5)
    shares = asked(policy, 10.0)
    assert shares is not None
    assert shares[0][0] >= 220 * MICRO


def test_who_said_for_two_seconds_that_nothing_comes_is_believed_at_once() -> None:
    policy = Policy("fitted", Adaptation())
    policy.observe("a", [Bin(0)] * 20)
    policy.observe("b", [Bin(38)] * 20)
    shares = asked(policy, 12.0)
    assert shares is not None
    assert shares[1][0] > 390 * MICRO


def test_that_the_traffic_of_a_broker_ended_is_believed_after_a_bin() -> None:
    policy = Policy("fitted", Adaptation())
    policy.observe("a", [*[Bin(22)] * 20, Bin(0)])
    policy.observe("b", [Bin(38)] * 21)
    assert asked(policy, 12.0) is not None


def test_a_backlog_is_answered_before_the_other_broker_was_heard_and_leaves_it_what_it_declared() -> None:
    policy = Policy("fitted", Adaptation())
    policy.observe("b", [Bin(18, waiting=400)] * 5)
    shares = asked(policy, 10.0)
    assert shares is not None
    assert shares[0][0] >= 220 * MICRO
    assert shares[1][0] > dealt()[1][0]


def test_proportional_waits_for_two_seconds_for_a_broker_that_told_of_an_idle_bin_alone() -> None:
    policy = Policy("proportional", Adaptation())
    for name in "ab":
        policy.observe(name, [Bin(0)])
    assert asked(policy, 10.0) is None
    policy.observe("b", [Bin(18)] * 10)
    assert asked(policy, 11.0) is None
    policy.observe("a", [Bin(22)] * 10)
    shares = asked(policy, 11.005)
    assert shares is None or shares[0][0] > 200 * MICRO


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


def test_few_messages_of_one_side_do_not_explain_a_move() -> None:
    policy = Policy("fitted", Adaptation())
    for name, arrivals in (("a", 4), ("b", 8)):
        policy.observe(name, [Bin(arrivals)] * 30)
    policy.note_change("b", Change(2, 0.02, waiting=100), 5.0)  # 20 msg/s more, known to within 50
    assert asked(policy, 5.0) is None
    assert asked(policy, 5.05) is not None


def test_what_is_missing_is_expected_where_less_comes_than_was_declared_if_little_is_known_there() -> None:
    silent, busy = expected([Expected(0.0, 220.0), Expected(160.0, 40.0)], DECLARED)
    assert silent.rate == pytest.approx(220.0)
    assert busy.rate == pytest.approx(180.0)


def test_what_is_missing_where_it_is_known_to_be_missing_is_expected_where_traffic_is() -> None:
    silent, busy = expected([Expected(0.0, 0.1), Expected(160.0, 4.0)], DECLARED)
    assert busy.rate > 280.0
    assert silent.rate < 120.0
