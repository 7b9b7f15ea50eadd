"""The page in a real Chromium: what an operator sees, signs in to, and changes. Debian's package ``chromium``."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Browser, Page, expect

from srtm.cluster.token_files import issue
from srtm.contracts.contract_file import read_contract_text
from srtm.control import LatencyMs, TopicLatency, TopicReport
from srtm.net.address import parse_peer
from tests.support.chromium import MARKS, PATIENCE_MS, PHONE, browser, page, served
from tests.support.ports import pick_addresses

__all__ = ["browser"]  # a fixture

TOPIC = {"rate": 50, "burst": 5, "slo": {"percentile": 99, "latency_ms": 5}, "publishers": [{"count": 30, "rate": 1}]}
BROKER = {"incarnation": "1", "srtm_version": "1", "tcp_address": "h:1", "http_address": "h:2", "mcap": 900}

pytestmark = MARKS


def running(folder: Path, *options: str) -> AbstractContextManager[str]:
    """A distributor's URL."""
    return served(["distributor", "--fitting", "off", "--store", f"sqlite:///{folder / 's.sqlite3'}", *options])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a distributor with a broker and a topic."""
    with running(tmp_path_factory.mktemp("page")) as found:
        httpx.post(f"{found}/v1/brokers/b1/sync", json=BROKER).raise_for_status()
        httpx.put(f"{found}/v1/topics/cars", json=TOPIC).raise_for_status()
        yield found


def test_it_shows_topics_brokers_and_events_and_complains_of_nothing(browser: Browser, url: str) -> None:
    with page(browser) as (it, said):
        it.goto(url)
        row = it.get_by_role("row").filter(has_text="cars")
        expect(row).to_contain_text("unknown", timeout=PATIENCE_MS)
        expect(row).to_contain_text("no broker reports the topic")
        expect(it.get_by_role("status")).to_have_text("live")
        it.get_by_role("link", name="Brokers").click()
        expect(it.get_by_role("row").filter(has_text="b1")).to_contain_text("of 900")
        it.get_by_role("link", name="b1").first.click()
        expect(it.get_by_role("heading", name="Broker b1")).to_be_visible()
        assert said == []


@pytest.mark.parametrize(("place", "said"), [("topics/nosuch", "topic 'nosuch'"), ("brokers/b7", "broker 'b7'")])
def test_what_is_not_known_is_said_and_nothing_stands_below(browser: Browser, url: str, place: str, said: str) -> None:
    with page(browser) as (it, _):
        it.goto(f"{url}/#/{place}")
        expect(it.get_by_role("alert")).to_contain_text(f"{said} is not known here", timeout=PATIENCE_MS)
        assert it.locator("section.card:visible").count() == 1


@pytest.mark.parametrize("width", [1280, 1279, 1024])
def test_why_a_promise_is_not_kept_is_not_cut_off(browser: Browser, url: str, width: int) -> None:
    with page(browser, viewport={"width": width, "height": 800}) as (it, _):
        it.goto(url)
        expect(it.get_by_role("row").filter(has_text="cars")).to_contain_text("no broker reports", timeout=PATIENCE_MS)
        # a longer name and figures as they are in trouble
        it.locator("td").first.evaluate("cell => { cell.textContent = 'la-highways' }")
        it.locator("td").nth(2).evaluate("cell => { cell.textContent = '1,234 ms of 5 ms' }")
        assert it.locator(".scroll").first.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_a_broker_says_how_many_mqtt_sessions_it_has(browser: Browser, url: str) -> None:
    asked = {**BROKER, "tcp_address": "h:3", "http_address": "h:4", "mqtt_address": "h:1883", "mqtt_sessions": 1234}
    httpx.post(f"{url}/v1/brokers/b2/sync", json=asked).raise_for_status()
    with page(browser) as (it, said):
        it.goto(f"{url}/#/brokers/b2")
        expect(it.get_by_role("term").filter(has_text="MQTT sessions")).to_be_visible(timeout=PATIENCE_MS)
        expect(it.get_by_text("1,234")).to_be_visible()
        expect(it.get_by_text("h:1883", exact=True)).to_be_visible()
        expect(it.get_by_role("alert")).to_contain_text("h:4", timeout=PATIENCE_MS)  # nobody answers there
        assert [line for line in said if "503" not in line] == []


def test_a_broker_says_how_many_connections_it_has_and_who_consumes_each_channel(browser: Browser, url: str) -> None:
    report = TopicReport(
        topic="cars", share_version=1, channels=["idle", "one", "many"], consumed=["one", "many"], consumers=[1, 2345]
    )
    told = {**BROKER, "tcp_address": "h:5", "http_address": "h:6", "connections": 3456}
    left = TopicReport(topic="removed", share_version=0)
    reports = {"number": 1, "topics": [msgspec.to_builtins(each) for each in (report, left)]}
    httpx.post(f"{url}/v1/brokers/b3/sync", json={**told, **reports}).raise_for_status()
    with page(browser) as (it, said):
        it.goto(f"{url}/#/brokers/b3")
        connections = it.locator(".facts div").filter(has_text="Connections")
        expect(connections).to_contain_text("3,456", timeout=PATIENCE_MS)
        row = it.get_by_role("row").filter(has_text="cars")
        for channel in ("idle no consumer", "one 1 consumer", "many 2,345 consumers"):
            expect(row.get_by_text(channel, exact=True)).to_be_visible()
        expect(row.get_by_role("link", name="cars")).to_be_visible()
        expect(it.get_by_role("row").filter(has_text="removed").get_by_role("link")).to_have_count(0)
        assert said == []


@contextmanager
def syncing(url: str, name: str, told: dict[str, object]) -> Iterator[None]:
    """A broker of ``url`` that says the same again and again, so that it is not silent."""
    over = threading.Event()

    def sync() -> None:
        while not over.wait(0.5):
            httpx.post(f"{url}/v1/brokers/{name}/sync", json=told).raise_for_status()

    httpx.post(f"{url}/v1/brokers/{name}/sync", json=told).raise_for_status()
    thread = threading.Thread(target=sync)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def confirm(it: Page, title: str, typed: str) -> None:
    """Unfold an action, type a name, and press its button."""
    action = it.locator("details").filter(has=it.locator("summary", has_text=title))
    if action.get_attribute("open") is None:
        action.locator("summary").click()
    action.get_by_label("Type b9 to confirm").fill(typed)
    action.get_by_role("button", name=title).click()


def test_a_broker_is_drained_taken_back_declared_dead_and_forgotten_there(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path) as url, page(browser) as (it, said):
        httpx.post(f"{url}/v1/brokers/b8/sync", json=BROKER).raise_for_status()

        def state() -> str:
            return str(httpx.get(f"{url}/v1/brokers/b9").json()["state"])

        line = it.locator(".promise-line")
        with syncing(url, "b9", {**BROKER, "tcp_address": "h:7", "http_address": "h:8"}):
            it.goto(f"{url}/#/brokers/b9")
            confirm(it, "Drain", "b8")
            expect(it.get_by_text("That is not b9. Nothing was done.")).to_be_visible(timeout=PATIENCE_MS)
            assert state() == "live"
            confirm(it, "Drain", "b9")
            expect(line).to_contain_text("draining", timeout=PATIENCE_MS)
        it.get_by_role("button", name="Undrain").click()
        expect(it.get_by_role("alert")).to_contain_text("still drains", timeout=PATIENCE_MS)
        confirm(it, "Declare dead", "b")
        expect(it.get_by_text("That is not b9. Nothing was done.")).to_be_visible()
        assert state() == "draining"
        confirm(it, "Declare dead", "b9")
        expect(line).to_contain_text("drained", timeout=PATIENCE_MS)
        it.get_by_role("button", name="Undrain").click()
        expect(line).to_contain_text("dead", timeout=PATIENCE_MS)
        expect(it.get_by_text("Back in service once it is started.")).to_be_visible()
        expect(it.locator("summary", has_text="Drain")).to_have_count(0)  # it would be refused
        assert state() == "dead"
        confirm(it, "Forget", "b8")
        expect(it.get_by_text("That is not b9. Nothing was done.")).to_be_visible()
        assert state() == "dead"
        confirm(it, "Forget", "b9")
        it.wait_for_url("**/#/brokers")
        expect(it.get_by_role("row").filter(has_text="b8")).to_be_visible(timeout=PATIENCE_MS)
        assert httpx.get(f"{url}/v1/brokers/b9").status_code == 404
        assert [line for line in said if "409" not in line] == []  # the browser's own word on the refusal


@contextmanager
def up_with_mqtt(folder: Path) -> Iterator[tuple[str, str]]:
    """A cluster of one broker that asks for tokens: the distributor's URL, and where the broker speaks MQTT."""
    [address] = pick_addresses(1)
    words = ["up", "--brokers", "1", "--mqtt", "--tokens", "--data", str(folder), "--http-address", address]
    with subprocess.Popen([sys.executable, "-m", "srtm", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
            [broker] = httpx.get(f"http://{address}/v1/brokers", headers=operator(folder)).json()
            yield f"http://{address}", broker["mqtt_address"]
        finally:
            process.terminate()
            process.wait(30)


def operator(folder: Path) -> dict[str, str]:
    return {"Authorization": f"Bearer {(folder / 'operator.token').read_text().strip()}"}


def connected(address: str, client_id: str, *filters: str) -> Client:
    """A client of MQTT 3.1.1 that keeps its session, connected and subscribed."""
    client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False)
    subscribed = threading.Event()
    client.on_connect = lambda *_: client.subscribe([(each, 1) for each in filters])
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect(*parse_peer("address", address))
    client.loop_start()
    assert subscribed.wait(20)
    return client


POLICIES = [
    {"name": "burst", "rate": 20, "burst": 40},
    {"name": "daily", "kind": "window", "quota": 500, "window": "1d"},
]


@pytest.fixture
def contract(url: str) -> Iterator[str]:
    """The URL of a contract of brokers in the interface; its page is at ``HALLS``."""
    at = f"{url}/v1/contracts/per-sensor/hall:*"
    httpx.put(at, json={"policies": POLICIES}).raise_for_status()
    yield at
    httpx.delete(at)


HALLS = "#/contracts/per-sensor/hall%3A*"


def test_contracts_of_brokers_are_listed_and_found(browser: Browser, url: str, contract: str) -> None:
    others = [{"namespace": f"n{number:03}", "subject": "*", "policies": POLICIES} for number in range(60)]
    httpx.post(f"{url}/v1/contracts", json={"contracts": others}).raise_for_status()
    with page(browser, viewport=PHONE) as (it, said):
        it.goto(f"{url}/#/contracts")
        expect(it.get_by_text("1 to 50 of 61")).to_be_visible(timeout=PATIENCE_MS)
        it.get_by_label("Find contracts").fill("sensor hall")
        row = it.get_by_role("row").filter(has_text="per-sensor")
        expect(row.get_by_text("daily: 500 in 1d")).to_be_visible(timeout=PATIENCE_MS)
        expect(it.get_by_role("row").filter(has_text="n000")).to_have_count(0)
        assert it.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        row.get_by_role("link", name="hall:*").click()
        expect(it.get_by_role("heading", name="Contract hall:* of per-sensor")).to_be_visible()
        expect(it.get_by_label("Tokens at most")).to_have_value("40", timeout=PATIENCE_MS)
        [shown] = read_contract_text(it.get_by_label("The contract as TOML").input_value())
        told = httpx.get(contract).json()
        assert shown.to_json() == {name: value for name, value in told.items() if name not in ("version", "counts")}
        assert said == []
    for each in others:
        httpx.delete(f"{url}/v1/contracts/{each['namespace']}/*").raise_for_status()


def test_a_contract_of_brokers_is_made_changed_and_removed_there(browser: Browser, url: str) -> None:
    at = f"{url}/v1/contracts/tenants/acme/*"
    with page(browser) as (it, said):
        it.goto(f"{url}/#/contracts")
        it.get_by_role("link", name="+ new contract").click()
        it.get_by_label("Namespace").fill("tenants")
        it.get_by_label("Subjects, * at the end").fill("acme/*")
        assert it.get_by_label("Kind").locator("option").all_inner_texts() == ["bucket", "window", "log"]
        it.get_by_label("Held by several brokers").select_option("replicated")
        it.get_by_role("button", name="Put in force").click()
        expect(it.get_by_role("heading", name="Contract acme/* of tenants")).to_be_visible(timeout=PATIENCE_MS)
        assert (httpx.get(at).json()["mode"], httpx.get(at).json()["policies"][0]["burst"]) == ("replicated", 100)
        it.get_by_label("Tokens at most").fill("7")
        text = it.get_by_label("The contract as TOML")
        text.fill(text.input_value().replace('"burst", kind', '"short", kind'))
        text.blur()
        expect(it.get_by_label("Name", exact=True)).to_have_value("short", timeout=PATIENCE_MS)
        it.get_by_role("button", name="Put in force").click()
        expect(it.get_by_text("Brokers have it within a second.")).to_be_visible(timeout=PATIENCE_MS)
        put = httpx.get(at).json()["policies"][0]
        assert (put["name"], put["burst"]) == ("short", 7)
        expect(it.get_by_text("No broker was asked yet.")).to_be_visible(timeout=PATIENCE_MS)
        it.get_by_text("Remove this contract").click()
        it.get_by_label("Type acme/* to confirm").fill("acme/*")
        it.get_by_role("button", name="Remove", exact=True).click()
        it.wait_for_url("**/#/contracts")
        assert httpx.get(at).status_code == 404
        assert [one for one in said if "404" not in one] == []  # a look may be under way when it is removed


def test_a_new_contract_does_not_replace_one_that_is_there(browser: Browser, url: str, contract: str) -> None:
    with page(browser) as (it, _):
        it.goto(f"{url}/#/contracts/new")
        it.get_by_label("Namespace").fill("per-sensor")
        it.get_by_label("Subjects, * at the end").fill("hall:*")
        it.get_by_role("button", name="Put in force").click()
        expect(it.get_by_role("alert")).to_contain_text("there is a contract of these subjects", timeout=PATIENCE_MS)
        assert len(httpx.get(contract).json()["policies"]) == 2


def test_what_brokers_cannot_hold_is_refused_in_the_services_words(browser: Browser, url: str, contract: str) -> None:
    with page(browser) as (it, _):
        it.goto(f"{url}/{HALLS}")
        it.get_by_label("Held by several brokers").select_option("replicated")
        it.get_by_role("button", name="Put in force").click()
        expect(it.get_by_role("alert")).to_contain_text("policies.daily.kind", timeout=PATIENCE_MS)
        assert httpx.get(contract).json()["mode"] is None


def test_whoever_edits_is_told_that_somebody_else_was_faster_and_chooses(
    browser: Browser, url: str, contract: str
) -> None:
    with page(browser) as (it, _):
        it.goto(f"{url}/{HALLS}")
        it.get_by_label("Tokens at most").fill("41")
        httpx.put(contract, json={"policies": POLICIES[:1]}).raise_for_status()
        it.get_by_role("button", name="Put in force").click()
        told = it.get_by_role("alert")
        expect(told).to_contain_text("Somebody else has changed this contract meanwhile.", timeout=PATIENCE_MS)
        assert httpx.get(contract).json()["policies"][0]["burst"] == 40
        it.get_by_text("Theirs", exact=True).click()
        expect(it.locator("pre")).to_contain_text("burst = 40")
        it.get_by_role("button", name="Keep mine").click()
        it.get_by_role("button", name="Put in force").click()
        expect(it.get_by_text("Brokers have it within a second.")).to_be_visible(timeout=PATIENCE_MS)
        expect(told).to_have_count(0)
        put = httpx.get(contract).json()["policies"]
        assert (len(put), put[0]["burst"]) == (2, 41)
        it.get_by_label("Tokens at most").fill("42")
        httpx.put(contract, json={"policies": POLICIES[:1]}).raise_for_status()
        it.get_by_role("button", name="Take theirs").click()  # without a press of the button: it looks each 5 s
        expect(it.get_by_label("Tokens at most")).to_have_value("40")
        httpx.put(contract, json={"policies": POLICIES}).raise_for_status()
        expect(it.get_by_text("This is theirs.")).to_be_visible(timeout=PATIENCE_MS)  # nothing was edited
        expect(it.get_by_role("group", name="Policy 2")).to_be_visible()
        httpx.delete(contract).raise_for_status()
        expect(it.get_by_text("Somebody has removed this contract.")).to_be_visible(timeout=PATIENCE_MS)
        it.get_by_role("button", name="Put in force").click()
        expect(it.get_by_text("Brokers have it within a second.")).to_be_visible(timeout=PATIENCE_MS)
        assert len(httpx.get(contract).json()["policies"]) == 2


def test_nodes_of_limit_services_are_listed_with_links_to_their_pages(browser: Browser, url: str) -> None:
    with page(browser) as (it, said):
        it.goto(f"{url}/#/topics/cars")
        it.get_by_role("link", name="Contracts").click()
        expect(it.get_by_text("no node finds its peers here")).to_be_visible(timeout=PATIENCE_MS)
        told = {"a": {"page": "http://10.0.0.1:4196/"}, "b": {}}  # b is of an earlier version
        for name, more in told.items():
            query = {"address": "10.0.0.1:4197", **more}
            httpx.put(f"{url}/v1/limit-nodes/c1/{name}", params=query).raise_for_status()
        it.reload()
        link = it.get_by_role("link", name="http://10.0.0.1:4196/")
        expect(link).to_have_attribute("href", "http://10.0.0.1:4196/", timeout=PATIENCE_MS)
        expect(it.get_by_role("row").filter(has_text="10.0.0.1:4197").nth(1).get_by_role("link")).to_have_count(0)
        expect(it.get_by_text("is of an earlier version")).to_be_visible()
        assert said == []


def test_events_of_what_is_gone_have_no_link(browser: Browser, url: str) -> None:
    httpx.put(f"{url}/v1/topics/gone", json=TOPIC).raise_for_status()
    with page(browser) as (it, said):
        it.goto(url)
        happened = it.get_by_label("Events")
        expect(happened.get_by_role("link", name="gone")).not_to_have_count(0, timeout=PATIENCE_MS)
        httpx.delete(f"{url}/v1/topics/gone").raise_for_status()
        expect(happened.get_by_role("link", name="gone")).to_have_count(0, timeout=PATIENCE_MS)
        expect(happened.get_by_text("gone").first).to_be_visible()
        expect(happened.get_by_role("link", name="cars").first).to_be_visible()
        assert said == []


def test_sessions_of_mqtt_are_listed_found_shown_and_ended(browser: Browser, tmp_path: Path) -> None:
    with up_with_mqtt(tmp_path) as (url, mqtt), page(browser, viewport=PHONE) as (it, said):
        for number in range(60):
            client = connected(mqtt, f"gate/{number:02}", f"gates/{number}/#")
            client.disconnect()
            client.loop_stop()
        lamp = connected(mqtt, "lamp <1>", "lamps/#", "rooms/+/light")
        gone = threading.Event()
        lamp.on_disconnect = lambda *_: gone.set()
        it.goto(f"{url}/#/brokers/broker-1")
        it.get_by_label("Token").fill((tmp_path / "operator.token").read_text().strip())
        it.get_by_role("button", name="Sign in").click()
        expect(it.get_by_text("1 to 50 of 61")).to_be_visible(timeout=PATIENCE_MS)
        expect(it.get_by_role("row").filter(has_text="gate/00")).to_contain_text("away")
        it.get_by_role("button", name="On").click()
        expect(it.get_by_text("51 to 61 of 61")).to_be_visible()
        it.get_by_label("Find a client").fill("lamp")
        row = it.get_by_role("row").filter(has_text="lamp <1>")
        expect(row).to_contain_text("connected")
        expect(it.get_by_role("row").filter(has_text="gate")).to_have_count(0)
        row.get_by_role("button", name="lamp <1>").click()
        expect(it.get_by_role("heading", name="Session of lamp <1>")).to_be_focused()
        expect(it.get_by_text("rooms/+/light")).to_be_visible()
        assert it.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        it.get_by_text("End this session").click()
        it.get_by_label("Type lamp <1> to confirm").fill("lamp")
        it.get_by_role("button", name="End it").click()
        expect(it.get_by_text("That is not lamp <1>. Nothing was done.")).to_be_visible()
        assert not gone.is_set()
        it.get_by_label("Type lamp <1> to confirm").fill("lamp <1>")
        with it.expect_response(lambda answer: answer.request.method == "DELETE") as ended:
            it.get_by_role("button", name="End it").click()
        assert ended.value.status == 204
        assert gone.wait(20)
        lamp.loop_stop()
        expect(it.get_by_text("The session of lamp <1> has ended.")).to_be_visible()
        [change, *_] = httpx.get(f"{url}/v1/audit", headers=operator(tmp_path)).json()
        assert change["what"] == "DELETE /v1/brokers/broker-1/mqtt/session?client=lamp%20%3C1%3E"
        assert (change["who"], change["subject"]) == ("operator", "broker broker-1")
        assert said == []


def test_a_topic_says_what_clients_of_mqtt_lost_and_nothing_of_them_before(browser: Browser, tmp_path: Path) -> None:
    with up_with_mqtt(tmp_path) as (url, mqtt), page(browser) as (it, said):
        strict = {**TOPIC, "rate": 0.001, "burst": 1, "on_excess": "reject", "publishers": []}
        httpx.put(f"{url}/v1/topics/cars", json=strict, headers=operator(tmp_path)).raise_for_status()
        it.goto(f"{url}/#/topics/cars")
        it.get_by_label("Token").fill((tmp_path / "operator.token").read_text().strip())
        it.get_by_role("button", name="Sign in").click()
        expect(it.get_by_role("term").filter(has_text="Burst b")).to_be_visible(timeout=PATIENCE_MS)
        lost = it.locator(".facts div").filter(has_text="MQTT lost at broker-1")
        expect(lost).to_have_count(0)
        client = connected(mqtt, "car", "nothing")
        for _ in range(8):
            client.publish("cars", b"x", qos=0)
        expect(lost).to_contain_text("publishes dropped", timeout=PATIENCE_MS)
        client.disconnect()
        client.loop_stop()
        assert said == []


def test_a_topic_is_planned_changed_and_removed_there(browser: Browser, url: str) -> None:
    httpx.post(f"{url}/v1/brokers/b1/sync", json=BROKER).raise_for_status()  # it is not silent
    httpx.put(f"{url}/v1/topics/vans", json=TOPIC).raise_for_status()
    with page(browser) as (it, said):
        it.goto(f"{url}/#/topics/vans")
        it.get_by_label("Rate r, msg/s").fill("70")
        it.get_by_role("button", name="Plan").click()
        expect(it.get_by_text("What it would do")).to_be_visible(timeout=PATIENCE_MS)
        expect(it.get_by_text("The promise is kept in")).to_contain_text("of 100 minutes")
        beside = it.get_by_role("region", name="The plan beside what is")
        _, topic, place, *_ = beside.get_by_role("row").all()
        expect(topic).to_contain_text("all30305070")
        expect(place).to_contain_text("30305070")  # the only broker that has a part of it
        expect(it.get_by_text("No publisher goes to another broker.")).to_be_visible()
        assert httpx.get(f"{url}/v1/topics/vans").json()["rate"] == 50
        it.get_by_role("button", name="Change").click()
        expect(it.get_by_text("Changed.")).to_be_visible(timeout=PATIENCE_MS)
        assert httpx.get(f"{url}/v1/topics/vans").json()["rate"] == 70
        it.get_by_text("Remove this topic").click()
        it.get_by_label("Type vans to confirm").fill("van")
        it.get_by_role("button", name="Remove").click()
        expect(it.get_by_text("That is not vans. Nothing was done.")).to_be_visible()
        it.get_by_label("Type vans to confirm").fill("vans")
        it.get_by_role("button", name="Remove").click()
        it.wait_for_url("**/#/")
        assert httpx.get(f"{url}/v1/topics/vans").status_code == 404
        assert said == []


def test_what_is_wrong_with_a_change_is_said_in_the_services_words(browser: Browser, url: str) -> None:
    with page(browser) as (it, _):
        it.goto(f"{url}/#/topics/cars")
        it.get_by_label("Rate r, msg/s").fill("1")
        it.get_by_role("button", name="Change").click()
        expect(it.get_by_role("alert")).to_contain_text("at least the publishers' rates", timeout=PATIENCE_MS)


def test_a_topic_file_is_submitted_with_the_csv_that_it_names(browser: Browser, url: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,rate,correlation_group\na,1,\nb,2,\n")
    (tmp_path / "t.toml").write_text(
        'name = "boats"\nrate = 9\nburst = 3\nslo = { percentile = 99, latency_ms = 50 }\n'
        '[[publishers]]\ncsv = "p.csv"\n'
    )
    with page(browser) as (it, _):
        it.goto(f"{url}/#/submit")
        it.locator("#files").set_input_files([tmp_path / "t.toml", tmp_path / "p.csv"])
        expect(it.get_by_text("With p.csv.")).to_be_visible()
        it.get_by_role("button", name="Submit").click()
        expect(it.get_by_text("Submitted:")).to_be_visible(timeout=PATIENCE_MS)
        assert httpx.get(f"{url}/v1/topics/boats").json()["publishers"] == 2


def test_publishers_that_say_where_they_are_are_points_on_a_map(browser: Browser, url: str) -> None:
    columns = {"ids": ["a", "b", "c"], "rates": [1, 1, 1], "latitudes": [34.05, 34.2, None]}
    placed = {**columns, "longitudes": [-118.25, -118.4, None]}
    httpx.put(f"{url}/v1/topics/map", json={**TOPIC, "publishers": [placed]}).raise_for_status()
    with page(browser) as (it, said):
        it.goto(f"{url}/#/topics/map")
        drawn = it.get_by_role("img", name="Where 2 publishers are, coloured by broker")
        expect(drawn).to_be_visible(timeout=PATIENCE_MS)
        expect(drawn.locator("circle")).to_have_count(2)
        expect(it.get_by_text("2 of 3 publishers say where they are.")).to_be_visible()
        it.goto(f"{url}/#/topics/cars")
        expect(it.get_by_role("heading", name="Publishers")).to_be_visible()
        expect(it.locator("figure.map")).to_have_count(0)
        assert said == []


@pytest.mark.parametrize("viewport", [{"width": 1280, "height": 800}, PHONE], ids=["desk", "phone"])
def test_a_stranger_reads_what_is_broken_since_when_why_and_what_would_mend_it(
    browser: Browser, tmp_path: Path, viewport: dict[str, int]
) -> None:
    late = LatencyMs(count=10_000, p50_ms=1, p95_ms=5, p99_ms=40, p999_ms=60, max_ms=80)
    period = TopicLatency(access=late, processing=LatencyMs(count=10_000))
    report = TopicReport(
        topic="cars", share_version=1, rate=50, burst=5, largest_backlog=12.5, last_60s=period, since_start=period
    )
    with running(tmp_path) as url, page(browser, viewport=viewport) as (it, said):
        httpx.post(f"{url}/v1/brokers/b1/sync", json=BROKER).raise_for_status()
        httpx.put(f"{url}/v1/topics/cars", json=TOPIC).raise_for_status()
        with syncing(url, "b1", {**BROKER, "topics": [msgspec.to_builtins(report)]}):
            it.goto(url)
            row = it.get_by_role("row").filter(has_text="cars")
            expect(row).to_contain_text("broken", timeout=PATIENCE_MS)
            expect(row).to_contain_text("since")
            for text in ("up to 12.5 messages more came there", "Mend: raise burst to 12.2"):
                expect(row).to_contain_text(text)
                expect(row.get_by_text(text)).to_be_in_viewport()
            row.get_by_role("link", name="cars").click()
            it.get_by_text("reasons").first.click()
            it.get_by_role("button", name="Plan it").focus()
            with it.expect_response("**/history"):  # it is drawn anew
                pass
            expect(it.get_by_role("button", name="Plan it")).to_be_focused()
            expect(it.locator(".decisions details").first).to_have_attribute("open", "")
            it.keyboard.press("Enter")
            expect(it.get_by_text("What it would do")).to_be_visible(timeout=PATIENCE_MS)
            expect(it.get_by_label("Burst b, or auto")).to_have_value("12.25")
            assert httpx.get(f"{url}/v1/topics/cars").json()["burst"] == 5, "a plan changes nothing"
        assert said == []


def test_a_time_that_is_not_of_today_comes_with_its_date(browser: Browser, tmp_path: Path) -> None:
    with running(tmp_path) as url, page(browser, timezone_id="UTC", locale="en-GB") as (it, said):
        httpx.post(f"{url}/v1/brokers/b1/sync", json=BROKER).raise_for_status()
        httpx.put(f"{url}/v1/topics/cars", json=TOPIC).raise_for_status()
        [decision, *_] = httpx.get(f"{url}/v1/topics/cars/decisions").json()
        noon = datetime.fromisoformat(decision["at"]).astimezone(UTC).replace(hour=12)
        day, time = noon.strftime("%d/%m/%Y, "), decision["at"][11:19]
        shown = it.locator(".decisions time").first
        it.clock.set_fixed_time(noon)
        it.goto(f"{url}/#/topics/cars")
        expect(shown).to_have_text(time, timeout=PATIENCE_MS)
        it.clock.set_fixed_time(noon + timedelta(days=1))
        it.reload()
        expect(shown).to_have_text(f"{day}{time}", timeout=PATIENCE_MS)
        assert said == []


@pytest.mark.parametrize("where", ["#/", "#/topics/cars", "#/brokers/b1", "#/contracts", "#/contracts/new", "#/submit"])
def test_on_a_phone_nothing_sticks_out(browser: Browser, url: str, where: str) -> None:
    with page(browser, viewport=PHONE, color_scheme="dark") as (it, said):
        it.goto(f"{url}/{where}")
        expect(it.get_by_role("heading", level=1)).to_be_visible()
        it.wait_for_load_state("load")
        assert it.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert said == []


def test_on_a_phone_a_broker_says_how_it_is(browser: Browser, url: str) -> None:
    with page(browser, viewport=PHONE) as (it, _):
        it.goto(f"{url}/#/brokers/b1")
        with syncing(url, "b1", BROKER):
            expect(it.locator(".word.live")).to_be_visible(timeout=PATIENCE_MS)


def test_a_keyboard_sorts_the_list_and_opens_a_topic(browser: Browser, url: str) -> None:
    with page(browser) as (it, _):
        it.goto(url)
        it.get_by_role("button", name="Topic").focus()
        it.keyboard.press("Enter")
        expect(it.get_by_role("columnheader", name="Topic")).to_have_attribute("aria-sort", "ascending")
        it.get_by_role("link", name="cars").first.focus()
        it.keyboard.press("Enter")
        expect(it.get_by_role("heading", name="Topic cars")).to_be_visible()


def test_with_tokens_it_asks_for_one_and_takes_no_wrong_one(browser: Browser, tmp_path: Path) -> None:
    issued = issue(tmp_path, [])
    with running(tmp_path, "--tokens", str(issued.list_file)) as closed, page(browser) as (it, _):
        it.goto(closed)
        it.get_by_label("Token").fill("wrong")
        it.get_by_role("button", name="Sign in").click()
        expect(it.get_by_role("alert")).to_contain_text("must be the token of an operator", timeout=PATIENCE_MS)
        it.get_by_label("Token").fill(issued.operator)
        it.get_by_role("button", name="Sign in").click()
        expect(it.get_by_role("heading", name="Topics")).to_be_visible(timeout=PATIENCE_MS)
        (cookie,) = it.context.cookies()
        assert cookie.get("httpOnly")
        it.get_by_role("button", name="Sign out").click()
        expect(it.get_by_label("Token")).to_be_visible()
