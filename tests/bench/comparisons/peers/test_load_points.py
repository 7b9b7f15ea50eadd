"""Points of a comparison of brokers: which runs count, and who is measured when."""

from __future__ import annotations

from bench.comparisons.peers.load_points import FIGURES, Outcome, order, point
from bench.harness.results.comparison import Sample


def sample(value: float, *reasons: str, lost: int = 0, system: str = "nats") -> Sample:
    return Sample(system, {figure.key: value for figure in FIGURES} | {"lost": lost}, reasons)


def test_a_point_is_the_median_of_the_runs_that_count_and_the_losses_of_all() -> None:
    found = point("nats", 1_000, [sample(1.0), sample(9.0, "late", lost=3), sample(3.0, lost=1), sample(2.0)])
    assert (found.runs, found.lost, found.refused) == (3, 4, ["late"])
    p99 = found.figures["p99_ms"]
    assert (p99.median, p99.low, p99.high, found.coverage) == (2.0, 1.0, 3.0, 0.75)


def test_a_point_without_a_run_that_counts_has_reasons_instead_of_figures() -> None:
    found = point(
        "nats", 1_000, [Sample("nats", {}, ["nats did not come up"]), sample(1.0, "late"), sample(1.0, "late")]
    )
    assert (found.figures, found.runs, found.coverage) == ({}, 0, 0.0)
    assert found.refused == ["nats did not come up", "late"]


def test_everybody_is_first_in_turn() -> None:
    rounds = [order(["a", "b", "c"], turn) for turn in range(4)]
    assert rounds == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_an_outcome_is_whole_if_ours_was_measured_everywhere_and_lost_nothing() -> None:
    def outcome(*samples: Sample) -> Outcome:
        theirs = point("nats", 10, [sample(1.0, "late", lost=5)])
        ours = [point("srtm", rate, [one]) for rate, one in zip((20, 10), samples, strict=True)]
        return Outcome(systems=[], absent=[], points=[theirs, *ours], runs=1, seconds=2.0)

    good = sample(1.0, system="srtm")
    assert [found.rate for found in outcome(good, good).of("srtm")] == [10, 20]
    assert outcome(good, good).whole("srtm")
    assert not outcome(good, sample(1.0, "late", system="srtm")).whole("srtm")
    assert not outcome(sample(1.0, lost=1, system="srtm"), good).whole("srtm")
