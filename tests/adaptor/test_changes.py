"""Changes that brokers tell before their bins are over: when the adaptor answers them, and with what."""

from __future__ import annotations

import pytest

from adaptor.observations import Bin, Change, Envelope, Member, Shares
from adaptor.policy import Policy
from adaptor.topics import BIN_NS, TopicStates, change_of
from srtm.control import HistoryAnswer, RateChange
from srtm.topics.adaptation import Adaptation
from srtm.units import MICRO
from tests.adaptor.test_topics import counts, history, told

ENVELOPE = Envelope(rate_micro=11_000 * MICRO, burst_micro=25 * MICRO)
UNEVEN: Shares = [(9_750 * MICRO, 12_500_000), (1_250 * MICRO, 12_500_000)]
FELL, ROSE = Change(20, 0.02), Change(180, 0.02, waiting=155)


def members(count: int = 2) -> list[Member]:
    shares = [*UNEVEN, (1 * MICRO, 1 * MICRO), (1 * MICRO, 1 * MICRO)][:count]
    return [Member(name=f"b{at}", share=share) for at, share in enumerate(shares)]


def settled(*rates: float) -> Policy:
    policy = Policy("fitted", Adaptation())
    for at, rate in enumerate(rates):
        policy.observe(f"b{at}", [Bin(round(rate / 10))] * 50)
    return policy


def test_one_side_of_a_move_waits_for_the_other_and_both_are_answered_at_once() -> None:
    policy = settled(9_000, 1_000)
    policy.note_change("b1", ROSE, 5.0)
    assert policy.propose(5.0, ENVELOPE, members()) is None
    assert policy.due_s == pytest.approx(5.05)
    policy.note_change("b0", FELL, 5.02)
    shares = policy.propose(5.02, ENVELOPE, members())
    assert shares is not None
    assert shares[0][0] < 1_200 * MICRO  # most of the slack is for whoever has a backlog
    assert sum(rate for rate, _ in shares) == ENVELOPE.rate_micro
    assert policy.due_s is None


def test_what_no_other_broker_explains_is_answered_after_a_moment() -> None:
    policy = settled(5_000, 1_000)
    policy.note_change("b1", Change(80, 0.02, waiting=60), 5.0)
    assert policy.propose(5.04, ENVELOPE, members()) is None
    shares = policy.propose(5.05, ENVELOPE, members())
    assert shares is not None
    assert shares[1][0] > 4_000 * MICRO


def test_where_less_comes_and_nowhere_more_shares_stay_for_a_second() -> None:
    policy = settled(9_000, 1_000)
    policy.note_change("b0", Change(0, 0.02), 5.0)
    assert policy.propose(5.05, ENVELOPE, members()) is None
    assert policy.due_s == pytest.approx(6.0)
    assert policy.propose(5.99, ENVELOPE, members()) is None
    assert policy.propose(6.0, ENVELOPE, members()) is not None


def test_what_stood_still_and_goes_on_as_it_was_keeps_its_share() -> None:
    policy = settled(9_000, 1_000)
    policy.note_change("b0", Change(0, 0.06), 5.0)
    assert policy.propose(5.05, ENVELOPE, members()) is None
    policy.observe("b0", [Bin(540 + 360), Bin(900), Bin(900)])
    kept = [Member(name="b0", share=UNEVEN[0]), Member(name="b1", share=UNEVEN[1])]
    assert policy.propose(5.3, ENVELOPE, kept) is None
    assert not policy.is_settling


def test_a_rise_after_a_fall_is_answered_though_less_comes_in_all() -> None:
    policy = settled(9_000, 1_000)
    policy.note_change("b0", Change(0, 0.02), 5.0)
    assert policy.propose(5.05, ENVELOPE, members()) is None
    policy.note_change("b1", Change(100, 0.02, waiting=80), 5.1)
    shares = policy.propose(5.15, ENVELOPE, members())
    assert shares is not None
    assert shares[1][0] > 5_000 * MICRO


def test_a_rise_that_bins_have_shown_already_is_answered_when_it_is_told_though_as_a_smaller_one() -> None:
    policy = settled(9_000, 1_000)
    policy.note_change("b0", FELL, 5.0)
    policy.observe("b1", [Bin(800, waiting=600)])
    policy.note_change("b1", Change(700, 0.1, waiting=700), 5.02)
    assert policy.propose(5.02, ENVELOPE, members()) is not None


def test_traffic_that_bins_showed_to_have_come_is_none_that_is_missing_when_a_fall_is_told_behind_it() -> None:
    policy = settled(9_000, 1_000)
    policy.observe("b1", [Bin(800, waiting=600)])
    policy.note_change("b0", FELL, 5.0)
    assert policy.propose(5.05, ENVELOPE, members()) is not None


def test_those_whose_traffic_stays_are_not_waited_for_once_the_rates_add_up() -> None:
    policy = settled(9_000, 1_000, 300, 300)
    policy.note_change("b1", ROSE, 5.0)
    assert policy.propose(5.0, ENVELOPE, members(4)) is None
    policy.note_change("b0", FELL, 5.01)
    assert policy.propose(5.01, ENVELOPE, members(4)) is not None


def test_a_change_is_answered_within_the_pause_after_other_shares() -> None:
    policy = settled(9_000, 1_000)
    policy.observe("b1", [Bin(100, waiting=500)] * 2)
    assert policy.propose(4.99, ENVELOPE, members()) is not None
    policy.note_change("b1", ROSE, 5.0)
    policy.note_change("b0", FELL, 5.0)
    assert policy.propose(5.0, ENVELOPE, members()) is not None


def test_who_is_asked_within_the_pause_says_when_to_ask_again() -> None:
    policy = settled(9_000, 1_000)
    policy.observe("b1", [Bin(100, waiting=500)] * 2)
    assert policy.propose(5.0, ENVELOPE, members()) is not None
    assert policy.propose(5.1, ENVELOPE, members()) is None
    assert policy.due_s == pytest.approx(5.2)
    assert policy.propose(5.2, ENVELOPE, members()) is not None


@pytest.mark.parametrize("mode", ["static", "proportional", "central", "gdrl"])
def test_other_modes_keep_to_their_bins(mode: str) -> None:
    policy = Policy(mode, Adaptation())  # type: ignore[arg-type]
    policy.note_change("b0", FELL, 5.0)
    assert policy.due_s is None


@pytest.mark.parametrize(
    ("since_bins", "mixed", "known"), [(-3.5, 0, 3), (0.0, 0, 0), (0.2, 1, 0), (1.0, 1, 0), (1.1, 2, 0)]
)
def test_bins_to_come_that_began_before_a_change_are_mixed(since_bins: float, mixed: int, known: int) -> None:
    end_ns = 50 * BIN_NS
    change = RateChange(since_ns=end_ns + round(since_bins * BIN_NS), span_ns=20_000_000, arrivals=1, waiting=2)
    assert change_of(change, end_ns) == Change(1, 0.02, 2, mixed, known)


def test_a_book_proposes_when_the_moment_is_over_although_nothing_more_was_told() -> None:
    book = TopicStates()
    book.take(told(("b1", history(0, counts(500, 50, 1))), ("b2", history(0, counts(500, 50, 2)))), 5.0)
    change = RateChange(since_ns=50 * BIN_NS, span_ns=20_000_000, arrivals=180, waiting=60)
    assert book.take(told(("b1", history(50, [], change=change))), 5.02) == []
    assert book.due_s == pytest.approx(5.07)
    assert book.take(HistoryAnswer(version=2), 5.06) == []
    (found,) = book.take(HistoryAnswer(version=2), 5.07)
    assert found.shares["b1"].rate > 6_000
    assert book.due_s == float("inf")
