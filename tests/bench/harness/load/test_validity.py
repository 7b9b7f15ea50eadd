"""Why a run does not count: each reason by itself, at its bound and beyond."""

import pytest

from bench.harness.load.validity import why_invalid
from tests.support.run_results import result, target


def test_an_undisturbed_run_is_valid():
    assert why_invalid(result(), 99.0) == []


def test_what_the_generator_says_of_itself_stands_first():
    reasons = why_invalid(result(valid=False, reasons=["it was late"], lost=1), 99.0)
    assert reasons[0] == "it was late"
    assert len(reasons) == 2


@pytest.mark.parametrize(
    ("percentile", "allowed", "too_much"),
    [(99.0, 0.01, 0.0101), (99.9, 0.0009, 0.0011), (50.0, 0.01, 0.0101)],
)
def test_steal_may_be_as_much_as_the_percentile_leaves_out_and_one_percent(percentile, allowed, too_much):
    assert why_invalid(result(steal_share=allowed), percentile) == []
    [reason] = why_invalid(result(steal_share=too_much), percentile)
    assert f"gave {too_much:.2%} of the processors' time to others (steal)" in reason


@pytest.mark.parametrize("taken", [{"throttled_periods": 3, "throttled_s": 0.25}, {"throttled_periods": 1}])
def test_a_quota_that_was_used_up_spoils_a_run(taken):
    [reason] = why_invalid(result(**taken), 99.0)
    assert "CPU quota" in reason
    assert f"in {taken['throttled_periods']} periods" in reason


def test_a_topic_of_which_nothing_came_spoils_a_run_beside_others_of_which_something_did():
    [reason] = why_invalid(result(targets=[target("cars", received=100), target("bikes")]), 99.0)
    assert reason == "no measured message of bikes was received"


def test_where_nothing_came_at_all_the_generators_own_reason_is_enough():
    found = result(received=0, targets=[target("cars"), target("bikes")], reasons=["nothing was received"])
    assert why_invalid(found, 99.0) == ["nothing was received"]


def test_losses_spoil_a_run_and_refusals_do_not():
    [reason] = why_invalid(result(lost=2, received=98), 99.0)
    assert reason.startswith("2 of 100 messages were sent and neither refused nor received")
    assert why_invalid(result(refused=5, received=95), 99.0) == []
