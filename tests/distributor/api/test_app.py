"""The HTTP interface, in this process: routes, refusals, nsqlookupd's answers."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import trio

from distributor.api.app import make_app
from srtm.client.distributor import DistributorClient
from srtm.control import BrokerMachine, DeadNotice, TopicReport
from srtm.errors import BadInput, Conflict, NotFound, Unavailable
from srtm.net.tokens import Tokens
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec

TOPIC = {
    "name": "cars",
    "rate": 1100,
    "burst": 30,
    "slo": {"percentile": 99, "latency_ms": 5},
    "publishers": [{"count": 100, "rate": 10, "group_size": 5, "id_prefix": "p"}],
}


def http(distributor: Distributor, token: str | None = None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(make_app(distributor.registry, distributor.syncing), raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(transport=transport, base_url="http://d", headers=headers)


@pytest.fixture
async def client(distributor) -> AsyncIterator[httpx.AsyncClient]:
    async with http(distributor) as opened:
        yield opened


async def problem(answer: httpx.Response, status: int) -> dict:
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    return body


async def test_a_topic_is_created_shown_listed_changed_and_removed(distributor, client, mock_clock):
    a, b = await distributor.brokers("a", "b")
    created = await client.put("/v1/topics/cars", json=TOPIC)
    assert created.status_code == 200
    view = created.json()
    assert (view["name"], view["state"], view["publishers"], view["publishers_rate"]) == ("cars", "placed", 100, 1000.0)
    await settle(a, b)
    shown = (await client.get("/v1/topics/cars")).json()
    listed = (await client.get("/v1/topics")).json()
    for one in (*shown["brokers"], *listed[0]["brokers"]):
        assert one.pop("renewed_s_ago") >= 0
    assert [one["broker"] for one in shown["brokers"]] == ["a", "b"]
    assert [one["share_version"] == one["applied_version"] for one in shown["brokers"]] == [True, True]
    assert sum(one["rate"] for one in shown["brokers"]) == 1100
    assert listed == [shown]
    again = (await client.put("/v1/topics/cars", json=TOPIC)).json()
    assert again["version"] == view["version"]
    changed = (await client.put("/v1/topics/cars", json={**TOPIC, "rate": 1200})).json()
    assert changed["version"] > view["version"]
    assert (await client.delete("/v1/topics/cars")).status_code == 204
    assert (await client.get("/v1/topics")).json() == []
    await problem(await client.get("/v1/topics/cars"), 404)


async def test_why_a_topic_is_late_is_asked_by_its_name(distributor, client):
    await distributor.brokers("a", "b")
    await distributor.submit(spec())
    found = (await client.get("/v1/topics/cars/why")).json()
    assert (found["topic"], found["promise"], found["cause"], found["also"]) == ("cars", "unknown", "nothing", [])
    await problem(await client.get("/v1/topics/boats/why"), 404)


async def test_a_drain_that_goes_on_cannot_be_taken_back(distributor, client):
    await distributor.brokers("a", "b")
    assert (await client.post("/v1/brokers/a/undrain")).json()["state"] == "live"  # it does not drain
    assert (await client.post("/v1/brokers/a/drain")).status_code == 202
    await problem(await client.post("/v1/brokers/a/undrain"), 409)
    assert (await client.post("/v1/brokers/a/dead", json={"incarnation": "1", "reason": "ended"})).status_code == 204
    assert (await client.get("/v1/brokers/a")).json()["state"] == "drained"
    assert (await client.post("/v1/brokers/a/undrain")).json()["state"] == "dead"


async def test_post_creates_only(distributor, client):
    assert (await client.post("/v1/topics", json=TOPIC)).status_code == 201
    refused = await problem(await client.post("/v1/topics", json={**TOPIC, "rate": 2000}), 409)
    assert (refused["field"], refused["value"]) == ("name", "cars")
    assert distributor.registry.topic("cars").spec.rate == 1100


@pytest.mark.slow
async def test_a_plan_shows_what_would_happen_and_stores_nothing(distributor, client):
    brokers = await distributor.brokers("a", "b", "c")
    version = distributor.registry.version
    for path in ("/v1/plan", "/v1/topics/cars/plan"):
        for broker in brokers:
            await broker.sync()  # a prediction takes seconds; who did not sync meanwhile would count as silent
        plan = (await client.post(path, json=TOPIC)).json()
        assert [one["publishers"] for one in plan["brokers"]] == [50, 50]
        assert plan["state"] == "placed"
        assert any("spread evenly over all 3 brokers" in line for line in plan["reasons"])
        assert plan["balanced"]["k"] == 3
        assert plan["balanced"]["penalty"]["sum_ms"] > plan["penalty"]["sum_ms"] > 0
        assert [one["rate"] for one in plan["admitted_afterwards"]["brokers"]] == [100.0, 100.0, 600.0]
    assert distributor.registry.version == version


@pytest.mark.slow
async def test_a_submission_is_answered_with_the_explanation_that_the_plan_gave(distributor, client):
    brokers = await distributor.brokers("a", "b", "c")
    plan = (await client.post("/v1/plan", json=TOPIC)).json()
    assert plan.pop("moves") == 0
    for broker in brokers:
        await broker.sync()  # a prediction takes seconds; who did not sync meanwhile would count as silent
    asked = {"confidence": 95}
    assert (await client.put("/v1/topics/cars", json=TOPIC, params=asked)).json()["explanation"] == plan
    for broker in brokers:
        await broker.sync()
    without = (await client.put("/v1/topics/cars", json=TOPIC)).json()["explanation"]
    assert without == {**plan, "promise": None}


@pytest.mark.parametrize("confidence", ["49.9", "99.1", "nan"])
async def test_a_confidence_out_of_range_is_refused(distributor, client, confidence):
    await problem(await client.post("/v1/plan", json=TOPIC, params={"confidence": confidence}), 400)
    await problem(await client.put("/v1/topics/cars", json=TOPIC, params={"confidence": confidence}), 400)
    assert "cars" not in distributor.registry.topics


async def test_a_broker_in_the_laboratory_is_predicted_by_its_service_time(distributor, client):
    (broker,) = await distributor.brokers("a", mcap=2000)
    broker.lab_service_time_ns = 300_000
    await broker.sync()
    (place,) = (await client.post("/v1/plan", json=TOPIC)).json()["brokers"]
    assert (place["service_us"], place["service_known"]) == (300.0, "laboratory")
    assert place["processing_ms"] > 0.3
    broker.lab_service_time_ns = -1
    with pytest.raises(BadInput, match="lab_service_time_ns: -1"):
        await broker.sync()


async def test_a_broker_is_shown_with_the_machine_that_it_tells_of(distributor, client):
    (broker,) = await distributor.brokers("a")
    assert (await client.get("/v1/brokers/a")).json()["machine"] is None
    broker.machine = BrokerMachine(cores=64, kernel="7.1", cpu="Some CPU")
    await broker.sync()
    told = (await client.get("/v1/brokers/a")).json()["machine"]
    assert told == {"cores": 64, "kernel": "7.1", "cpu": "Some CPU"}


async def test_an_automatic_burst_is_computed(distributor, client):
    await distributor.brokers("a", mcap=2000)
    document = {**TOPIC, "burst": "auto", "publishers": [{"count": 4, "rate": 10, "process": "periodic", "batch": 5}]}
    view = (await client.put("/v1/topics/cars", json=document)).json()
    assert view["burst"] >= 5


async def test_publishers_are_added_removed_and_listed(distributor, client):
    await distributor.brokers("a", "b")
    await client.put("/v1/topics/cars", json=TOPIC)
    change = {"add": [{"id": "new/one", "rate": 5, "correlation_group": "g"}], "remove": ["p0"]}
    assert (await client.patch("/v1/topics/cars/publishers", json=change)).json()["publishers"] == 100
    columns = (await client.get("/v1/topics/cars/publishers")).json()
    assert len(columns["ids"]) == len(columns["brokers"]) == len(columns["groups"]) == len(columns["rates"]) == 100
    assert "p0" not in columns["ids"]
    at = columns["ids"].index("new/one")
    assert (columns["groups"][at], columns["rates"][at]) == ("g", 5.0)
    of_a = (await client.get("/v1/topics/cars/publishers", params={"broker": "a"})).json()
    assert set(of_a["brokers"]) == {"a"}
    found = (await client.get("/v1/topics/cars/publishers/new%2Fone")).json()
    assert (found["declared"], found["broker"]) == (True, columns["brokers"][at])
    missing = await problem(await client.patch("/v1/topics/cars/publishers", json={"remove": ["p0"]}), 404)
    assert (missing["field"], missing["value"]) == ("publisher", "p0")


async def test_the_decision_log_explains_every_broker_newest_first(distributor, client):
    await distributor.brokers("a", "b")
    await client.put("/v1/topics/cars", json=TOPIC)
    await client.patch("/v1/topics/cars/publishers", json={"remove": ["p0"]})
    newest, oldest = (await client.get("/v1/topics/cars/decisions")).json()
    assert newest["lines"][0] == "publishers changed"
    assert oldest["lines"][0] == "submitted"
    for name in ("a", "b"):
        assert any(line.startswith(f"{name}: 50 publishers, 500 msg/s") for line in oldest["lines"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rate": -1}, "rate"),
        ({"rate": 999}, "rate"),
        ({"burst": 0.5}, "burst"),
        ({"slo": {"percentile": 98, "latency_ms": 5}}, "slo.percentile"),
        ({"name": "a b"}, "name"),
        ({"name": "vans"}, "name"),
        ({"mode": "quick"}, "mode"),
        ({"placement": "best"}, "placement"),
        ({"publishers": [{"ids": ["x", "x"], "rates": [1, 1]}]}, "publishers[0][1].id"),
    ],
)
async def test_a_bad_topic_is_refused_naming_field_value_and_rule_and_changes_nothing(
    distributor, client, change, field
):
    version = distributor.registry.version
    refused = await problem(await client.put("/v1/topics/cars", json={**TOPIC, **change}), 400)
    assert refused["field"] == field
    assert refused["rule"]
    assert distributor.registry.version == version


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[1]"])
async def test_what_is_no_document_is_refused(client, body):
    await problem(await client.put("/v1/topics/cars", content=body), 400)
    await problem(await client.post("/v1/brokers/a/sync", content=body), 400)


async def test_unknown_routes_methods_and_query_values_are_problems_too(client):
    await problem(await client.get("/nope"), 404)
    await problem(await client.post("/healthz"), 405)
    await problem(await client.delete("/v1/topics/cars", params={"purge": "perhaps"}), 400)


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("a b", {}, "broker"),
        ("a", {"tcp_address": "nowhere"}, "tcp_address"),
        ("a", {"http_address": "h:70000"}, "http_address"),
        ("a", {"mcap": -1}, "mcap"),
        ("a", {"incarnation": ""}, "incarnation"),
    ],
)
async def test_a_broker_that_presents_itself_badly_is_refused(distributor, client, name, change, field):
    request = {
        "incarnation": "1",
        "srtm_version": "0",
        "tcp_address": "127.0.0.1:4150",
        "http_address": "127.0.0.1:4151",
        "mcap": 0,
    }
    refused = await problem(await client.post(f"/v1/brokers/{name}/sync", json={**request, **change}), 400)
    assert refused["field"] == field
    assert distributor.registry.brokers == {}


async def test_a_token_is_asked_for_except_by_the_lookup_routes(tmp_path: Path):
    guarded = await Distributor.open(tmp_path / "s.sqlite3", tokens=Tokens.of_one("secret"))
    async with http(guarded) as stranger:
        for path in ("/v1/topics", "/v1/brokers", "/metrics", "/openapi.json", "/nope"):
            assert (await problem(await stranger.get(path), 401))["title"] == "unauthorized"
        for path in ("/ping", "/healthz", "/topics", "/nodes", "/channels?topic=x"):
            assert (await stranger.get(path)).status_code == 200
    async with http(guarded, "wrong") as stranger:
        await problem(await stranger.get("/v1/topics"), 401)
    async with http(guarded, "secret") as friend:
        assert (await friend.get("/v1/topics")).json() == []
    await guarded.aclose()


async def test_lookup_answers_as_nsqlookupd_does(distributor, client):
    a, b, c = await distributor.brokers("a", "b", "c")
    await client.put("/v1/topics/cars", json=TOPIC)
    await settle(a, b, c)
    c.reports = [
        TopicReport(topic="own", share_version=0, received=3, channels=["tail#ephemeral"]),
        TopicReport(topic="cars", share_version=1, channels=["archive"]),
        TopicReport(topic="quiet", share_version=0, channels=["a", "b"]),
    ]
    await c.sync()
    answer = await client.get("/lookup", params={"topic": "cars"})
    assert answer.headers["X-NSQ-Content-Type"] == "nsq; version=1.0"
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    found = answer.json()
    assert found["channels"] == ["archive"]
    assert [one["tcp_port"] for one in found["producers"]] == [int(one.address.split(":")[1]) for one in (a, b)]
    assert found["producers"][0] == {
        "remote_address": a.address,
        "hostname": "a",
        "broadcast_address": "127.0.0.1",
        "tcp_port": int(a.address.split(":")[1]),
        "http_port": 4151,
        "version": "1.3.0",
    }
    assert (await client.get("/topics")).json() == {"topics": ["cars", "own", "quiet"]}
    quiet = (await client.get("/lookup", params={"topic": "quiet"})).json()
    assert (quiet["channels"], [one["hostname"] for one in quiet["producers"]]) == (["a", "b"], ["c"])
    assert (await client.get("/channels", params={"topic": "own"})).json() == {"channels": ["tail#ephemeral"]}
    assert (await client.get("/channels", params={"topic": "nope"})).json() == {"channels": []}
    nodes = {one["hostname"]: one for one in (await client.get("/nodes")).json()["producers"]}
    assert (nodes["c"]["topics"], nodes["c"]["tombstones"]) == (["own", "quiet"], [False, False])
    assert (await client.get("/ping")).text == "OK"
    for path, status, message in (
        ("/lookup", 400, "MISSING_ARG_TOPIC"),
        ("/channels", 400, "MISSING_ARG_TOPIC"),
        ("/lookup?topic=nope", 404, "TOPIC_NOT_FOUND"),
    ):
        refused = await client.get(path)
        assert (refused.status_code, refused.json()) == (status, {"message": message})


async def _asked(client, path, **arguments):
    answer = await client.post(path, params=arguments)
    return answer.status_code, answer.json()["message"] if answer.status_code in (400, 404) else answer.text


async def test_nsqadmin_creates_and_deletes_topics_and_channels_that_no_broker_has_yet(client):
    assert (await client.get("/info")).json() == {"version": "1.3.0"}
    assert await _asked(client, "/channel/create", topic="t", channel="a") == (200, "")
    assert await _asked(client, "/topic/create", topic="u") == (200, "")
    assert (await client.get("/topics")).json() == {"topics": ["t", "u"]}
    assert (await client.get("/lookup", params={"topic": "t"})).json() == {"channels": ["a"], "producers": []}
    assert await _asked(client, "/channel/delete", topic="t", channel="a") == (200, "")
    assert await _asked(client, "/channel/delete", topic="t", channel="a") == (404, "CHANNEL_NOT_FOUND")
    assert await _asked(client, "/topic/delete", topic="t") == (200, "")
    assert await _asked(client, "/topic/delete", topic="t") == (200, ""), "as nsqlookupd"
    assert (await client.get("/topics")).json() == {"topics": ["u"]}


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("/topic/create", {}, "MISSING_ARG_TOPIC"),
        ("/topic/create", {"topic": "a b"}, "INVALID_ARG_TOPIC"),
        ("/topic/delete", {}, "MISSING_ARG_TOPIC"),
        ("/topic/tombstone", {"node": "h:1"}, "MISSING_ARG_TOPIC"),
        ("/topic/tombstone", {"topic": "t"}, "MISSING_ARG_NODE"),
        ("/channel/create", {"channel": "a"}, "MISSING_ARG_TOPIC"),
        ("/channel/create", {"topic": "t"}, "MISSING_ARG_CHANNEL"),
        ("/channel/create", {"topic": "t", "channel": "a b"}, "INVALID_ARG_CHANNEL"),
        ("/channel/delete", {"topic": "a b", "channel": "a"}, "INVALID_ARG_TOPIC"),
    ],
)
async def test_a_bad_request_of_nsqadmin_is_refused_as_nsqlookupd_does(client, path, arguments, message):
    assert await _asked(client, path, **arguments) == (400, message)
    assert (await client.get("/topics")).json() == {"topics": []}


async def test_a_tombstone_hides_a_broker_from_a_topic_for_45_s(distributor, client, autojump_clock):
    (a,) = await distributor.brokers("a")
    a.reports = [TopicReport(topic="own", share_version=0, received=3)]

    async def found() -> tuple[int, list[bool]]:
        producers = (await client.get("/lookup", params={"topic": "own"})).json()["producers"]
        return len(producers), (await client.get("/nodes")).json()["producers"][0]["tombstones"]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(a.run)
        await trio.sleep(1)
        assert await found() == (1, [False])
        for node, status in (("127.0.0.1:1", (1, [False])), ("127.0.0.1:4151", (0, [True]))):
            assert await _asked(client, "/topic/tombstone", topic="own", node=node) == (200, "")
            assert await found() == status
        await trio.sleep(44.9)
        assert await found() == (0, [True])
        await trio.sleep(0.2)
        assert await found() == (1, [False])
        nursery.cancel_scope.cancel()


async def test_a_managed_topic_is_not_deleted_or_hidden_by_nsqadmin(distributor, client):
    a, b = await distributor.brokers("a", "b")
    await client.put("/v1/topics/cars", json=TOPIC)
    await settle(a, b)
    for path in ("/topic/delete", "/topic/tombstone"):
        refused = await problem(await client.post(path, params={"topic": "cars", "node": "127.0.0.1:4151"}), 409)
        assert "srtm topic remove cars" in refused["detail"]
    assert len((await client.get("/lookup", params={"topic": "cars"})).json()["producers"]) == 2


async def test_nsqadmins_writes_need_an_operators_token(tmp_path: Path):
    guarded = await Distributor.open(
        tmp_path / "s.sqlite3", tokens=Tokens.parsed("tokens", "operator ann o\nbroker b1 b\n")
    )
    for token, status in (("o", 200), ("b", 403)):
        async with http(guarded, token) as asking:
            assert (await asking.post("/topic/create", params={"topic": "t"})).status_code == status
    async with http(guarded) as stranger:
        await problem(await stranger.post("/topic/delete", params={"topic": "t"}), 401)
    await guarded.aclose()


async def test_a_broker_with_messages_from_before_its_start_is_looked_up_also_without_a_part(distributor, client):
    a, b, c = await distributor.brokers("a", "b", "c")
    await client.put("/v1/topics/cars", json=TOPIC)
    await settle(a, b, c)
    for holds_messages, others in ((False, []), (True, ["c"])):
        c.reports = [TopicReport(topic="cars", share_version=1, holds_messages=holds_messages)]
        await c.sync()
        found = (await client.get("/lookup", params={"topic": "cars"})).json()["producers"]
        assert [one["hostname"] for one in found] == ["a", "b", *others]


async def test_a_broker_that_died_is_not_looked_up(distributor, client):
    await distributor.brokers("a", "b")
    await distributor.registry.declare_dead("a", "1")
    assert [one["hostname"] for one in (await client.get("/nodes")).json()["producers"]] == ["b"]


async def test_brokers_are_shown_with_their_capacity(distributor, client):
    await distributor.brokers("a", "b")
    await FakeBroker("u", distributor.syncing, mcap=0).settle()
    await client.put("/v1/topics/cars", json={**TOPIC, "placement": "lb", "publishers": [{"count": 30, "rate": 10}]})
    shown = (await client.get("/v1/brokers")).json()
    assert [(one["name"], one["mcap"], one["allocated"], one["rcap"], one["alive"]) for one in shown] == [
        ("a", 600.0, 100.0, 500.0, True),
        ("b", 600.0, 100.0, 500.0, True),
        ("u", 20_000.0, 100.0, 19_900.0, True),
    ]
    assert [one["mcap_assumed"] for one in shown] == [False, False, True]
    assert (await client.get("/v1/brokers/a")).json()["tcp_address"].startswith("127.0.0.1:")
    await problem(await client.get("/v1/brokers/z"), 404)


async def test_the_client_library_understands_every_answer(distributor):
    """The real client against the real routes: a refusal comes back as the exception that was raised here."""
    transport = httpx.ASGITransport(make_app(distributor.registry, distributor.syncing))
    async with DistributorClient("http://d", transport=transport) as client:
        await client.create_or_change_topic("cars", TOPIC)
        with pytest.raises(Unavailable, match="no broker for publisher 'p1' of topic 'cars'"):
            await client.assignment("cars", "p1")
        a, b = await distributor.brokers("a", "b")
        await client.create_or_change_topic("cars", {**TOPIC, "rate": 1200})
        await settle(a, b)
        assert (await client.assignment("cars", "p1")).declared
        assert {one.tcp_port for one in (await client.lookup("cars")).producers} == {4150 + ord("a"), 4150 + ord("b")}
        with pytest.raises(BadInput, match="rate"):
            await client.create_or_change_topic("cars", {**TOPIC, "rate": 0})
        with pytest.raises(NotFound):
            await client.topic("vans")
        with pytest.raises(Conflict):
            await client.broker_is_dead("a", DeadNotice(incarnation="0"))
        await client.broker_is_dead("a", DeadNotice(incarnation="1", reason="exit status 1"))
        assert [one["alive"] for one in await client.brokers()] == [False, True]
        await client.remove_topic("cars")
        assert await client.topics() == []


async def test_metrics_and_openapi_are_served(distributor, client):
    a, b = await distributor.brokers("a", "b")
    await client.put("/v1/topics/cars", json=TOPIC)
    await settle(a, b)
    text = (await client.get("/metrics")).text
    assert 'srtm_share_rate{broker="a",topic="cars"} 550.0' in text
    assert 'srtm_share_in_force{broker="b",topic="cars"} 1.0' in text
    assert 'srtm_broker_alive{broker="a"} 1.0' in text
    paths = (await client.get("/openapi.json")).json()["paths"]
    assert {"/v1/topics/{name}", "/v1/brokers/{name}/sync", "/lookup"} <= paths.keys()
    assert (await client.get("/healthz")).json()["status"] == "ok"


async def test_an_error_of_our_own_is_a_problem_without_a_traceback(distributor, monkeypatch):
    monkeypatch.setattr(distributor.registry, "managed", lambda: 1 / 0)
    async with http(distributor) as client:
        failed = await problem(await client.get("/v1/topics"), 500)
    assert failed["title"] == "internal error"
    assert "Traceback" not in str(failed)


@pytest.mark.parametrize("field", ["incarnation", "srtm_version", "tcp_address", "http_address"])
async def test_a_text_that_not_every_store_can_keep_is_refused(client, field):
    request = {"incarnation": "1", "srtm_version": "0", "tcp_address": "h:1", "http_address": "h:2", "mcap": 1}
    answer = await client.post("/v1/brokers/a/sync", json={**request, field: f"\0{request[field]}"})
    refused = await problem(answer, 400)
    assert (refused["field"], refused["rule"]) == (field, "must not have a NUL character in it")
    assert (await client.get("/v1/brokers")).json() == []


async def test_brokers_are_heard_while_a_change_of_many_publishers_is_worked_out(distributor, nursery):
    (a,) = await distributor.brokers("a")
    await distributor.submit(spec())
    was_heard = threading.Event()

    def change(old):
        assert was_heard.wait(timeout=10)
        return old

    nursery.start_soon(distributor.registry.change_publishers, "cars", change)
    await trio.testing.wait_all_tasks_blocked()
    await a.sync()
    was_heard.set()
