"""What the figures check of the paper's claims, on made-up rows: each check sees both what agrees and what does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bench.experiments.figures import fig06, fig07, fig08, fig09, fig10, fig11
from bench.experiments.lab.figure import Row
from bench.experiments.lab.layouts import Envelope, Result, first_kept, run
from bench.experiments.lab.points import AS_MANY, point
from bench.harness.results.verdict import Check
from bench.simulation.brokers import Delays, Tail
from bench.simulation.traffic import Fleet
from srtm.units import MICRO

SMALL = Fleet(count=200, batch=10, group_size=10)


def rows_of(part: str, strategy: str, p99_ms: Sequence[float], brokers: Sequence[int], xs: Sequence[int]) -> list[Row]:
    return [
        {"part": part, "x": x, "publishers": x, "batch": 1, "strategy": strategy, "worst_p99_ms": y, "brokers": k}
        for x, y, k in zip(xs, p99_ms, brokers, strict=True)
    ]


def missed(found: Sequence[Check]) -> list[str]:
    return [check.what for check in found if not check.kept]


def concentration(part: str, lb_ms: Sequence[float]) -> list[Row]:
    counts = (1_000, 10_000)
    return rows_of(part, "lb", lb_ms, (6, 6), counts) + rows_of(part, "conc", (0.5, 0.5), (1, 2), counts)


def test_the_penalty_of_lb_must_rise_with_the_batch_at_every_rate() -> None:
    assert not missed(fig07.checks(concentration("7a", (9, 2)) + concentration("7b", (90, 20))))
    (what,) = missed(fig07.checks(concentration("7c", (9, 2)) + concentration("7d", (90, 1.5))))
    assert what == "7c to 7d: LB from batch 1 to 1"


def test_a_rise_with_the_batch_is_asked_only_where_both_batches_were_run() -> None:
    assert all("batch" not in check.what for check in fig07.checks(concentration("7a", (9, 2))))


def test_the_penalty_of_lb_must_fall_with_every_step_of_the_rate() -> None:
    counts = (1_000, 4_000, 10_000)
    conc = rows_of("7a", "conc", (0.5, 0.5, 0.5), (1, 1, 2), counts)
    assert not missed(fig07.checks([*rows_of("7a", "lb", (9, 4, 2), (6, 6, 6), counts), *conc]))
    (what,) = missed(fig07.checks([*rows_of("7a", "lb", (9, 10, 2), (6, 6, 6), counts), *conc]))
    assert what == "7a: LB from 1,000 to 10,000 publishers"


def penalty(last_ms: float) -> list[Row]:
    return [{"part": "6a", "brokers": k, "p99_ms": last_ms * k / 6, "access_p99_ms": 11.6 * k / 6} for k in range(1, 7)]


def test_what_the_paper_printed_end_to_end_on_six_brokers_is_asked_for_beside_what_theory_gives() -> None:
    assert not missed(fig06.checks(penalty(14.7)))
    assert missed(fig06.checks(penalty(11.6))) == ["6a: p99 at k = 6, end to end"]


def correlation(ours: Sequence[int], theirs: Sequence[int]) -> list[Row]:
    sizes = (1, 15, 30)
    return rows_of("9a", "srtm", (0.5, 0.6, 0.7), ours, sizes) + rows_of("9a", "maxmin", (0.5, 2, 3), theirs, sizes)


@pytest.mark.parametrize("theirs", [(1, 2, 4), (1, 3, 6), (2, 1, 1)])
def test_max_min_on_as_many_brokers_or_on_more_is_not_what_the_paper_says(theirs: Sequence[int]) -> None:
    wanted = (1, 2, 4)
    assert missed(fig09.checks(correlation(wanted, theirs))) == ["9a: brokers of Max-Min against SRTM"]


def test_max_min_on_fewer_brokers_is() -> None:
    assert not missed(fig09.checks(correlation((1, 2, 4), (1, 2, 2))))


def forced(as_many_ms: Sequence[float], own_ms: Sequence[float], own: Sequence[int]) -> list[Row]:
    sizes, ours = (1, 15, 30), (1, 2, 4)
    return (
        rows_of("10 (as 9a)", "srtm", (0.5, 0.6, 0.7), ours, sizes)
        + rows_of("10 (as 9a)", AS_MANY, as_many_ms, ours, sizes)
        + rows_of("10 (as 9a)", "maxmin", own_ms, own, sizes)
    )


def test_max_min_must_be_worse_on_the_brokers_of_srtm_than_on_its_own_number() -> None:
    assert not missed(fig10.checks(forced((0.5, 2, 5), (0.5, 2, 3), (1, 2, 3))))
    assert missed(fig10.checks(forced((0.5, 2, 3), (0.5, 2, 5), (1, 2, 3)))) == [
        "10 (as 9a): Max-Min no better than on its own number, where that is another"
    ]


def test_what_no_group_size_shows_is_not_taken_for_shown() -> None:
    (what,) = missed(fig10.checks(forced((0.5, 2, 5), (0.5, 2, 5), (1, 2, 4))))
    assert "its own number" in what


def spread(blind_ms: Sequence[float], blind: Sequence[int]) -> list[Row]:
    spreads = (0, 4, 16)
    return rows_of("11a", "srtm", (0.9, 0.6, 0.2), (4, 2, 1), spreads) + rows_of(
        "11a", "maxmin", blind_ms, blind, spreads
    )


def test_a_gain_that_is_gone_at_little_noise_has_not_stayed() -> None:
    assert missed(fig11.checks(spread((2, 0.6, 0.3), (2, 1, 1)))) == ["11a: SRTM better than Max-Min up to 4 ms"]


def test_latency_and_brokers_of_both_must_fall_as_noise_grows() -> None:
    assert not missed(fig11.checks(spread((2, 1, 0.3), (2, 1, 1))))
    assert missed(fig11.checks(spread((2, 1, 2.5), (1, 1, 1)))) == [
        "11a: p99 of Max-Min, 0 against 16 ms",
        "11a: brokers of Max-Min, 0 against 16 ms",
    ]


def test_the_papers_values_of_broker_3_stand_beside_ours_of_broker_3() -> None:
    rows = rows_of("8a", "conc", (0.5, 3.0), (1, 3), (1_000, 8_000)) + rows_of(
        "8a", "maxmin", (0.5, 2.0), (1, 3), (1_000, 8_000)
    )
    for row, third_ms in zip(rows, (None, 1.6, None, 0.8), strict=True):
        row |= {"third_p99_ms": third_ms, "p99_deviation_ms": 0.0}
    by_label = {series.label: (list(series.x), list(series.y)) for series in fig08.panel_of("8a", rows).series}
    assert by_label["Conc, broker 3"] == ([8_000], [1.6])
    assert by_label["Max-Min, broker 3"] == ([8_000], [0.8])
    assert by_label["paper, broker 3"] == ([8_000, 8_000], [1.50, 0.87])
    assert [series.label for series in fig08.panel_of("8b", rows).series] == []


@pytest.mark.slow
def test_beside_load_all_six_brokers_are_searched_and_no_layout_twice() -> None:
    """None of 14,000 publishers of single messages keeps the SLO on the three that have room by their rates."""
    fleet = Fleet(count=14_000)
    tried = [attempt.keywords | {"k": attempt.args[2]} for attempt in fig08.attempts(fleet, "maxmin", 1.0, 1)]
    assert {one["k"] for one in tried} == {3, 4, 5, 6}


def test_rates_that_lack_less_than_they_are_known_to_do_not_ask_for_another_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fig08, "mcap", lambda *_: 54_989.0)  # 59,978 msg/s of room on two brokers
    least = {count: next(fig08.attempts(Fleet(count=count), "conc", 1.0, 1)).args[2] for count in (6_000, 6_100)}
    assert least == {6_000: 2, 6_100: 3}


@pytest.mark.slow
def test_where_nobody_is_bound_by_rates_a_number_of_brokers_is_one_layout() -> None:
    found = list(fig08.attempts(Fleet(count=1_000, batch=10), "maxmin", 1.0, 1))
    assert len(found) == 6


def test_a_point_is_of_the_worst_broker_and_says_what_all_could_still_take() -> None:
    found = [run(SMALL, "maxmin", k, 5.0, 1) for k in (2, 2, 3)]
    row = point(SMALL, "maxmin", found)
    assert row["brokers"] == 2
    assert row["runs"] == 3
    assert row["worst_p99_ms"] == pytest.approx(np.mean([one.worst.p99_ns for one in found]) / 1e6)
    assert row["worst_p99_ms"] >= row["p99_ms"]
    assert row["residual"] > 0


def test_the_first_layout_that_keeps_the_slo_ends_the_search() -> None:
    def result(p99_ns: int) -> Result:
        delays = Delays(access_ns=np.array([p99_ns]), processing_ns=np.array([0]))
        bucket = Envelope(rate_micro=MICRO, burst_micro=MICRO)
        return Result(
            k=1, bucket=bucket, loads=[1.0], parts=[delays], pooled=Tail.of([delays]), worst=Tail.of([delays])
        )

    asked = []

    def attempt(p99_ns: int) -> Result:
        asked.append(p99_ns)
        return result(p99_ns)

    found = first_kept(lambda p99_ns=p99_ns: attempt(p99_ns) for p99_ns in (2_000_000, 900_000, 100_000))  # type: ignore[misc]
    assert found.worst.p99_ns == 900_000
    assert asked == [2_000_000, 900_000]
