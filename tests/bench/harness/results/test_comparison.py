"""What decides between systems: rounds that count, ratios within them, targets, and what is kept of it."""

from __future__ import annotations

import pytest

from bench.harness.results.comparison import (
    AnyOf,
    Bound,
    Figure,
    Mark,
    NoneOf,
    NoWorse,
    Ratio,
    Round,
    Rounds,
    Row,
    Sample,
    Target,
    Turn,
    figures,
    judge,
    ratios,
    why_excluded,
)
from bench.harness.results.intervals import Interval
from bench.harness.results.verdict import Verdict


async def _never(turn: Turn) -> Round:
    raise AssertionError("nothing is measured here")


def row(*targets: Target) -> Row:
    return Row("x", "claim", ("srtm", "nsqd"), (Figure("cost", "cost, us", 1),), targets, lambda: _never)


def a_round(ours: float, theirs: float, *reasons: str, lost: float = 0) -> Round:
    return [Sample("srtm", {"cost": ours, "lost": lost}, reasons), Sample("nsqd", {"cost": theirs, "lost": 0})]


def judged(target: Target, *rounds: Round) -> Verdict:
    return judge(row(target), rounds, {"pairs": len(rounds)})


def test_systems_are_compared_within_rounds_so_that_a_slow_hour_meets_both() -> None:
    rounds = [a_round(1, 4), a_round(10, 40), a_round(100, 400)]
    assert ratios(rounds, "cost", "srtm", "nsqd") == [0.25] * 3
    assert judged(Ratio("cost", "cost", "nsqd", at_most=0.25), *rounds).reached


def test_a_ratio_is_kept_at_its_edge_and_says_what_it_was() -> None:
    assert judged(Ratio("cost", "cost", "nsqd", at_most=0.35), a_round(35, 100)).reached
    assert not judged(Ratio("cost", "cost", "nsqd", at_most=0.35), a_round(36, 100)).reached
    assert judged(Ratio("cost", "speed", "nsqd", at_least=3.0), a_round(300, 100)).reached
    fell_short = judged(Ratio("cost", "speed", "nsqd", at_least=3.0), a_round(299, 100), a_round(250, 100))
    assert fell_short.line == "x: fell short: speed, srtm / nsqd 2.75x (2.5 to 2.99), must be at least 3x"


def test_of_two_bounds_one_is_enough_and_both_are_told() -> None:
    either = AnyOf("load", (Ratio("cost", "load", "nsqd", at_least=3.0), Ratio("cost", "load", "floor", at_least=0.9)))

    def beside(ours: float, theirs: float, floor: float) -> Round:
        return [*a_round(ours, theirs), Sample("floor", {"cost": floor})]

    assert judged(either, beside(300, 100, 1_000)).reached
    assert judged(either, beside(200, 100, 220)).reached
    fell_short = judged(either, beside(200, 100, 400))
    assert fell_short.line.endswith(
        "load 2x (2 to 2) of nsqd; 0.5x (0.5 to 0.5) of floor, must be at least 3x of nsqd, or at least 0.9x of floor"
    )
    assert either.mark([beside(200, 100, 400)]) == Mark("srtm", 300.0)


def test_one_disturbed_round_does_not_decide() -> None:
    rounds = [a_round(30, 100), a_round(500, 100), a_round(31, 100)]
    assert judged(Ratio("cost", "cost", "nsqd", at_most=0.35), *rounds).reached


def test_a_bound_is_on_ours_alone() -> None:
    assert judged(Bound("cost", "memory", 4.0, "KiB"), a_round(4.0, 33.0)).reached
    assert not judged(Bound("cost", "memory", 4.0, "KiB"), a_round(4.1, 1.0)).reached


def test_within_noise_means_that_the_interval_of_the_ratios_holds_one_or_lies_below() -> None:
    unchanged = NoWorse("cost", "p99", "nsqd", "srtm")
    assert judged(unchanged, a_round(11, 10), a_round(9, 10), a_round(12, 10)).reached
    assert judged(unchanged, a_round(5, 10), a_round(6, 10)).reached
    assert not judged(unchanged, a_round(11, 10), a_round(12, 10), a_round(13, 10)).reached


def test_an_interval_that_reaches_far_beyond_one_shows_nothing() -> None:
    rounds = [a_round(9, 10), a_round(20, 10), a_round(50, 10)]
    assert not judged(NoWorse("cost", "p99", "nsqd", "srtm"), *rounds).reached
    assert judged(NoWorse("cost", "p99", "nsqd", "srtm", margin=5.0), *rounds).reached


def test_a_loss_counts_even_in_a_round_that_does_not() -> None:
    late = a_round(1, 1, "late", lost=3)
    verdict = judge(row(NoneOf("lost", "messages lost")), [late, a_round(1, 1)], {"pairs": 1})
    assert [check.measured for check in verdict.checks] == ["3"]
    assert not verdict.reached


def test_a_run_of_ours_that_failed_may_have_lost_anything_and_is_told() -> None:
    failed: Round = [Sample("srtm", {}, ["it ended"]), Sample("nsqd", {"lost": 0})]
    verdict = judge(row(NoneOf("lost", "messages lost")), [failed, a_round(1, 1)], {"pairs": 1})
    assert [check.measured for check in verdict.checks] == ["0, and 1 runs failed"]
    assert not verdict.reached
    assert why_excluded([failed, a_round(1, 1), failed]) == ["srtm: it ended"]
    theirs: Round = [Sample("srtm", {"lost": 0}), Sample("nsqd", {}, ["it ended"])]
    assert judge(row(NoneOf("lost", "messages lost")), [theirs, a_round(1, 1)], {"pairs": 1}).reached


def test_a_round_with_a_sample_that_does_not_count_is_measured_again_but_not_without_end() -> None:
    rounds = Rounds(wanted=2)
    for done, more in (([], True), ([a_round(1, 1, "late")], True), ([a_round(1, 1)] * 2, False)):
        rounds.done += done
        assert rounds.more() is more
    never = Rounds(wanted=2, done=[a_round(1, 1, "late")] * 4)
    assert not never.more()


def test_too_few_rounds_that_count_give_no_verdict_and_say_why() -> None:
    failed: Round = [Sample("srtm", {}, ["it did not come up"]), Sample("nsqd", {"cost": 1.0})]
    verdict = judge(row(Ratio("cost", "cost", "nsqd", at_most=1.0)), [failed, failed], {"pairs": 1})
    assert verdict.line == "x: no verdict: only 0 of 1 rounds were valid; srtm: it did not come up"
    assert figures(row(), [failed]) == []
    assert [run["valid"] for run in verdict.runs] == [False, True, False, True]


def test_figures_are_medians_of_the_rounds_that_count() -> None:
    rounds = [a_round(1, 10), a_round(1000, 10, "late"), a_round(3, 10), a_round(2, 10)]
    (cost,) = figures(row(), rounds)
    assert cost.systems == {"srtm": Interval(2, 1, 3), "nsqd": Interval(10, 10, 10)}
    assert (cost.cell("srtm"), cost.cell("floor")) == ("2.0 (1.0 to 3.0)", "")


def test_a_picture_marks_what_ours_must_reach_in_the_unit_of_the_figure() -> None:
    targets = (
        Ratio("cost", "cost", "nsqd", at_most=0.5),
        Ratio("cost", "speed", "nsqd", at_least=3.0),
        Bound("cost", "cost", 4.0, "us"),
        NoneOf("cost", "faults"),
        NoWorse("cost", "cost", "nsqd", "srtm"),
        Bound("other", "something else", 9.0, "us"),
    )
    (cost,) = figures(row(*targets), [a_round(1, 10), a_round(1, 20), a_round(1, 12)])
    assert cost.marks == [Mark("srtm", 6.0), Mark("srtm", 36.0), Mark("srtm", 4.0)]


def test_runs_are_flat_and_named_by_row_system_and_round() -> None:
    verdict = judged(Bound("cost", "cost", 1.0, "us"), a_round(1, 1), a_round(2, 2))
    assert [run["name"] for run in verdict.runs] == ["x-srtm-0", "x-nsqd-0", "x-srtm-1", "x-nsqd-1"]
    assert verdict.runs[2]["cost"] == 2


def test_a_ratio_to_nothing_is_never_within_a_bound() -> None:
    assert not judged(Ratio("cost", "cost", "nsqd", at_most=9.0), a_round(1, 0)).reached


@pytest.mark.parametrize("theirs", [1.0, 5.0])
def test_a_row_knows_its_figures_by_their_keys(theirs: float) -> None:
    assert row().figure("cost").label == "cost, us"
    assert ratios([a_round(theirs, theirs)], "cost", "srtm", "nsqd") == [1.0]
