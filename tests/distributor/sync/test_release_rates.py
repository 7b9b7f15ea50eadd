"""How fast brokers let messages go, by what they report."""

from __future__ import annotations

from distributor.sync.release_rates import Released, Releases
from distributor.sync.report_checks import Reported
from srtm.control import TopicReport


def reported(counts: dict[str, int], *changed: str, incarnation: str = "1") -> Reported:
    topics = {name: TopicReport(topic=name, share_version=1, released=count) for name, count in counts.items()}
    return Reported(incarnation=incarnation, number=1, topics=topics, changed=changed)


def test_a_rate_is_what_was_let_go_in_a_window_over_its_length_and_the_next_begins_there() -> None:
    releases = Releases()
    assert releases.note("a", reported({"cars": 100, "vans": 7}, "cars", "vans"), 10.0) is None
    assert releases.note("a", reported({"cars": 200, "vans": 7}, "cars"), 12.0) is None
    assert releases.note("a", reported({"cars": 300, "vans": 7}), 15.0) == Released(rates={"cars": 40.0}, span_s=5.0)
    assert releases.note("a", reported({"cars": 300, "vans": 8}, "vans"), 16.0) is None
    assert releases.note("a", reported({"cars": 300, "vans": 11}, "vans"), 19.0) == Released(
        rates={"vans": 1.0}, span_s=4.0
    )


def test_a_topic_that_is_new_counts_from_nothing_and_one_that_began_anew_says_nothing() -> None:
    releases = Releases()
    releases.note("a", reported({"cars": 100}, "cars"), 0.0)
    found = releases.note("a", reported({"cars": 3, "vans": 40}, "cars", "vans"), 4.0)
    assert found == Released(rates={"vans": 10.0}, span_s=4.0)
    found = releases.note("a", reported({"vans": 40}, "cars"), 8.0)
    assert found == Released(rates={}, span_s=4.0)


def test_each_broker_has_windows_of_its_own_and_another_incarnation_begins_one() -> None:
    releases = Releases()
    releases.note("a", reported({"cars": 100}), 0.0)
    assert releases.note("b", reported({"cars": 900}, "cars"), 4.0) is None
    assert releases.note("a", reported({"cars": 5}, "cars", incarnation="2"), 4.0) is None
    assert releases.note("a", reported({"cars": 45}, "cars", incarnation="2"), 8.0) == Released(
        rates={"cars": 10.0}, span_s=4.0
    )
    releases.forget("a")
    assert releases.note("a", reported({"cars": 99}, "cars", incarnation="2"), 12.0) is None
