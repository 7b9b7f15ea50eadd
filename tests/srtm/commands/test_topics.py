"""``srtm topic ...``: what it asks of the distributor and shows of the answers."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing

from srtm.cli import main
from srtm.client.distributor import DistributorClient
from srtm.commands.fitting import wait_judged
from srtm.commands.topics import _status_of
from srtm.topics.file import read_topic_file
from srtm.topics.spec import parse_topic_json
from tests.support.played_distributor import BROKER, FITTING, NOT_PROMISED, PLAN, REPORT, VIEW, Distributor


def test_submit_sends_the_file_with_its_csv_inside(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "submit", str(topic_file)]) == 0
    assert distributor.asked == [("PUT", "/v1/topics/roads")]
    (document,) = distributor.bodies
    assert document["rate"] == 100
    assert document["publishers"] == [
        {"process": "periodic", "csv_text": "id,rate,correlation_group\na,90,\n"},
        {"count": 2, "rate": 5},
    ]
    shown = capsys.readouterr().out
    assert "roads: placed" in shown
    assert "broker-1" in shown
    assert "worst broker: p99 access 0.25 ms" in shown


def test_a_topic_that_found_no_place_is_a_failure(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = VIEW | {
        "explanation": PLAN,
        "state": "waiting",
        "reason": "3 brokers of 500 msg/s are needed",
        "brokers": [],
    }
    distributor.answers["PUT", "/v1/topics/roads"] = (200, waiting)
    assert main(["topic", "submit", str(topic_file)]) == 1
    assert "3 brokers of 500 msg/s are needed" in capsys.readouterr().out


def test_plan_shows_and_changes_nothing(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "plan", str(topic_file)]) == 0
    assert distributor.asked == [("POST", "/v1/plan")]
    shown = capsys.readouterr().out
    for part in (
        "k = 1 (srtm, fitted split)",
        "15 (assumed)",
        "simulated: 54,000 messages, 600 s, seed 1",
        "p99 access 0.25 ms, processing 0.5 ms, both 0.625 ms",
        "the promise is kept in 97 of 100 minutes (93 to 99), access and processing, on the worst broker",
        "it would be kept in 5 of 100 minutes (1 to 24) spread evenly",
        "sum 81 ms over all messages, 0.0015 ms a message; p99 0.125 ms more than the 0.0625 ms of one bucket",
        "admitted afterwards: a further topic of up to 410 msg/s",
        "balanced over 4 brokers instead (lb)",
        "3 publishers go to another broker",
        "both without end",
        "admitted afterwards: no limit is known",
    ):
        assert part in shown


@pytest.mark.parametrize(("k", "of_all", "shown"), [(2, 4, 2), (1, 4, 1), (1, 1, 0)])
def test_a_layout_is_beside_one_bucket_and_an_even_spread_only_where_these_are_other_layouts(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str], k: int, of_all: int, shown: int
) -> None:
    even = {**PLAN["balanced"], "k": of_all}  # type: ignore[dict-item]
    distributor.answers["POST", "/v1/plan"] = (200, {**PLAN, "k": k, "balanced": even})
    assert main(["topic", "plan", str(topic_file)]) == 0
    text = capsys.readouterr().out
    assert ("in one bucket (access alone)" in text, "spread evenly" in text) == (shown == 2, shown >= 1)
    assert ("it would be" in text) is (shown > 0)


def test_a_plan_without_the_promise_says_what_would_do_and_ends_with_one(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distributor.answers["POST", "/v1/plan"] = (200, NOT_PROMISED)
    assert main(["topic", "plan", str(topic_file), "--confidence", "90"]) == 1
    assert distributor.queries["POST", "/v1/plan"] == {"confidence": "90"}
    shown = capsys.readouterr().out
    assert "kept in 5 of 100 minutes (1 to 24)" in shown
    assert "rate = 120 (now 100) or burst = 9 (now 5) would do" in shown


@pytest.mark.parametrize("state", ["waiting", "partial"])
def test_a_plan_in_which_somebody_has_no_place_ends_with_one(
    distributor: Distributor, topic_file: Path, state: str
) -> None:
    distributor.answers["POST", "/v1/plan"] = (200, {**PLAN, "state": state})
    assert main(["topic", "plan", str(topic_file)]) == 1


@pytest.mark.parametrize("limit", ["processing", "service", "room"])
def test_a_promise_that_no_bucket_keeps_is_said_to_need_other_brokers(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    found = {**NOT_PROMISED["promise"], "enough": {"rate": None, "burst": None, "limit": limit}}
    distributor.answers["POST", "/v1/plan"] = (200, {**PLAN, "promise": found})
    assert main(["topic", "plan", str(topic_file)]) == 1
    assert ("more brokers" in capsys.readouterr().out) is (limit != "service")


def test_a_submission_without_the_promise_is_stored_with_a_warning(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = distributor.answers["PUT", "/v1/topics/roads"][1]
    distributor.answers["PUT", "/v1/topics/roads"] = (200, {**view, "explanation": NOT_PROMISED})
    assert main(["topic", "submit", str(topic_file)]) == 0
    assert "warning: stored, but the promise is not predicted" in capsys.readouterr().out


def test_a_submission_that_requires_the_promise_stores_nothing_without_it(
    distributor: Distributor, topic_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distributor.answers["POST", "/v1/plan"] = (200, NOT_PROMISED)
    assert main(["topic", "submit", str(topic_file), "--require-promise"]) == 1
    assert distributor.asked == [("POST", "/v1/plan")]
    assert "nothing was stored" in capsys.readouterr().out
    distributor.answers["POST", "/v1/plan"] = (200, PLAN)
    assert main(["topic", "submit", str(topic_file), "--require-promise"]) == 0
    assert distributor.changed()[-1] == ("PUT", "/v1/topics/roads")


@pytest.mark.parametrize("confidence", ["49", "99.5", "nan", "x"])
def test_a_confidence_out_of_range_is_refused(distributor: Distributor, topic_file: Path, confidence: str) -> None:
    assert main(["topic", "plan", str(topic_file), "--confidence", confidence]) == 2
    assert distributor.asked == []


def test_remove_says_whether_to_purge(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "remove", "roads"]) == 0
    assert distributor.asked == [("DELETE", "/v1/topics/roads")]
    assert capsys.readouterr().out == "removed roads\n"


def test_a_topic_is_shown_with_how_it_was_fitted(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "show", "roads"]) == 0
    shown = capsys.readouterr().out
    for part in ("fitting (sequential): fits, 1 round, 2.5 s", "fits on 1 broker", "0.75", "17.5", "36", "0.875 ms"):
        assert part in shown
    distributor.answers["GET", "/v1/topics/roads/fitting"] = (200, {**FITTING, "state": "off"})
    assert main(["topic", "show", "roads"]) == 0
    assert "fitting" not in capsys.readouterr().out


@pytest.mark.parametrize("state", ["waiting", "measuring", "does not fit"])
def test_a_submission_that_does_not_wait_ends_well_however_far_its_fitting_is(
    distributor: Distributor, topic_file: Path, state: str
) -> None:
    view = distributor.answers["PUT", "/v1/topics/roads"][1]
    distributor.answers["PUT", "/v1/topics/roads"] = (200, {**view, "fitting": {**FITTING, "state": state}})
    assert main(["topic", "submit", str(topic_file)]) == 0


@pytest.mark.parametrize(
    ("state", "goes_on"), [("queued", True), ("waiting", True), ("running", True), ("fits", False)]
)
def test_a_submission_says_that_a_search_is_to_come_and_how_to_follow_it(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], topic_file: Path, state: str, goes_on: bool
) -> None:
    view = distributor.answers["PUT", "/v1/topics/roads"][1]
    distributor.answers["PUT", "/v1/topics/roads"] = (200, {**view, "fitting": {**FITTING, "state": state}})
    assert main(["topic", "submit", str(topic_file)]) == 0
    shown = capsys.readouterr().out
    for part in ("a search is to come", "`srtm topic show roads`", f"`srtm topic submit {topic_file} --wait`"):
        assert (part in shown) is goes_on


def judged(verdict: str, messages: int = 6000) -> dict[str, object]:
    period = {"verdict": verdict, "messages": messages}
    return {**VIEW, "promise": verdict, "promise_reason": "as measured", "promise_last_60s": period}


@pytest.mark.parametrize(
    ("view", "status", "took_s"),
    [(judged("kept"), 0, 60), (judged("broken"), 1, 60), (judged("unknown"), 1, 90), (judged("unknown", 0), 1, 90)],
)
async def test_waiting_ends_with_the_verdict_on_a_minute_of_traffic_or_after_90_s(
    view: dict[str, object], status: int, took_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    class Client:
        async def topic(self, _name: str) -> dict[str, object]:
            return view

        async def fitting(self, _name: str) -> dict[str, object]:
            return FITTING

    told: list[str] = []
    found = await wait_judged(cast(DistributorClient, Client()), "roads", told.append)
    assert trio.current_time() == pytest.approx(took_s, abs=1)
    assert _status_of({**found, "state": "placed"}, waited=True) == status
    assert told[0].startswith(f"promise {view['promise']}: as measured; fitting (sequential): fits")


def test_the_last_changes_of_shares_are_shown_with_their_reasons(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    change = {"at": "2026-01-01T00:00:00Z", "mode": "static", "reason": "options: mode static instead of fitted"}
    shares = {"broker-1": {"rate": 60.5, "burst": 3.0}, "broker-2": {"rate": 39.5, "burst": 2.0}}
    distributor.answers["GET", "/v1/topics/roads"] = (200, {**VIEW, "changes": [{**change, "shares": shares}]})
    assert main(["topic", "show", "roads"]) == 0
    told = "static: r_l/b_l broker-1 60.5/3, broker-2 39.5/2 (options: mode static instead of fitted)"
    assert told in capsys.readouterr().out


def test_what_a_standby_does_not_know_is_said(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    distributor.answers["GET", "/v1/brokers"] = (200, [BROKER])
    assert main(["status"]) == 0
    assert "a standby answered" not in capsys.readouterr().out
    distributor.answers["GET", "/v1/brokers"] = (200, [{**BROKER, "alive": None}])
    assert main(["status"]) == 0
    assert "a standby answered" in capsys.readouterr().out


def test_nothing_is_free_on_a_broker_that_is_away(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    away = {**BROKER, "alive": False, "rcap": 321.0}
    distributor.answers["GET", "/v1/brokers"] = (200, [{**BROKER, "rcap": 123.0}, {**away, "name": "broker-2"}])
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "123" in shown
    assert "321" not in shown


@pytest.mark.parametrize(("promise", "word", "status"), [("kept", "yes", 0), ("broken", "NO", 1), ("unknown", "", 0)])
def test_whether_a_promise_is_kept_is_shown_everywhere_and_can_be_checked(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], promise: str, word: str, status: int
) -> None:
    view = {**VIEW, "promise": promise, "promise_reason": "last 60 s: because"}
    distributor.answers["GET", "/v1/topics/roads"] = (200, view)
    distributor.answers["GET", "/v1/topics"] = (200, [view])
    assert main(["topic", "show", "roads"]) == 0
    assert f"promise {promise}: last 60 s: because" in capsys.readouterr().out
    assert main(["topic", "show", "roads", "--check"]) == status
    capsys.readouterr()
    for command in (["status"], ["topic", "list"]):
        assert main(command) == 0
        assert (word or "unknown") in capsys.readouterr().out


def test_a_topic_is_shown_again_until_it_is_interrupted(
    distributor: Distributor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []

    def show_and_interrupt_the_third(view: dict[str, object], _: object) -> None:
        shown.append(view["name"])
        if len(shown) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("srtm.commands.topics.show_topic", show_and_interrupt_the_third)
    monkeypatch.setattr("srtm.commands.topics._WATCH_S", 0.0)
    assert main(["topic", "show", "roads", "--watch"]) == 130
    assert shown == ["roads"] * 3
    assert main(["topic", "show", "roads", "--watch", "--check"]) == 2


def test_what_waits_in_a_topic_is_shown(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    queue = {"channel": "c", "depth": 4_321, "in_flight": 17, "consumers": 1, "paused": False}
    waits = {"count": 9, "p99_ms": 876.0}
    report = {**REPORT, "backlog": 5_678, "depth": 1, "queues": [queue]}
    report["last_60s"] = {**REPORT["last_60s"], "consumer_wait": waits}
    place = {**VIEW["brokers"][0], "report": report}
    distributor.answers["GET", "/v1/topics/roads"] = (200, {**VIEW, "brokers": [place]})
    assert main(["topic", "show", "roads"]) == 0
    shown = capsys.readouterr().out
    for figure in ("5,678", "4,322", "17", "876"):
        assert figure in shown


def test_what_clients_of_mqtt_lost_is_one_line_of_each_kind_and_broker_and_none_without_losses(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = {f"$share/g{number}/#": number for number in range(1, 5)}
    losses = {
        "broker-1": {"refused": [0, 7_000, 2], "dropped": [5, 0, 0], "full": {}},
        "broker-2": {"refused": [], "dropped": [], "full": {**groups, "mqtt": 30}},
    }
    distributor.answers["GET", "/v1/topics/roads"] = (200, {**VIEW, "mqtt_losses": losses})
    assert main(["topic", "show", "roads"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if "since its start" in line] == [
        "broker-1: publishes by MQTT that were not taken since its start: "
        "7,002 refused (QoS 1: 7,000, QoS 2: 2), 5 dropped (QoS 0: 5)",
        "broker-2: deliveries dropped since its start where sessions or groups were full: "
        "sessions 30, $share/g4/# 4, $share/g3/# 3, 2 more groups",
    ]
    distributor.answers["GET", "/v1/topics/roads"] = (200, {**VIEW, "mqtt_losses": {}})
    assert main(["topic", "show", "roads"]) == 0
    assert "since its start" not in capsys.readouterr().out


def test_publishers_of_a_broker_that_is_away_are_told_of(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    distributor.answers["GET", "/v1/brokers"] = (200, [{**BROKER, "alive": False, "state": "silent"}])
    assert main(["status"]) == 0
    assert "broker-1 is silent, and publishers belong there (7 of roads)" in capsys.readouterr().out


WHY = {
    "topic": "roads",
    "promise": "broken",
    "cause": "consumer",
    "sentence": "40 messages wait in channel c at broker-1: no consumer is connected",
    "remedy": "start its consumer, or delete the channel",
    "broker": "broker-1",
    "figures": {"depth": 40, "consumer_wait_p99_ms": None},
    "also": [
        {"cause": "network", "sentence": "it is far away", "remedy": "come nearer", "broker": None, "figures": {}}
    ],
}


def test_why_a_topic_is_late_is_one_sentence_with_its_figures(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    distributor.answers["GET", "/v1/topics/roads/why"] = (200, WHY)
    assert main(["topic", "why", "roads"]) == 0
    first, do, *rest = capsys.readouterr().out.splitlines()
    assert first == f"roads: promise broken; consumer: {WHY['sentence']}"
    assert do == f"do: {WHY['remedy']}"
    assert any("depth" in line and "40" in line for line in rest)
    assert rest[-1] == "also network: it is far away; come nearer"


def test_a_consumer_without_credit_and_the_age_of_figures_are_shown(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = {"channel": "c", "depth": 5, "in_flight": 0, "consumers": 1, "paused": False}
    place = {**VIEW["brokers"][0], "report": {**REPORT, "queues": [queue]}, "traffic_s_ago": 29.0, "report_s_ago": 1.5}
    distributor.answers["GET", "/v1/topics/roads"] = (200, {**VIEW, "brokers": [place]})
    assert main(["topic", "show", "roads"]) == 0
    shown = capsys.readouterr().out
    for figure in ("none: c", "29", "1.5"):
        assert figure in shown


def test_a_broker_that_is_not_there_is_marked_wherever_a_topic_is_shown(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    view = {**VIEW, "brokers": [{**VIEW["brokers"][0], "broker_state": "silent"}]}
    distributor.answers["GET", "/v1/topics"] = (200, [view])
    distributor.answers["GET", "/v1/topics/roads"] = (200, view)
    for command in (["topic", "list"], ["topic", "show", "roads"]):
        assert main(command) == 0
        assert "broker-1 (silent)" in capsys.readouterr().out


def exported(distributor: Distributor, capsys: pytest.CaptureFixture[str], folder: Path) -> Path:
    distributor.answers["GET", "/v1/topics/roads/document"] = (200, DOCUMENT)
    file = folder / "exported.toml"
    assert main(["topic", "export", "roads", "--output", str(file)]) == 0
    return file


DOCUMENT = {
    "name": "roads",
    "rate": 100.0,
    "burst": 5.0,
    "mode": "static",
    "slo": {"percentile": 99, "latency_ms": 1.0},
    "publishers": [{"ids": ["a"], "rates": [90.0], "groups": [""], "process": "poisson", "batch": 1}],
}


def test_a_topic_that_is_exported_and_left_alone_does_not_differ(
    distributor: Distributor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = exported(distributor, capsys, tmp_path)
    distributor.answers["GET", "/v1/topics/roads/document"] = (200, parse_topic_json(read_topic_file(file)).to_json())
    assert main(["topic", "diff", str(file)]) == 0
    assert capsys.readouterr().out == "no difference\n"
    file.write_text(file.read_text().replace("rate = 100.0", "rate = 120.0"))
    assert main(["topic", "diff", str(file)]) == 1
    assert capsys.readouterr().out == "rate: 100 -> 120\n"


def test_set_changes_what_it_names_and_nothing_else(distributor: Distributor) -> None:
    distributor.answers["GET", "/v1/topics/roads/document"] = (200, DOCUMENT)
    assert main(["topic", "set", "roads", "--rate", "120", "--slo", "p95:2ms", "--mode", "fitted"]) == 0
    assert distributor.asked == [("GET", "/v1/topics/roads/document"), ("PUT", "/v1/topics/roads")]
    slo = {"percentile": 95.0, "latency_ms": 2.0}
    assert distributor.bodies[-1] == {**DOCUMENT, "rate": 120.0, "slo": slo, "mode": "fitted"}


def test_decisions_are_told_newest_first(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    told = [{"number": 2, "at": "t2", "lines": ["placed", "b1: 3"]}, {"number": 1, "at": "t1", "lines": ["submitted"]}]
    distributor.answers["GET", "/v1/topics/roads/decisions"] = (200, told)
    assert main(["topic", "decisions", "roads"]) == 0
    assert capsys.readouterr().out == "t2  placed\n    b1: 3\nt1  submitted\n"
