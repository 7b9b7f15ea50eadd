"""The default policy: rates of the even split, and the bursts that would have delayed least."""

from __future__ import annotations

from itertools import pairwise

import pytest

from adaptor.observations import Bin, Change, Envelope, Member, Shares
from adaptor.policies.fitted import Fitted
from srtm.units import MICRO

ENVELOPE = Envelope(rate_micro=1_100 * MICRO, burst_micro=30 * MICRO)
HALVES: Shares = [(550 * MICRO, 15 * MICRO)] * 2


def members(shares: Shares = HALVES, declared: tuple[float, ...] = (500.0, 500.0)) -> list[Member]:
    return [
        Member(name=f"b{at}", share=share, declared=rate)
        for at, (share, rate) in enumerate(zip(shares, declared, strict=True))
    ]


def asked(fitted: Fitted, shares: Shares = HALVES, *, is_hearing: bool = False) -> Shares | None:
    return fitted.propose(ENVELOPE, members(shares), floor=0.01, is_hearing=is_hearing)


def fed(*bins: list[Bin], shares: Shares = HALVES) -> Fitted:
    fitted = Fitted()
    asked(fitted, shares)
    for at, of_broker in enumerate(bins):
        fitted.observe(f"b{at}", of_broker)
    return fitted


def test_rates_follow_the_traffic_before_anybody_waits_and_the_bursts_stay() -> None:
    shares = asked(fed([Bin(10, work=2.0)] * 50, [Bin(50, work=12.0)] * 50))
    assert shares is not None
    assert shares[0][0] < 300 * MICRO
    assert [burst for _, burst in shares] == [15 * MICRO] * 2


def test_shares_stay_while_no_broker_clearly_lacks_slack() -> None:
    assert asked(fed([Bin(48, work=2.0)] * 50, [Bin(50, work=12.0)] * 50)) is None
    assert asked(fed([Bin(1)] * 50, [Bin(1, work=3.0)] * 50)) is None
    assert asked(Fitted()) is None


def test_shares_that_are_less_than_the_envelope_stay_while_no_broker_lacks_slack() -> None:
    less: Shares = [(540 * MICRO, 14 * MICRO)] * 2
    assert asked(fed([Bin(48, work=2.0)] * 50, [Bin(50, work=12.0)] * 50, shares=less), less) is None


def test_what_waits_gets_what_the_other_can_spare_and_the_bursts_stay() -> None:
    shares = asked(fed([Bin(10)] * 20, [Bin(90, waiting=300)] * 20))
    assert shares is not None
    assert shares[1][0] > 950 * MICRO
    assert shares[0][0] >= 99 * MICRO
    assert [burst for _, burst in shares] == [15 * MICRO] * 2


def test_while_messages_wait_the_tokens_of_who_had_nothing_for_a_second_are_free() -> None:
    left = [*[Bin(50)] * 40, *[Bin(0)] * 10]
    waits = asked(fed(left, [Bin(90, waiting=300)] * 20))
    assert waits is not None
    assert waits[1][0] > 1_050 * MICRO
    nobody = asked(fed(left, [Bin(60)] * 20))  # more comes than the share lets go: nothing waits yet
    assert nobody is not None
    assert nobody[0][0] > 400 * MICRO


def test_bursts_follow_clumps_that_wait_for_ever_although_messages_wait_whenever_one_looks() -> None:
    left: Shares = [(20 * MICRO, 25 * MICRO), (1_080 * MICRO, 5 * MICRO)]
    shares = asked(fed([Bin(0)] * 50, [Bin(90, waiting=10, work=25.0)] * 50, shares=left), left)
    assert shares is not None
    assert shares[1][1] > 20 * MICRO


def test_who_gets_more_than_its_share_lets_go_is_not_waited_for_to_have_a_backlog() -> None:
    fitted = fed([Bin(50)] * 10, [Bin(50)] * 10)
    fitted.note_change("b1", Change(arrivals=18, span_s=0.02))
    shares = asked(fitted)
    assert shares is not None
    assert shares[1][0] > 600 * MICRO


def test_bursts_follow_where_the_last_ten_seconds_would_have_waited_less() -> None:
    shares = asked(fed([Bin(20, work=2.0)] * 50, [Bin(50, work=22.0)] * 50))
    assert shares is not None
    assert shares[1][1] > 20 * MICRO


def test_bursts_stay_while_nothing_can_be_replayed_of_a_broker_that_gets_messages() -> None:
    fitted = fed([Bin(48, work=27.0)] * 10)
    fitted.note_change("b1", Change(arrivals=10, span_s=0.02))
    assert asked(fitted) is None
    fitted.observe("b1", [Bin(48, work=3.0)] * 2)  # the first one began before the change
    shares = asked(fitted)
    assert shares is not None
    assert shares[0][1] > 25 * MICRO


def test_a_split_that_came_out_worse_than_the_one_before_is_taken_back() -> None:
    """Clumps of 14 on both brokers: the split before was right for them, and nobody asked for another."""
    fitted, skewed = Fitted(), [(550 * MICRO, 25 * MICRO), (550 * MICRO, 5 * MICRO)]
    asked(fitted)
    asked(fitted, skewed)
    for name in ("b0", "b1"):
        fitted.observe(name, [Bin(40, work=14.0)] * 50)
    assert asked(fitted, skewed) in (HALVES, [(550 * MICRO, 15 * MICRO)] * 2)


def test_an_advantage_of_less_than_a_tenth_moves_no_share() -> None:
    fitted = fed([Bin(40, work=16.0)] * 50, [Bin(41, work=16.1)] * 50)
    assert asked(fitted) is None


def test_once_the_best_is_in_force_nothing_more_is_proposed() -> None:
    fitted = fed([Bin(20, work=2.0)] * 50, [Bin(50, work=22.0)] * 50)
    first = asked(fitted)
    assert first is not None
    assert asked(fitted, first) is None


def test_while_some_are_not_heard_shares_move_only_where_messages_wait() -> None:
    fitted = Fitted()
    asked(fitted)
    fitted.observe("b1", [Bin(40, work=29.0)] * 50)
    assert asked(fitted, is_hearing=True) is None
    fitted.observe("b1", [Bin(40, waiting=100)])
    shares = asked(fitted, is_hearing=True)
    assert shares is not None
    assert shares[0][0] >= 500 * MICRO, "what was declared and is not seen elsewhere"


def test_what_is_seen_elsewhere_is_not_expected_of_a_broker_that_was_not_heard() -> None:
    fitted = Fitted()
    fitted.observe("b1", [Bin(100, waiting=at * 45) for at in range(10)])
    shares = asked(fitted, is_hearing=True)
    assert shares is not None
    assert shares[1][0] > 1_000 * MICRO


@pytest.mark.parametrize("gone", ["b0", "b1"])
def test_a_broker_that_was_forgotten_counts_no_more(gone: str) -> None:
    fitted = fed([Bin(50)] * 10, [Bin(50)] * 10)
    fitted.forget(gone)
    assert not fitted.has_reported(gone)
    assert fitted.rate(gone) == 0.0


def test_a_backlog_is_drained_without_a_swing() -> None:
    """Ten reports of a backlog that shrinks: the share of who has it never grows again."""
    fitted, found = fed([Bin(10)] * 20, [Bin(90)] * 20), []
    shares = HALVES
    for at in range(10):
        fitted.observe("b0", [Bin(10)])
        fitted.observe("b1", [Bin(90, waiting=1_000 - 100 * at)])
        shares = asked(fitted, shares) or shares
        found.append(shares[1][0])
    assert all(after <= before for before, after in pairwise(found))
