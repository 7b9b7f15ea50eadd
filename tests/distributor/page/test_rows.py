"""One screen of a list: what is searched for, in which order, and how much of it."""

from __future__ import annotations

import pytest

from distributor.page.rows import Query, brokers_listed, topics_listed
from srtm.errors import BadInput
from tests.support.page_rows import broker, topic


def names(rows: object) -> list[str]:
    return [row.name for row in rows.rows]


TOPICS = [
    topic("a"),
    topic("b", promise="broken", latency_ms=6.0),
    topic("c", promise="unknown", latency_ms=None),
    topic("d", promise="broken", latency_ms=None, slo_ms=1.0),
    topic("e", promise="broken", latency_ms=50.0),
]


def test_at_first_stands_the_promise_that_is_broken_the_most() -> None:
    assert names(topics_listed(TOPICS, Query())) == ["d", "e", "b", "c", "a"]


def test_brokers_that_are_away_come_first_then_the_fullest() -> None:
    rows = [broker("a"), broker("b", allocated=9.0), broker("c", state="dead"), broker("d", state="silent")]
    assert names(brokers_listed(rows, Query())) == ["c", "d", "b", "a"]


def test_a_screen_says_of_how_many_it_is_and_counts_all() -> None:
    found = topics_listed(TOPICS, Query(only="broken", sort="name", offset=1, limit=1))
    assert (names(found), found.total, found.all) == (["d"], 3, 5)
    assert found.counts == {"kept": 1, "broken": 3, "unknown": 1}


def test_a_part_of_the_name_is_enough() -> None:
    assert names(topics_listed([topic("roads"), topic("cars")], Query(search="oad"))) == ["roads"]


def test_an_order_goes_both_ways() -> None:
    rows = [topic("a", demand=1.0), topic("b", demand=3.0), topic("c", demand=2.0)]
    assert names(topics_listed(rows, Query(sort="demand", descending=True))) == ["b", "c", "a"]


def test_an_order_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BadInput, match="promise"):
        topics_listed(TOPICS, Query(sort="colour"))
