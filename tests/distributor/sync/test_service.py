"""Syncs at the distributor: reports that come as differences, and what is forgotten with a broker."""

from pathlib import Path

import msgspec
import pytest
import trio

from distributor.sync.service import SyncService
from srtm.control import LinkLatency, MqttPorts, SyncRequest, TopicReport
from srtm.errors import BadInput
from tests.support.distributor_in_process import settle, spec
from tests.support.function_calls import counted
from tests.support.many_topics import reported, seeded
from tests.support.topic_reports import period

pytestmark = pytest.mark.usefixtures("no_threads")

ABOUT = SyncRequest(incarnation="1", srtm_version="0", tcp_address="127.0.0.1:1", http_address="h:2", mcap=600.0)


def report(topic, **figures):
    return TopicReport(topic=topic, share_version=1, **figures)


def request(number, *reports, **changes):
    return msgspec.structs.replace(ABOUT, number=number, topics=list(reports), **changes)


async def test_the_answer_names_the_request_whose_reports_are_known(distributor):
    sync = distributor.syncing.sync
    assert (await sync("a", request(1, report("t")))).reported == 1
    assert (await sync("a", request(2, report("t", received=2), reports_since=1))).reported == 2
    assert distributor.syncing.sessions.report("a", "t").received == 2


async def test_who_does_not_know_what_differences_begin_with_asks_for_everything_at_once(distributor, autojump_clock):
    sync = distributor.syncing.sync
    first = await sync("a", request(1, report("t")))
    distributor.syncing = SyncService(distributor.registry)
    began_s = trio.current_time()
    asked = request(2, report("u"), reports_since=1, have_version=first.version, wait_s=1.0)
    answer = await distributor.syncing.sync("a", asked)
    assert (answer.reported, trio.current_time()) == (0, began_s)
    assert distributor.syncing.sessions.reports_of("a") is None
    assert (await distributor.syncing.sync("a", request(3, report("t"), report("u")))).reported == 3


async def test_where_a_broker_speaks_mqtt_is_known_and_checked(distributor):
    sync = distributor.syncing.sync
    await sync("a", request(1, mqtt_address="h:1883"))
    assert distributor.syncing.sessions.of("a").mqtt_address == "h:1883"
    await sync("a", request(2))
    assert distributor.syncing.sessions.of("a").mqtt_address == ""
    with pytest.raises(BadInput) as caught:
        await sync("a", request(3, mqtt_address="h"))
    assert (caught.value.field, caught.value.value) == ("mqtt_address", "h")
    await sync("a", request(4, mqtt_ports=MqttPorts(tls="h:8883", wss="h:8084")))
    assert distributor.syncing.sessions.of("a").mqtt_ports == MqttPorts(tls="h:8883", wss="h:8084")
    with pytest.raises(BadInput) as caught:
        await sync("a", request(5, mqtt_ports=MqttPorts(ws="h:0")))
    assert (caught.value.field, caught.value.value) == ("mqtt_ports.ws", "h:0")


async def test_a_broker_that_asks_is_told_the_words_on_promises_of_topics_that_have_a_share_there(distributor):
    sync = distributor.syncing.sync
    await sync("a", request(1))
    await distributor.submit(spec())
    assert (await sync("a", request(2))).verdicts is None
    told = (await sync("a", request(3, report("cars"), wants_verdicts=True))).verdicts
    assert {topic: one.verdict for topic, one in told.items()} == {"cars": "unknown"}
    assert (await sync("c", request(1, wants_verdicts=True))).verdicts == {}


async def syncs_beside(path: Path, topics: int, brokers: int) -> tuple[int, int]:
    """The calls of the first sync of a broker that a new leader hears, and of one with one piece of news, beside all
    ``topics`` of all ``brokers``. What the leader works out once is not counted."""
    beside = await seeded(path, topics, brokers)
    for name in ("broker-4", "broker-3"):
        known, mine = beside.registry.brokers[name], [reported(number) for number in range(3, topics, brokers)]
        about = {"tcp_address": known.tcp_address, "http_address": known.http_address, "claims": list(known.claims)}
        about |= {"have_version": beside.registry.state.desired_version(name), "wants_verdicts": True}
        with counted() as first:
            await beside.syncing.sync(name, request(1, *mine, **about))
    news = msgspec.structs.replace(mine[0], received=1)
    with counted() as calls:
        answer = await beside.syncing.sync(name, request(2, news, reports_since=1, **about))
    assert (answer.reported, len(answer.verdicts)) == (2, len(mine))
    await beside.aclose()
    return first.total, calls.total


async def test_a_sync_costs_what_the_broker_has_however_many_topics_others_have(tmp_path, mock_clock):
    few = await syncs_beside(tmp_path / "few.sqlite3", topics=300, brokers=30)
    many = await syncs_beside(tmp_path / "many.sqlite3", topics=1200, brokers=120)
    assert many[1] - few[1] < 900, "less than a call for each topic of others"
    assert many[0] - few[0] < 8 * 900, "it is looked whether they concern it, no more"


async def test_a_forgotten_broker_is_asked_for_everything(distributor):
    await distributor.syncing.sync("a", request(1, report("t")))
    distributor.syncing.forget("a")
    assert (await distributor.syncing.sync("a", request(2, reports_since=1))).reported == 0


async def test_a_broker_that_asks_is_told_where_the_others_are_and_again_only_when_that_changes(distributor):
    sync = distributor.syncing.sync
    assert (await sync("a", request(1))).addresses is None, "it does not ask"
    told = await sync("a", request(2, have_addresses=0))
    assert told.addresses == {"a": "h:2"}
    assert (await sync("a", request(3, have_addresses=told.addresses_version))).addresses is None
    assert (await sync("c", request(1, have_addresses=0))).addresses == {"a": "h:2", "c": "h:2"}
    before = distributor.registry.addresses
    await sync("c", request(2))
    assert distributor.registry.addresses is before, "a thousand brokers ask each second"
    await distributor.registry.declare_dead("c", "1")
    await sync("b", request(1, http_address="i:3"))
    assert (await sync("a", request(4, have_addresses=told.addresses_version))).addresses == {"a": "h:2", "b": "i:3"}


async def test_a_channel_is_everywhere_until_it_is_gone_from_the_last_report(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    a.reports = b.reports = [report("cars", channels=["c"])]
    await settle(a, b)
    assert distributor.registry.topics["cars"].channels == ("c",)
    a.reports = [report("cars")]
    await settle(a, b)
    assert distributor.registry.topics["cars"].channels == ("c",)
    b.reports = [report("cars")]
    await settle(a, b)
    assert distributor.registry.topics["cars"].channels == ()


async def test_a_channel_that_two_brokers_lost_at_the_same_time_is_gone_too(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    a.reports = b.reports = [report("cars", channels=["c"])]
    await settle(a, b)
    a.reports = b.reports = [report("cars")]
    async with trio.open_nursery() as nursery:  # neither sees the other's report
        nursery.start_soon(a.sync)
        nursery.start_soon(b.sync)
    await settle(a, b)
    assert distributor.registry.topics["cars"].channels == ()


@pytest.mark.parametrize("field", ["number", "reports_since"])
async def test_a_number_below_zero_is_refused_and_nothing_is_taken(distributor, field):
    with pytest.raises(BadInput, match=field):
        await distributor.syncing.sync("a", msgspec.structs.replace(ABOUT, **{field: -1}))
    assert distributor.registry.brokers == {}


async def test_of_topics_that_nobody_manages_nothing_is_kept_but_the_last_report(distributor):
    await distributor.syncing.sync("a", request(1, report("t0", channels=["c"])))
    for number in range(2, 9):
        gone = {"reports_since": number - 1, "gone": [f"t{number - 2}"]}
        await distributor.syncing.sync("a", request(number, report(f"t{number - 1}", channels=["c"]), **gone))
    assert distributor.syncing._channels.changes.since(0) == []
    assert list(distributor.syncing.sessions.reports_of("a").topics) == ["t7"]


async def test_channels_are_put_together_anew_only_where_a_report_names_others(distributor, monkeypatch):
    heard = []

    async def apply_update(update, take=distributor.registry.apply_update):
        heard.append(set(update.channels))
        await take(update)

    a, b = await distributor.brokers("a", "b")
    for name in ("cars", "bikes"):
        await distributor.submit(spec(name, count=10))
    a.reports = b.reports = [report(name, channels=["c"]) for name in ("cars", "bikes")]
    await settle(a, b)
    await settle(a, b)  # until both have heard of what the other reported
    monkeypatch.setattr(distributor.registry, "apply_update", apply_update)
    a.reports = [report(name, channels=["c"], received=5) for name in ("cars", "bikes")]
    await a.sync()
    a.reports = [report("cars", channels=["c", "d"], received=6), report("bikes", channels=["c"], received=6)]
    await a.sync()
    assert heard == [set(), {"cars"}]
    assert distributor.registry.topics["cars"].channels == ("c", "d")
    assert distributor.syncing.sessions.report("a", "bikes").received == 6


async def test_of_a_forgotten_broker_nothing_is_left(distributor):
    a, _ = await distributor.brokers("a", "b")
    a.reports = [report("cars", received=1), report("bikes", received=-1)]
    await a.sync()
    known = distributor.syncing.sessions.of("a")
    assert (set(known.reports.topics), known.ignored_reports) == ({"cars"}, 1)
    distributor.syncing.forget("a")
    assert distributor.syncing.sessions.by_broker.keys() == {"b"}
    known = distributor.syncing.sessions.of("a")
    assert (known.reports, known.ignored_reports) == (None, 0)


async def test_a_broker_without_a_share_gets_a_small_one_where_messages_were_refused(distributor):
    """A plain client that the topic does not name would be refused there for ever: nothing waits under reject."""
    a, b = await distributor.brokers("a", "b", mcap=2000.0)
    await distributor.submit(spec(on_excess="reject"))
    (there,) = distributor.registry.topic("cars").placement.brokers
    elsewhere = b if there == "a" else a
    await settle(a, b)
    elsewhere.reports = [report("cars", rejected=0)]
    await settle(a, b)
    assert elsewhere.share()[0] == 0.0
    elsewhere.reports = [report("cars", rejected=20)]
    await settle(a, b)
    await settle(a, b)  # the other gives up its tokens first
    assert elsewhere.share()[0] == pytest.approx(0.02 * 1100, rel=0.05)
    assert sum(each.share()[0] for each in (a, b)) == pytest.approx(1100.0)


async def test_what_came_over_links_is_judged_until_the_broker_is_another_process(distributor):
    def over(origin, **changes):
        link = LinkLatency(origin=origin, topic="t", last_60s=period(1.0, 9.0), since_start=period(1.0, 9.0))
        return msgspec.structs.replace(link, **changes)

    await distributor.syncing.sync("a", request(1))
    wrong = over("a", network_ms=-1.0)
    await distributor.syncing.sync("b", request(1, links=[over("a"), over("nobody"), wrong]))
    found = distributor.syncing.sessions.links("t")
    assert {name: [link.origin for link in links] for name, links in found.items()} == {"b": ["a"]}
    await distributor.syncing.sync("b", request(2, reports_since=1, links=[over("a", network_ms=2.0)]))
    assert distributor.syncing.sessions.links("t")["b"][0].network_ms == 2.0
    await distributor.syncing.sync("b", request(1, incarnation="2"))
    assert distributor.syncing.sessions.links("t") == {}


async def test_a_link_that_is_known_is_heard_also_where_there_is_no_room_for_more(distributor, monkeypatch):
    monkeypatch.setattr("distributor.sync.sessions._MOST_LINKS", 2)

    def over(topic, network_ms):
        return LinkLatency(origin="a", topic=topic, network_ms=network_ms)

    await distributor.syncing.sync("a", request(1))
    there = [report("t"), report("u")]
    await distributor.syncing.sync("b", request(1, *there, links=[over("t", 1.0), over("u", 1.0)]))
    await distributor.syncing.sync("b", request(2, reports_since=1, links=[over("v", 2.0), over("t", 2.0)]))
    found = {topic: distributor.syncing.sessions.links(topic) for topic in "tuv"}
    assert {topic: links["b"][0].network_ms for topic, links in found.items() if links} == {"t": 2.0, "u": 1.0}


async def test_links_of_topics_that_a_broker_has_no_more_make_room(distributor, monkeypatch):
    monkeypatch.setattr("distributor.sync.sessions._MOST_LINKS", 2)
    sync, over = distributor.syncing.sync, LinkLatency(origin="a", topic="t", network_ms=1.0)
    await sync("a", request(1))
    await sync("b", request(1, report("t"), report("u"), links=[over, msgspec.structs.replace(over, topic="u")]))
    await sync("b", request(2, reports_since=1, gone=["u"]))
    await sync("b", request(3, report("v"), reports_since=2, links=[msgspec.structs.replace(over, topic="v")]))
    assert [bool(distributor.syncing.sessions.links(topic)) for topic in "tuv"] == [True, False, True]
