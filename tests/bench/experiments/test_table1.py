"""Table 1 on real brokers: what is sent, and what counts as reached. Pure parts."""

from pathlib import Path

import pytest

from bench.experiments.table1 import (
    BLOCK,
    PAPER_S,
    REALTIME,
    Fitted,
    Table1Options,
    claim_of,
    document,
    markdown,
    plan,
    settings_of,
)
from bench.run import TargetResult
from distributor.placing import burst_of
from srtm.errors import BadInput
from srtm.topic import parse_topic_json
from tests.support.run_results import EMPTY, result

WHERE = {"broker-1": "127.0.0.1:1", "broker-2": "127.0.0.1:2", "broker-3": "127.0.0.1:3"}


def assigned(brokers):
    return {"ids": [f"p{number}" for number in range(len(brokers))], "brokers": brokers}


def target(p99_ms):
    counts = dict.fromkeys(("offered", "sent", "acknowledged", "received"), 100)
    times = dict.fromkeys(("p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"), p99_ms)
    return TargetResult(
        target="127.0.0.1:1", topic="t", **counts, **times, refused=0, lost=0, duplicates=0, histogram=EMPTY
    )


def fitted(*, took_s=3.0, state="fits", p99_ms=0.5, method="sequential", group=5):
    found = {
        "state": state,
        "certain": True,
        "took_s": took_s,
        "brokers": 1,
        "rounds": [{}],
        "explanation": [],
    }
    after = result(targets=[target(p99_ms), target(p99_ms / 2)])
    return Fitted(group, method, found, after)


def test_publishers_send_from_where_they_are_assigned_and_those_without_a_broker_wait():
    made = plan(assigned(["broker-3", None, "broker-1", "broker-3"]), WHERE, 2, 7, 9.0)
    assert made.targets == ["127.0.0.1:1", "127.0.0.1:3"]
    assert made.publishers.ids == ["p0", "p2", "p3"]
    assert made.publishers.target == [1, 0, 1]
    assert made.publishers.group == [0, 1, 1]
    assert set(made.publishers.process) == {"staggered"}
    assert [one.target for one in made.subscribers] == [0, 1]
    assert (made.seed, made.duration_s) == (7, 9.0)


@pytest.mark.parametrize("group", PAPER_S)
def test_the_topic_is_a_valid_one_of_10_000_messages_a_second(group):
    spec = parse_topic_json(document(group))
    assert spec.publishers.load == 10_000
    assert len(spec.publishers.group_names) == -(-1_000 // group)
    assert burst_of(spec) == 1_600


@pytest.mark.parametrize(
    ("changes", "reached"),
    [
        ({}, True),
        ({"took_s": 3.3}, False),  # a twentieth of 64 s is 3.2
        ({"took_s": 40.0, "method": "paper"}, True),
        ({"state": "does not fit"}, False),
        ({"p99_ms": 1.1}, False),
    ],
)
def test_a_row_is_reached_if_it_fits_in_time_and_keeps_the_promise_on_every_broker(changes, reached):
    assert fitted(**changes).reached is reached


def test_the_table_has_a_line_a_row_and_the_papers_way_beside_where_it_was_run():
    table = markdown([fitted(), fitted(group=10), fitted(method="paper", took_s=61.0)], Table1Options(rounds_s=5.0))
    lines = table.splitlines()
    assert len(lines) == 4
    assert "rounds of 5 s" in lines[0]
    assert lines[2].startswith("| 5 | 64 | 3.2 | 3 |")
    assert "| 61 |" in lines[2]
    assert lines[3].startswith("| 10 | 189 | 9.45 | 3 |")


def test_the_document_has_a_place_for_it():
    text = (Path(__file__).parents[3] / "docs" / "placement.md").read_text()
    assert text.count(f"<!-- {BLOCK}:begin -->") == text.count(f"<!-- {BLOCK}:end -->") == 1


def test_whether_reactors_and_generator_went_before_other_work_is_said_with_the_figures():
    plain, realtime = Table1Options(), Table1Options(realtime=True)
    assert claim_of(realtime) == claim_of(plain) + REALTIME
    assert [settings_of(one)["realtime"] for one in (plain, realtime)] == [False, True]


def test_rows_that_the_paper_has_not_are_refused():
    from bench.commands import _groups

    assert _groups("rows", "5,10") == [5, 10]
    assert _groups("paper-rows", "") == []
    with pytest.raises(BadInput, match="rows"):
        _groups("rows", "5,7")
