"""How fast a broker releases messages, by its reports."""

from __future__ import annotations

from distributor.sync.release_rates import ReleaseRates, ReleaseWindow
from distributor.sync.report_checks import BrokerReports
from srtm.control import TopicReport


def reports(counts: dict[str, int], *changed: str, incarnation: str = "1") -> BrokerReports:
    topics = {name: TopicReport(topic=name, share_version=1, released=count) for name, count in counts.items()}
    return BrokerReports(incarnation=incarnation, number=1, topics=topics, changed=changed)


def test_a_rate_is_what_was_released_in_a_window_over_its_length_and_the_next_begins_there() -> None:
    window = ReleaseWindow()
    assert window.observe(reports({"cars": 100, "vans": 7}, "cars", "vans"), 10.0) is None
    assert window.observe(reports({"cars": 200, "vans": 7}, "cars"), 12.0) is None
    assert window.observe(reports({"cars": 300, "vans": 7}), 15.0) == ReleaseRates(rates={"cars": 40.0}, span_s=5.0)
    assert window.observe(reports({"cars": 300, "vans": 8}, "vans"), 16.0) is None
    found = window.observe(reports({"cars": 300, "vans": 11}, "vans"), 19.0)
    assert found == ReleaseRates(rates={"vans": 1.0}, span_s=4.0)


def test_a_topic_that_is_new_counts_from_nothing_and_one_that_began_anew_says_nothing() -> None:
    window = ReleaseWindow()
    window.observe(reports({"cars": 100}, "cars"), 0.0)
    found = window.observe(reports({"cars": 3, "vans": 40}, "cars", "vans"), 4.0)
    assert found == ReleaseRates(rates={"vans": 10.0}, span_s=4.0)
    found = window.observe(reports({"vans": 40}, "cars"), 8.0)
    assert found == ReleaseRates(rates={}, span_s=4.0)


def test_another_incarnation_begins_a_window() -> None:
    window = ReleaseWindow()
    window.observe(reports({"cars": 100}), 0.0)
    assert window.observe(reports({"cars": 5}, "cars", incarnation="2"), 4.0) is None
    found = window.observe(reports({"cars": 45}, "cars", incarnation="2"), 8.0)
    assert found == ReleaseRates(rates={"cars": 10.0}, span_s=4.0)
