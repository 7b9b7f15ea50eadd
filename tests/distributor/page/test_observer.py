"""One look serves all who watch: rows, histories, events; and a stream that ends with the lead."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest
import trio
import trio.testing

from distributor.api.app import make_app
from distributor.page.observer import Observer
from distributor.page.routes import News, _stream
from distributor.registry.registry import Registry
from distributor.sync.figures import utc
from distributor.views.broker_view import CapacityView, capacity_view
from srtm.control import LatencyMs, TopicLatency, TopicReport
from tests.support.distributor_in_process import Distributor, FakeBroker, spec
from tests.support.function_calls import FunctionCalls, counted
from tests.support.many_topics import seeded


@pytest.fixture
async def distributor(tmp_path: Path) -> AsyncIterator[Distributor]:
    opened = await Distributor.open(tmp_path / "s.sqlite3")
    yield opened
    await opened.aclose()


def report(p99_ms: float) -> TopicReport:
    delay = LatencyMs(count=10_000, p50_ms=p99_ms, p95_ms=p99_ms, p99_ms=p99_ms, p999_ms=p99_ms, max_ms=p99_ms)
    period = TopicLatency(access=delay, processing=delay)
    return TopicReport(topic="cars", share_version=1, rate=100.0, last_60s=period, since_start=period, recent=period)


async def looked(distributor: Distributor, p99_ms: float) -> tuple[Observer, FakeBroker]:
    broker = FakeBroker("b1", distributor.syncing, mcap=2000.0)
    await broker.sync()
    observer = Observer(distributor.registry, distributor.syncing)
    await distributor.registry.submit(spec("cars"))
    await broker.sync()
    broker.reports = [report(p99_ms)]
    await broker.sync()
    observer._note_events()
    await observer._look()
    return observer, broker


async def test_a_look_has_a_row_of_each_topic_and_broker(distributor: Distributor) -> None:
    observer, _ = await looked(distributor, 4.0)
    (topic,), (broker,) = observer.topics, observer.brokers
    assert (topic.name, topic.promise, topic.latency_ms, topic.brokers) == ("cars", "broken", 8.0, 1)
    assert (broker.name, broker.state, broker.broken, broker.mcap) == ("b1", "live", 1, 2000.0)
    assert topic.since


async def test_a_look_goes_into_the_history(distributor: Distributor) -> None:
    observer, _ = await looked(distributor, 1.0)
    columns = observer.history.view("cars").columns
    assert (columns["access_ms"], columns["processing_ms"], columns["rate_in_force"]) == ([1.0], [1.0], [100.0])


async def test_a_broken_promise_has_its_cause_its_remedy_and_the_time_of_the_decision_log(
    distributor: Distributor,
) -> None:
    observer, _ = await looked(distributor, 4.0)
    await distributor.registry.note("cars", "promise broken: last 60 s: p99 8 ms")
    [*_, noted] = distributor.registry.decisions["cars"]
    for watching in (observer, Observer(distributor.registry, distributor.syncing)):
        watching._note_events()
        await watching._look()
        (row,) = watching.topics
        assert row.since == utc(noted.wall_ns)
        watching._since["cars"] = "unknown", "later"  # as between two verdicts, which the log does not tell
        await watching._look()
        assert watching.topics[0].since == row.since
        assert row.reason.startswith("messages wait 4 ms for tokens at b1")
        assert row.remedy


async def test_a_look_goes_through_the_topics_of_a_broker_once_for_all_broken_promises(
    distributor: Distributor, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer, broker = await looked(distributor, 4.0)
    await distributor.registry.submit(spec("bikes"))
    await broker.sync()
    broker.reports = [report(4.0), msgspec.structs.replace(report(4.0), topic="bikes")]
    await broker.sync()
    asked: list[str] = []

    def noted(name: str, registry: Registry) -> CapacityView:
        asked.append(name)
        return capacity_view(name, registry)

    monkeypatch.setattr("distributor.page.observer.capacity_view", noted)
    monkeypatch.setattr("distributor.views.topic_why.capacity_view", noted)
    await observer._look()
    assert [row.promise for row in observer.topics] == ["broken", "broken"]
    assert asked == ["b1"]


async def test_a_kept_promise_says_what_that_rests_on(distributor: Distributor) -> None:
    observer, _ = await looked(distributor, 1.0)
    (row,) = observer.topics
    assert (row.reason.partition(":")[0], row.remedy) == ("last 60 s", "")


async def test_what_comes_into_a_decision_log_is_an_event_once(distributor: Distributor) -> None:
    observer, _ = await looked(distributor, 1.0)
    observer._note_events()
    assert [(event.topic, event.lines[0]) for event in observer.events] == [("cars", "submitted")]


async def test_a_broker_that_changes_its_state_is_an_event(distributor: Distributor) -> None:
    observer, _ = await looked(distributor, 1.0)
    await distributor.registry.declare_dead("b1", "1")
    observer._note_events()
    told = [event for event in observer.events if event.broker == "b1"]
    assert [event.lines[0] for event in told] == ["dead, was live"]


async def test_news_say_which_names_in_events_are_gone(distributor: Distributor) -> None:
    observer, _ = await looked(distributor, 1.0)
    for name in ("cars", "old"):
        observer._add("now", ["submitted"], topic=name)
    for name in ("b1", "b9"):
        observer._add("now", ["live"], broker=name)
    assert (observer.gone().topics, observer.gone().brokers) == (["old"], ["b9"])
    await distributor.registry.remove("cars", purge=False)
    stream = _stream(observer, seen=0)
    news = msgspec.json.decode((await anext(stream)).split(b"data: ")[1], type=News)
    await stream.aclose()
    assert (news.gone.topics, news.gone.brokers) == (["cars", "old"], ["b9"])


async def test_whoever_comes_again_gets_the_events_that_it_has_not_seen(distributor: Distributor) -> None:
    observer, _ = await looked(distributor, 1.0)
    observer._add("now", ["one more"], topic="cars")
    stream = _stream(observer, seen=1)
    first = await anext(stream)
    await stream.aclose()
    news = msgspec.json.decode(first.split(b"data: ")[1], type=News)
    assert [event.lines for event in news.events] == [["one more"]]
    assert news.promises == {"kept": 1}


async def test_the_stream_ends_with_the_lead(distributor: Distributor, autojump_clock: trio.testing.MockClock) -> None:
    observer = Observer(distributor.registry, distributor.syncing)
    got = []

    async def watch() -> None:
        async for message in _stream(observer, seen=0):
            got.append(message)

    with trio.fail_after(30):
        async with trio.open_nursery() as watching, trio.open_nursery() as leading:
            leading.start_soon(observer.run)
            watching.start_soon(watch)
            await trio.sleep(2.5)
            leading.cancel_scope.cancel()
    assert len(got) >= 2


async def test_a_broker_that_comes_after_a_look_is_shown_within_a_second(
    distributor: Distributor, mock_clock: trio.testing.MockClock
) -> None:
    """As after a restart, when all brokers are expected and none was heard."""
    observer = Observer(distributor.registry, distributor.syncing)
    async with trio.open_nursery() as leading:
        leading.start_soon(observer.run)
        await trio.testing.wait_all_tasks_blocked()
        await FakeBroker("b1", distributor.syncing, mcap=2000.0).sync()
        assert (observer.looks, observer.brokers) == (1, [])
        mock_clock.jump(1.0)
        await trio.testing.wait_all_tasks_blocked()
        assert [(row.name, row.state) for row in observer.brokers] == [("b1", "live")]
        assert observer.looks == 2, "so that browsers ask again"
        leading.cancel_scope.cancel()


SCREENS = [
    *(f"topics?sort={sort}&descending={down}" for sort in ("", "name", "latency", "backlog") for down in (True, False)),
    "topics?search=9&limit=500",
    "topics?only=broken&offset=100",
    *(f"brokers?sort={sort}" for sort in ("", "name", "load", "broken")),
]


async def look_at(path: Path, topics: int, brokers: int) -> tuple[FunctionCalls, dict[str, int]]:
    """The calls of a look, when what it goes by was worked out once; {screen: calls of a request for it}."""
    distributor = await seeded(path, topics, brokers)
    observer = Observer(distributor.registry, distributor.syncing)
    await observer._look()
    assert Counter(row.promise for row in observer.topics) == dict.fromkeys(("kept", "broken"), topics // 3) | {
        "unknown": topics // 3 + 1
    }
    assert sum(row.broken for row in observer.brokers) == topics // 3
    with counted() as look:
        await observer._look()
    app = make_app(distributor.registry, distributor.syncing, observer=observer)
    screens = {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as http:
        for screen in SCREENS:
            with counted() as request:
                answer = await http.get(f"/v1/overview/{screen}")
            screens[screen] = request.total
            assert answer.json()["rows"]
    await distributor.aclose()
    return look, screens


@pytest.mark.usefixtures("mock_clock")  # no broker falls silent, however long this takes
async def test_a_look_at_four_times_the_topics_and_brokers_is_four_times_the_work(tmp_path: Path) -> None:
    """And no more in a turn, for which brokers and browsers wait."""
    small, _ = await look_at(tmp_path / "small.sqlite3", topics=450, brokers=45)
    large, screens = await look_at(tmp_path / "large.sqlite3", topics=1_800, brokers=180)
    assert large.total < 4.2 * small.total
    assert large.longest_turn < 1.5 * small.longest_turn
    assert max(screens.values()) < 10 * 1_800, f"ten calls a topic: {screens}"


async def test_a_standby_says_who_leads(distributor: Distributor) -> None:
    app = make_app(distributor.registry, distributor.syncing)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as http:
        for path in ("/v1/overview/topics", "/v1/overview/brokers", "/v1/events"):
            assert (await http.get(path)).json()["title"] == "standby"


async def test_the_page_and_all_that_it_loads_are_served_here(distributor: Distributor) -> None:
    app = make_app(distributor.registry, distributor.syncing)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as http:
        page = (await http.get("/")).text
        folder = Path(__file__).parents[3] / "distributor" / "page" / "static"
        for asset in folder.iterdir():
            text = (await http.get(f"/page/{asset.name}")).text if asset.name != "index.html" else page
            assert "http://" not in text.replace("http://www.w3.org/", ""), asset.name
            assert "https://" not in text, asset.name


async def test_the_page_that_tries_routes_loads_nothing_from_elsewhere(distributor: Distributor) -> None:
    app = make_app(distributor.registry, distributor.syncing)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://d") as http:
        page = (await http.get("/docs")).text
        assert "https://" not in page
        loaded = re.findall(r'(?:src|href)="(/[^"]+)"', page)
        assert len(loaded) >= 2
        for path in loaded:
            assert (await http.get(path)).status_code == 200, path
