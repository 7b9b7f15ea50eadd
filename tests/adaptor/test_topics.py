from __future__ import annotations

import math
import random

import msgspec
import pytest

from adaptor.observations import Change
from adaptor.topics import BIN_NS, TopicStates, bins_of, change_of
from srtm.control import (
    BrokerHistory,
    BrokerTraits,
    HistoryAnswer,
    RateChange,
    Share,
    ShareProposal,
    TopicHistories,
    TopicHistory,
    TopicTraits,
)

SHARES = {"b1": (5_500.0, 12.5), "b2": (5_500.0, 12.5)}


def history(start: int, arrivals: list[int], **changes: object) -> TopicHistory:
    made = {"waiting": [0] * len(arrivals), "unfinished": [5.0] * len(arrivals)}
    return TopicHistory(
        topic="cars",
        share_version=1,
        first_ns=start * BIN_NS,
        arrivals=arrivals,
        **{**made, **changes},  # type: ignore[arg-type]
    )


def told(
    *reports: tuple[str, TopicHistory], mode: str = "fitted", shares: object = None, capacity: float = 9_500.0
) -> HistoryAnswer:
    given = SHARES if shares is None else shares
    assert isinstance(given, dict)
    topic = TopicHistories(
        topic="cars",
        mode=mode,
        rate=11_000.0,
        burst=25.0,
        version=7,
        shares={name: Share(version=7, rate=rate, burst=burst) for name, (rate, burst) in given.items()},
        reports=[BrokerHistory(broker=name, history=one) for name, one in reports],
        traits=TopicTraits(brokers={"b1": BrokerTraits(capacity=capacity), "b2": BrokerTraits(capacity=9_500.0)}),
    )
    return HistoryAnswer(version=1, topics=[topic])


def after(proposals: list[ShareProposal]) -> dict[str, tuple[float, float]]:
    return {name: (share.rate, share.burst) for name, share in proposals[0].shares.items()}


def counts(mean: int, number: int, seed: int) -> list[int]:
    dice = random.Random(seed)
    return [max(0, round(dice.gauss(mean, mean**0.5))) for _ in range(number)]


def leap(arrivals: int, waiting: int = 0) -> RateChange:
    """So many messages in the 20 ms from 5 s on."""
    return RateChange(since_ns=50 * BIN_NS, span_ns=20_000_000, arrivals=arrivals, waiting=waiting)


def test_a_leap_is_answered_with_shares_that_sum_to_the_envelope_within_what_brokers_can_process() -> None:
    book = TopicStates()
    book.take(told(("b1", history(0, counts(500, 50, 1))), ("b2", history(0, counts(500, 50, 2)))), 5.0)
    found = book.take(told(("b1", history(50, [], change=leap(20))), ("b2", history(50, [], change=leap(180)))), 5.2)
    assert (found[0].mode, found[0].version) == ("fitted", 7)
    shares = after(found)
    assert sum(rate for rate, _ in shares.values()) == 11_000.0
    assert sum(burst for _, burst in shares.values()) == 25.0
    assert 9_000 < shares["b2"][0] <= 9_500
    assert "b2 9,0" in found[0].reason


@pytest.mark.parametrize("mode", ["fitted", "proportional"])
def test_a_share_that_its_broker_can_process_no_more_shrinks_though_traffic_is_as_it_was(mode: str) -> None:
    book = TopicStates()
    both = [("b1", history(0, counts(500, 100, 1))), ("b2", history(0, counts(500, 100, 2)))]
    assert book.take(told(*both, mode=mode), 10.0) == []
    assert book.take(told(mode=mode, capacity=5_500.0), 11.5) == []
    found = book.take(told(mode=mode, capacity=5_400.0), 13.0)
    assert after(found)["b1"][0] == 5_400.0
    assert after(found)["b2"][0] == 5_600.0
    assert book.take(told(mode=mode, shares=after(found), capacity=5_400.0), 14.5) == []


def test_what_was_told_before_counts_once_and_what_was_lost_does_not_count() -> None:
    book = TopicStates()
    first, ending = history(0, [100] * 30), history(0, [100] * 10 + [0] * 20)
    book.take(told(("b1", first), ("b2", ending), mode="proportional"), 3.0)
    book.take(told(("b1", first), ("b2", history(60, [100] * 30)), mode="proportional"), 9.0)
    found = book.take(told(("b1", history(30, [100] * 60)), ("b2", history(90, [100])), mode="proportional"), 10.0)
    rate = after(found)["b1"][0]
    assert round(rate / 11_000, 2) == 0.6  # b1 100 in each bin, b2 in 41 of 61


def test_traffic_that_left_a_broker_takes_its_tokens_along_once_that_is_told() -> None:
    book = TopicStates()
    both = [("b1", history(0, counts(100, 50, 1))), ("b2", history(0, counts(400, 50, 2)))]
    book.take(told(*both), 5.0)
    ended = history(50, [0] * 10)
    (found,) = book.take(told(("b1", history(50, counts(500, 10, 3), waiting=[900] * 10)), ("b2", ended)), 6.0)
    assert found.shares["b1"].rate == 9_500.0


@pytest.mark.parametrize("steady", [False, True])
def test_silence_is_no_end_of_traffic_whether_it_was_said_to_be_steady_or_reports_are_lost(steady: bool) -> None:
    book, shares = TopicStates(), dict(SHARES)
    last = history(0, [*counts(500, 99, 2), 0], steady=steady)
    book.take(told(("b1", history(0, counts(500, 100, 1))), ("b2", last)), 10.0)
    for second in range(20):
        waits = history(100 + 10 * second, counts(500, 10, 3), waiting=[50] * 10)
        found = book.take(told(("b1", waits), shares=shares), 11.0 + second)
        shares = after(found) if found else shares
    assert shares["b2"][0] > 4_500


def test_a_night_without_traffic_is_no_traffic_however_long_the_window_is() -> None:
    def said(start: int, one: int, other: int) -> HistoryAnswer:
        both = (("b1", history(start, [one] * 99 + [0])), ("b2", history(start, [other] * 99 + [0])))
        answer = told(*both, mode="proportional")
        return msgspec.structs.replace(
            answer,
            topics=[msgspec.structs.replace(answer.topics[0], traits=TopicTraits(window_s=60.0))],
        )

    book = TopicStates()
    for part in range(6):
        book.take(said(100 * part, 10, 90), 10.0 * part + 10)
    book.take(said(300_000, 90, 10), 30_010.0)
    found = book.take(said(300_100, 90, 10), 30_020.0)
    assert after(found)["b1"][0] > 9_500


def test_a_broker_whose_reports_are_late_or_lost_keeps_its_share() -> None:
    book = TopicStates()
    both = [("b1", history(0, counts(500, 50, 1))), ("b2", history(0, counts(500, 50, 2)))]
    book.take(told(*both), 5.0)
    shares = dict(SHARES)
    for second in range(6):
        found = book.take(told(("b1", history(50 + 10 * second, counts(500, 10, second))), shares=shares), 6.0 + second)
        shares = after(found) if found else shares
    late = book.take(told(("b2", history(110, counts(500, 10, 9))), shares=shares), 12.0)
    shares = after(late) if late else shares
    assert 5_300 < shares["b2"][0] < 5_700


def test_reports_that_make_no_sense_are_ignored_and_counted() -> None:
    book = TopicStates()
    nonsense = [
        history(0, [1], waiting=[]),
        history(0, [1], bin_ns=BIN_NS // 2),
    ]
    assert all(bins_of(one) is None for one in nonsense)
    assert book.take(told(*[("b1", one) for one in nonsense]), 1.0) == []
    assert book.ignored == {"b1": 2}


def test_steady_reports_that_say_what_is_known_change_nothing_and_others_move_the_shares() -> None:
    book = TopicStates()
    both = [("b1", history(0, counts(500, 100, 1), steady=True)), ("b2", history(0, counts(500, 100, 2), steady=True))]
    book.take(told(*both), 10.0)
    again = [("b1", history(3_000, counts(500, 100, 3), steady=True)), ("b2", history(3_000, counts(500, 100, 4)))]
    assert book.take(told(*again), 310.0) == []
    found = book.take(told(("b2", history(6_000, counts(900, 100, 5), steady=True))), 610.0)
    assert after(found)["b2"][0] > 6_500


def test_a_mode_that_nobody_adapts_is_left_alone_and_a_switch_begins_with_what_is_known() -> None:
    book = TopicStates()
    moved = [("b1", history(0, counts(100, 50, 1))), ("b2", history(0, counts(900, 50, 2)))]
    assert book.take(told(*moved, mode="static"), 5.0) == []
    assert book.take(told(*moved, mode="proportional"), 5.0) == []  # not before the first interval
    found = book.take(told(mode="fitted"), 5.1)
    assert after(found)["b2"][0] > 9_000


def test_a_topic_that_is_made_anew_inherits_nothing_of_the_one_that_was_removed() -> None:
    book = TopicStates()
    before = [("b1", history(0, counts(900, 50, 1), steady=True)), ("b2", history(0, counts(20, 50, 2), steady=True))]
    assert book.take(told(*before), 5.0) != []
    anew = told(("b1", history(1_000, [500])), ("b2", history(1_000, [500])))
    assert book.take(HistoryAnswer(version=2, topics=anew.topics, gone=["cars"]), 100.0) == []
    assert book.due_s == math.inf


def test_a_topic_that_is_gone_is_asked_for_nothing_more() -> None:
    book = TopicStates()
    assert book.take(told(("b1", history(0, counts(100, 50, 1))), ("b2", history(0, counts(900, 50, 2)))), 5.0)
    book.note_answers({"cars": False}, 5.0)
    assert book.due_s == 6.0
    assert book.take(HistoryAnswer(version=2, gone=["cars"]), 5.01) == []
    assert book.due_s == math.inf


def test_a_topic_on_one_broker_has_nothing_to_split() -> None:
    book = TopicStates()
    assert book.take(told(("b1", history(0, [900] * 50)), shares={"b1": (11_000.0, 25.0)}), 5.0) == []


@pytest.mark.parametrize(
    ("since_bins", "mixed", "known"), [(-3.5, 0, 3), (0.0, 0, 0), (0.2, 1, 0), (1.0, 1, 0), (1.1, 2, 0)]
)
def test_bins_to_come_that_began_before_a_change_are_mixed(since_bins: float, mixed: int, known: int) -> None:
    end_ns = 50 * BIN_NS
    change = RateChange(since_ns=end_ns + round(since_bins * BIN_NS), span_ns=20_000_000, arrivals=1, waiting=2)
    assert change_of(change, end_ns) == Change(1, 0.02, 2, mixed, known)
