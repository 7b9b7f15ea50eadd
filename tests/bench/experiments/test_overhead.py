"""What ``srtm bench overhead`` sends, and how it judges what it saw."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import msgspec
import pytest
import trio
import trio.testing

from bench.experiments import overhead
from bench.experiments.overhead import BROKERS, LOAD, Turn, judged, markdown, part_of_traffic, play, topic_document
from bench.run import RunProgress
from srtm.topic import parse_topic_json

STATIC = Turn(
    mode="static", number=0, adaptor=0.1, distributor=6.0, brokers=7.0, changes=0, sent=60_000, planned=60_000
)
FITTED = replace(STATIC, mode="fitted", adaptor=0.3, distributor=6.3, brokers=7.2, changes=9)


def test_what_fitted_takes_more_than_static_must_be_below_one_percent() -> None:
    assert judged([STATIC, FITTED]).reached
    assert "1.50 % of a core" in judged([STATIC, replace(FITTED, distributor=7.1)]).line


def test_a_turn_without_any_change_of_shares_proves_nothing() -> None:
    assert not judged([STATIC, replace(FITTED, changes=0)]).reached


@pytest.mark.parametrize(("planned", "enough"), [(60_000, 58_666), (7_500, 7_166)])
def test_a_turn_that_sent_less_than_planned_does_not_count(planned: int, enough: int) -> None:
    """99 % of the plan, less three standard deviations."""
    assert judged([STATIC, replace(FITTED, planned=planned, sent=enough)]).reached
    verdict = judged([STATIC, replace(FITTED, planned=planned, sent=enough - 1)])
    assert not verdict.valid
    assert f"fitted, turn 0: sent {enough - 1:,} of {planned:,} messages" in verdict.line


class Generator:
    """One that sends a hundred messages a second, if it is not deaf."""

    stopped = 0

    def __init__(self, plan: bytes) -> None:
        self.rate = 0 if json.loads(plan)["topic"] == "deaf" else 100
        self.started_s = math.inf

    def start(self) -> None:
        self.started_s = trio.current_time()

    def progress(self) -> bytes:
        sent = round(self.rate * (trio.current_time() - self.started_s))
        blank = {"phase": "measuring", "elapsed_s": 0.0, "lateness_p99_ms": 0.0, "p99_ms": 0.0}
        return msgspec.json.encode(RunProgress(**blank, offered=sent, sent=sent, refused=0, received=0))

    def stop(self) -> None:
        Generator.stopped += 1


async def test_what_was_sent_is_what_the_generators_say_before_they_are_stopped(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(overhead, "LoadGen", Generator)
    monkeypatch.setattr(Generator, "stopped", 0)
    plans = [part_of_traffic(topic, 0, ["127.0.0.1:1"], 5.0, 1) for topic in ("cars", "bikes", "deaf")]
    assert await play(plans, trio.current_time() + 5.0) == 1_000
    assert Generator.stopped == 3


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
