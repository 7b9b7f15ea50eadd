"""The history of a topic: fifteen minutes, gaps where nothing is known, and a bound on memory."""

from __future__ import annotations

from distributor.page.latency_history import FIGURES, MOST_BYTES, MOST_TOPICS, STEPS, LatencyHistory

NONE = [None] * len(FIGURES)


def figures(access_ms: float) -> list[float | None]:
    return [access_ms, *NONE[1:]]


def test_it_is_told_oldest_first_with_gaps() -> None:
    history = LatencyHistory()
    for step in range(3):
        history.advance(5.0 * step, {"cars"})
        if step != 1:
            history.record("cars", figures(step))
    view = history.view("cars")
    assert view.at_s == [0.0, 5.0, 10.0]
    assert view.columns["access_ms"] == [0.0, None, 2.0]
    assert view.columns["demand"] == [None] * 3


def test_what_is_older_than_fifteen_minutes_goes() -> None:
    history = LatencyHistory()
    for step in range(STEPS + 10):
        history.advance(5.0 * step, {"cars"})
        history.record("cars", figures(step))
    view = history.view("cars")
    assert view.at_s == [5.0 * step for step in range(10, STEPS + 10)]
    assert view.columns["access_ms"] == [float(step) for step in range(10, STEPS + 10)]


def test_a_topic_that_comes_back_has_no_past() -> None:
    history = LatencyHistory()
    history.advance(0.0, {"cars"})
    history.record("cars", figures(1.0))
    history.advance(5.0, set())
    history.advance(10.0, {"cars"})
    history.record("cars", figures(3.0))
    assert history.view("cars").columns["access_ms"] == [None, None, 3.0]


def test_beyond_the_most_topics_it_says_why_there_is_none() -> None:
    history = LatencyHistory(most_topics=1)
    history.advance(0.0, {"a", "b"})
    history.record("a", figures(1.0))
    history.record("b", figures(1.0))
    assert history.view("a").why_none is None
    assert history.view("b").at_s == []
    assert "1 topics" in str(history.view("b").why_none)


def test_all_histories_together_stay_within_64_mib() -> None:
    history = LatencyHistory()
    history.advance(0.0, {"cars"})
    history.record("cars", figures(1.0))
    (ring,) = history._rings.values()
    assert ring.nbytes * MOST_TOPICS <= MOST_BYTES
    assert MOST_TOPICS >= 10_000
