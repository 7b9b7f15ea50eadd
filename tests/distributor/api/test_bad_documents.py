"""What other services and the operator's tools send, one row a case: what is refused, in which words, and that nothing
changed. Topics: ``tests/test_bad_input.py``; measurements in depth: ``test_measured.py``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from distributor.api.app import make_app
from distributor.measuring.measurements import Measurements
from srtm.control import MeasurementRequest
from srtm.topics.spec import parse_topic_json
from tests.support.distributor_in_process import Distributor

LIMIT_BYTES = 20_000
BIG = 10**30
TOPIC = {"name": "cars", "rate": 100, "burst": 5, "mode": "proportional", "split": "proportional"}
TOPIC |= {"slo": {"percentile": 99, "latency_ms": 5}, "publishers": [{"count": 20, "rate": 2}]}


class Service:
    """One broker ``a`` with a topic, and a measurement ``m`` that it is running."""

    def __init__(self, opened: Distributor, client: httpx.AsyncClient, told: list[object]) -> None:
        self.opened, self._client, self._told = opened, client, told

    async def ask(self, method: str, path: str, content: bytes) -> httpx.Response:
        return await self._client.request(method, path, content=content)

    def state(self) -> tuple[object, ...]:
        registry, syncing = self.opened.registry, self.opened.syncing
        book = registry.version, dict(registry.topics), dict(registry.brokers), dict(registry.decisions)
        heard = {name: dict(syncing.sessions.by_broker[name].reports.topics) for name in syncing.sessions.reporting()}
        return (
            *book,
            heard,
            {name: one.throttling for name, one in syncing.sessions.by_broker.items()},
            syncing.histories.version,
            list(self._told),
        )


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    opened = await Distributor.open(tmp_path / "s.sqlite3", max_body_bytes=LIMIT_BYTES)
    (broker,) = await opened.brokers("a")
    await opened.submit(parse_topic_json(TOPIC))
    await broker.settle()
    told: list[object] = []
    measuring = Measurements(lambda _broker: None)
    request = MeasurementRequest(id="m", topic="cars", percentile=99, target_ns=1, share_version=1)
    measuring.begin("a", "1", request, 1, {}, told.append)
    app = make_app(opened.registry, opened.syncing, layouts=SimpleNamespace(report=measuring.report))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as client:
        yield Service(opened, client, told)
    await opened.aclose()


SYNC = "POST", "/v1/brokers/a/sync"
DEAD = "POST", "/v1/brokers/a/dead"
HISTORY = "POST", "/v1/brokers/a/history"
MEASUREMENT = "POST", "/v1/brokers/a/measurements/m"
CAPACITY = "PUT", "/v1/brokers/a/capacity"
SHARES = "PUT", "/v1/shares"

SLO = {"percentile": 99, "latency_ms": 5}
REPORT = {"topic": "cars", "share_version": 1}
COLUMNS = {"interval": [0], "count": [1], "late": [0], "latency_ns": [5]}
PROPOSAL = {"topic": "cars", "version": 1, "mode": "proportional", "shares": {}}
GOOD: dict[tuple[str, str], dict[str, Any]] = {
    SYNC: {
        "incarnation": "1",
        "srtm_version": "1",
        "tcp_address": "h:1",
        "http_address": "h:2",
        "mcap": 9,
        "claims": ["a its directory"],
    },
    DEAD: {"incarnation": "1"},
    HISTORY: {"incarnation": "1", "topics": []},
    MEASUREMENT: {"incarnation": "1", "sequence": 1, **COLUMNS},
    CAPACITY: {"mcap": 100, "slo": SLO},
    SHARES: {"proposals": []},
}

TYPE = "must be of its type"
MACHINE = {"cores": 2, "kernel": "6.1", "cpu": "Some CPU"}
REFUSED: list[tuple[tuple[str, str], dict[str, Any], str, str]] = [  # what is changed; the field refused, the rule
    (SYNC, {"mcap": "9"}, "mcap", TYPE),
    (SYNC, {"mcap": -1}, "mcap", "must be from 0 (it is not known) to 1e+09 msg/s"),
    (SYNC, {"mcap": 1e305}, "mcap", "must be from 0"),
    (SYNC, {"lab_service_time_ns": -1}, "lab_service_time_ns", "must be from 0 to"),
    (SYNC, {"lab_service_time_ns": BIG}, "lab_service_time_ns", "must be from 0 to"),
    (SYNC, {"machine": {**MACHINE, "cores": 0}}, "machine.cores", "must be from 1 to"),
    (SYNC, {"machine": {**MACHINE, "cpu": "x" * 301}}, "machine.cpu", "must be at most 300 characters long"),
    (SYNC, {"machine": {**MACHINE, "kernel": "\0"}}, "machine.kernel", "must not have a NUL"),
    (SYNC, {"have_version": -1}, "have_version", "must be 0 or more"),
    (SYNC, {"have_version": BIG}, "have_version", "must be at most"),
    (SYNC, {"applied": {"cars": -1}}, "applied.cars", "must be 0 or more"),
    (SYNC, {"applied": {"cars": "1"}}, "applied[...]", TYPE),
    (SYNC, {"incarnation": ""}, "incarnation", "must not be empty"),
    (SYNC, {"incarnation": "x" * 301}, "incarnation", "must be at most 300 characters long"),
    (SYNC, {"srtm_version": "x" * 301}, "srtm_version", "must be at most 300 characters long"),
    (SYNC, {"tcp_address": "h" * 300 + ":1"}, "tcp_address", "must be at most 300 characters long"),
    (SYNC, {"http_address": "h:65536"}, "http_address", "must be HOST:PORT"),
    (SYNC, {"srtm_version": "\0"}, "srtm_version", "must not have a NUL"),
    (SYNC, {"topics": [{**REPORT, "share_version": "1"}]}, "topics[0].share_version", TYPE),
    (SYNC, {"topics": [{"topic": "cars"}]}, "topics[0].share_version", "is required"),
    (DEAD, {"incarnation": 1}, "incarnation", TYPE),
    (DEAD, {"reason": 5}, "reason", TYPE),
    (HISTORY, {"incarnation": None}, "incarnation", TYPE),
    (HISTORY, {"topics": [{"topic": "cars", "share_version": 1}]}, "topics[0].first_ns", "is required"),
    (HISTORY, {"topics": {}}, "topics", TYPE),
    (MEASUREMENT, {"sequence": 0}, "sequence", "must count from 1"),
    (MEASUREMENT, {"sequence": "1"}, "sequence", TYPE),
    (MEASUREMENT, {"count": [1, 2]}, "count", "must"),
    (MEASUREMENT, {"count": [-1]}, "count[0]", "must be"),
    (MEASUREMENT, {"latency_ns": [BIG]}, "latency_ns[0]", "must be"),
    (MEASUREMENT, {"late": [2]}, "late[0]", "must be at most count[0]"),
    (MEASUREMENT, {"total_ns": -1}, "total_ns[0]", "must be"),
    (CAPACITY, {"mcap": "100"}, "mcap", "must be a valid number"),
    (CAPACITY, {"mcap": -1}, "mcap", "must be greater than 0"),
    (CAPACITY, {"mcap": 1e300}, "mcap", "must be less than or equal to"),
    (CAPACITY, {"batch": BIG}, "batch", "must be less than or equal to"),
    (CAPACITY, {"mcapp": 5}, "mcapp", "no such key; did you mean 'mcap'?"),
    (CAPACITY, {"slo": {**SLO, "percentile": 42}}, "slo.percentile", "must be one of"),
    (CAPACITY, {"measured": "x" * 41}, "measured", "must"),
    (CAPACITY, {"disturbed": ["x" * 501]}, "disturbed[0]", "must"),
    (SHARES, {"proposals": {}}, "proposals", TYPE),
    (SHARES, {"proposals": [{**PROPOSAL, "version": "1"}]}, "proposals[0].version", TYPE),
    (
        SHARES,
        {"proposals": [{**PROPOSAL, "shares": {"a": {"rate": 1}}}]},
        "proposals[0].shares[...].burst",
        "is required",
    ),
]


@pytest.mark.parametrize(("where", "change", "field", "rule"), REFUSED)
async def test_a_bad_value_is_refused_by_field_and_rule_and_changes_nothing(
    service: Service, where: tuple[str, str], change: dict[str, Any], field: str, rule: str
) -> None:
    before = service.state()
    answer = await service.ask(*where, json.dumps({**GOOD[where], **change}).encode())
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert answer.json()["field"] == field
    assert rule in answer.json()["rule"]
    assert service.state() == before


# httpx leaves the generator of a body to the collector where a route refuses without reading it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("where", GOOD)
@pytest.mark.parametrize(
    ("content", "status", "rule"),
    [
        (b'{"incarnation": "1", "mcap": NaN}', 400, "must be JSON"),
        (b'{"incarnation": "1", "mcap": -Infinity}', 400, "must be JSON"),
        (b"[]", 400, "must"),
        (b'{"a": "' + b"x" * LIMIT_BYTES + b'"}', 413, f"must be at most {LIMIT_BYTES} bytes"),
    ],
    ids=["NaN", "-Infinity", "list", "long"],
)
async def test_what_is_no_document_of_this_kind_is_refused_and_changes_nothing(
    service: Service, where: tuple[str, str], content: bytes, status: int, rule: str
) -> None:
    before = service.state()
    answer = await service.ask(*where, content)
    assert answer.status_code == status
    assert answer.json()["field"]
    assert rule in answer.json()["rule"]
    assert service.state() == before


@pytest.mark.parametrize(("where", "field"), [(SYNC, "mcap"), (CAPACITY, "body")])
async def test_a_number_that_no_float_holds_is_refused(service: Service, where: tuple[str, str], field: str) -> None:
    before = service.state()
    content = json.dumps({**GOOD[where], "mcap": "huge"}).replace('"huge"', "1e999")
    answer = await service.ask(*where, content.encode())
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert "out of range" in answer.json()["rule"]
    assert service.state() == before


@pytest.mark.parametrize("where", [key for key in GOOD if key != CAPACITY])
async def test_services_of_another_version_may_know_more_keys(service: Service, where: tuple[str, str]) -> None:
    answer = await service.ask(*where, json.dumps({**GOOD[where], "new_in_the_next_version": 1}).encode())
    assert answer.is_success, answer.text


@pytest.mark.parametrize(
    ("rate", "burst", "words"),
    [
        (-1, 5, "shares.a: [-1.0, 5.0]: must be a rate above 0"),
        (100, 0.5, "shares.a: [100.0, 0.5]: must be a rate above 0 and a burst of at least one message"),
        (1e8, 5, "shares: "),
        (1e300, 5, "shares.a: [1e+300, 5.0]: must be a rate above 0 and a burst of at least one message, each at most"),
        (1e305, 5, "shares.a: [1e+305, 5.0]: must be a rate above 0"),
        (100, 1e305, "shares.a: [100.0, 1e+305]: must be a rate above 0"),
        (200, 5, "must sum to at most 100 msg/s and 5 messages"),
    ],
)
async def test_a_proposal_that_makes_no_sense_is_not_taken_and_said_why(
    service: Service, rate: float, burst: float, words: str
) -> None:
    before = service.state()
    version = service.opened.registry.topics["cars"].version
    proposal = {**PROPOSAL, "version": version, "shares": {"a": {"rate": rate, "burst": burst}}}
    answer = await service.ask(*SHARES, json.dumps({"proposals": [proposal]}).encode())
    (result,) = answer.json()["results"]
    assert (answer.status_code, result["taken"]) == (200, False)
    assert words in result["problem"]
    assert service.state() == before


@pytest.mark.parametrize(
    "bad", [{"received": -1}, {"backlog": BIG}, {"channels": ["x" * 65]}, {"consumed": ["a b"]}, {"topic": ""}]
)
async def test_a_report_that_cannot_be_is_counted_and_not_kept(service: Service, bad: dict[str, Any]) -> None:
    before = service.opened.registry.topics["cars"]
    answer = await service.ask(*SYNC, json.dumps({**GOOD[SYNC], "topics": [{**REPORT, **bad}]}).encode())
    assert answer.status_code == 200
    assert service.opened.syncing.sessions.of("a").ignored_reports == 1
    assert service.opened.syncing.sessions.reports_of("a").topics == {}
    assert service.opened.registry.topics["cars"].channels == before.channels


async def test_a_history_that_cannot_be_is_counted_and_not_kept(service: Service) -> None:
    history = {"topic": "cars", "share_version": 1, "first_ns": 0, "arrivals": [-1], "waiting": [0], "unfinished": [0]}
    answer = await service.ask(*HISTORY, json.dumps({**GOOD[HISTORY], "topics": [history]}).encode())
    assert answer.status_code == 204
    assert service.opened.syncing.histories.ignored["a"] == 1
    assert "a" not in service.opened.syncing.histories.arrival_rates("cars")


async def test_the_death_of_a_process_that_is_not_known_buries_nobody(service: Service) -> None:
    answer = await service.ask(*DEAD, json.dumps({"incarnation": "x" * 5000}).encode())
    assert (answer.status_code, answer.json()["field"]) == (409, "incarnation")
    assert not service.opened.registry.brokers["a"].dead
