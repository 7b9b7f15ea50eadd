"""The comparison with nsqd: what decides it, and what a run's processor time is divided by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import systems
from bench.nsqd import CpuMeter, Sample, comparison, judge, markdown, plan, sides
from bench.run import RunProgress
from bench.systems import System, peer
from srtm.errors import InternalError, Unavailable

OURS = Sample("srtm", 1, 100, 100, 100, 0, 0, 0.1, 0.5, 1.0, 0.05, 20.0, [])
NSQD = replace(OURS, name="nsqd", p99_ms=1.0, cpu_us=50.0)
SETTINGS: dict[str, object] = {"pairs": 1, "seconds": 5.0}


def missed(*samples: Sample) -> list[str]:
    return [check.what for check in judge(samples, SETTINGS).checks if not check.kept]


def test_the_load_is_a_thousand_publishers_at_ten_messages_a_second() -> None:
    asked = plan("127.0.0.1:1", 5.0, 1)
    assert len(set(asked.publishers.ids)) == 1_000
    assert sum(asked.publishers.rate) == 10_000
    assert asked.message_size == 100
    assert set(asked.publishers.group) == {-1}


def test_no_loss_p99_no_worse_and_half_the_processor_time_reach_it() -> None:
    assert judge([OURS, NSQD], SETTINGS).line == "nsqd: reached"
    assert missed(replace(OURS, p99_ms=1.0), NSQD) == []
    assert missed(replace(OURS, p99_ms=1.01), NSQD) == ["p99"]
    assert missed(replace(OURS, cpu_us=25.1), NSQD) == ["processor time a message"]
    assert missed(replace(OURS, lost=1), NSQD) == ["messages lost by our broker"]
    assert missed(OURS, replace(NSQD, lost=1)) == []


def test_medians_decide_so_that_one_disturbed_pair_does_not() -> None:
    samples = [OURS, NSQD, replace(OURS, p99_ms=50.0), NSQD, OURS, NSQD]
    assert judge(samples, {**SETTINGS, "pairs": 3}).reached


def test_a_pair_with_a_run_that_does_not_count_is_left_out_but_recorded() -> None:
    samples = [OURS, replace(NSQD, reasons=["late"]), replace(OURS, p99_ms=0.7), NSQD]
    assert [ours.p99_ms for ours in sides(samples)[0]] == [0.7]
    verdict = judge(samples, SETTINGS)
    assert verdict.reached
    assert [run["valid"] for run in verdict.runs] == [True, False, True, True]


def test_a_loss_counts_even_in_a_pair_that_does_not() -> None:
    samples = [replace(OURS, lost=3), replace(NSQD, reasons=["late"]), OURS, NSQD]
    assert missed(*samples) == ["messages lost by our broker"]


def test_too_few_valid_pairs_give_no_verdict_and_no_rows() -> None:
    samples = [OURS, replace(NSQD, reasons=["late"])]
    assert judge(samples, SETTINGS).line == "nsqd: no verdict: only 0 of 1 pairs were valid"
    assert comparison(samples) == []


def test_the_table_shows_the_median_and_the_spread_of_both() -> None:
    samples = [OURS, NSQD, replace(OURS, p99_ms=0.7), NSQD, replace(OURS, p99_ms=0.6), NSQD]
    assert ["p99, ms", "0.600 (0.500 to 0.700)", "1.000 (1.000 to 1.000)"] in comparison(samples)
    assert "| p99, ms | 0.600 (0.500 to 0.700) |" in markdown(judge(samples, SETTINGS), samples, 0.0)


class MadeUpSystem(System):
    """One that has used 1, 2, 3, ... seconds each time it is asked."""

    def cpu_s(self) -> float:
        asked.append(1)
        return float(len(asked))


asked: list[int] = []


def progress(phase: str, received: int) -> RunProgress:
    return RunProgress(
        phase=phase, elapsed_s=0.0, offered=0, sent=0, refused=0, received=received, lateness_p99_ms=0.0, p99_ms=0.0
    )


def test_processor_time_and_messages_are_counted_between_the_same_two_looks() -> None:
    asked.clear()
    meter = CpuMeter(MadeUpSystem("x", 1, "", ""))
    for phase, received in (
        ("warmup", 0),
        ("measuring", 1_000),
        ("measuring", 1_500),
        ("measuring", 3_000),
        ("done", 9_999),
    ):
        meter.look(progress(phase, received))
    assert meter.us_per_message() == 1e6 * 2 / 2_000


def test_a_run_too_short_to_see_two_looks_has_no_processor_time() -> None:
    meter = CpuMeter(MadeUpSystem("x", 1, "", ""))
    meter.look(progress("measuring", 10))
    with pytest.raises(InternalError, match="too short"):
        meter.us_per_message()


def test_nsqd_that_was_not_built_is_refused_naming_what_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systems, "PEERS", tmp_path)
    with pytest.raises(Unavailable, match="make peers"):
        peer("nsqd")
