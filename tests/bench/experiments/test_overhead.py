"""What ``srtm bench overhead`` sends, and how it judges what it saw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.experiments.overhead import BROKERS, LOAD, Turn, judged, markdown, part_of_traffic, topic_document
from srtm.topic import parse_topic_json

STATIC = Turn(mode="static", number=0, adaptor=0.1, distributor=6.0, brokers=7.0, changes=0, sent=100)
FITTED = replace(STATIC, mode="fitted", adaptor=0.3, distributor=6.3, brokers=7.2, changes=9)


def test_what_fitted_takes_more_than_static_must_be_below_one_percent() -> None:
    assert judged([STATIC, FITTED]).reached
    assert "1.50 % of a core" in judged([STATIC, replace(FITTED, distributor=7.1)]).line


def test_a_turn_without_any_change_of_shares_proves_nothing() -> None:
    assert not judged([STATIC, replace(FITTED, changes=0)]).reached


def test_the_table_has_both_modes_and_the_difference() -> None:
    rows = markdown([STATIC, FITTED]).splitlines()
    assert rows[2] == "| static | 0.10 | 6.00 | 7.00 | 13.10 | 0 |"
    assert rows[4] == "| more under fitted | 0.20 | 0.30 | 0.20 | 0.70 |  |"


def test_a_topic_declares_as_much_for_each_broker_and_its_traffic_is_on_one() -> None:
    spec = parse_topic_json(topic_document("cars"))
    assert len(spec.publishers.ids) == BROKERS
    assert spec.publishers.rates.sum() == pytest.approx(LOAD)
    plan = part_of_traffic("cars", 2, [f"127.0.0.1:{4150 + at}" for at in range(BROKERS)], 5.0, 1)
    assert plan.targets == ["127.0.0.1:4152"]
    assert sum(plan.publishers.rate) == pytest.approx(LOAD)
