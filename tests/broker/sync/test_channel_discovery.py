"""A new topic gets the channels that it has elsewhere before its messages move."""

import msgspec
import trio

from broker import service
from broker.sync import channel_discovery
from broker.sync.channel_discovery import ChannelDiscovery
from srtm.control import SyncAnswer
from srtm.log import Log
from srtm.net.http_server import Response, json_response
from tests.support.broker_service import ask, config, until
from tests.support.fake_engine import FakeEngine
from tests.support.http_server import serve_http


async def test_a_new_topic_gets_the_channels_known_elsewhere_before_its_messages_move(tmp_path, engines, nursery):
    async def answer(request):
        if request.path == "/channels":
            return json_response({"channels": ["audit", "tail#ephemeral"]})
        return Response(body=msgspec.json.encode(SyncAnswer(version=1)))

    url = f"http://{await serve_http(nursery, answer)}"
    await nursery.start(service.serve, config(tmp_path, distributors=(url,)))
    (engine,) = engines
    assert engine.config["hold_new_topics"] is True
    engine.create_topic("t", held=True)
    await until(lambda: not engine.topics["t"].held)
    assert engine.topics["t"].channels == {"audit": False}
    kinds = [call[0] for call in engine.calls]
    assert kinds.index("create_channel") < kinds.index("release_topic")
    nursery.cancel_scope.cancel()


async def test_new_topics_are_held_from_when_there_is_a_nsqlookupd_to_ask(tmp_path, engines, nursery):
    await nursery.start(service.serve, config(tmp_path))
    for body, held in ((b'["127.0.0.1:1"]', True), (b"[]", False)):
        assert await ask(engines[0], "PUT", "/config/nsqlookupd_tcp_addresses", body) == (200, body)
        assert engines[0].calls[-1] == ("set_hold_new_topics", held)
    nursery.cancel_scope.cancel()


class NoLookups:
    addresses = ()
    http_urls = ()


def introducing(tmp_path, monkeypatch, query, managed=()):
    """ChannelDiscovery of a member of a cluster whose questions are answered by ``query``, and its engine."""
    monkeypatch.setattr(channel_discovery, "known_channels", query)
    engine = FakeEngine()
    settings = config(tmp_path, distributors=("http://127.0.0.1:9",))
    return ChannelDiscovery(settings, engine, NoLookups(), managed.__contains__, Log("b1")), engine


async def test_a_new_topic_is_let_go_although_nobody_knows_its_channels(tmp_path, monkeypatch, autojump_clock):
    async def hang(*_):
        await trio.sleep_forever()

    parts, engine = introducing(tmp_path, monkeypatch, hang)
    engine.create_topic("t", held=True)
    await parts.discover("t")
    assert not engine.topics["t"].held
    assert trio.current_time() == channel_discovery.QUERY_TIMEOUT_S


async def test_nobody_is_asked_about_a_topic_that_was_here_before_until_it_is_deleted(tmp_path, monkeypatch):
    asked = []

    async def note(topic, *_):
        asked.append(topic)

    parts, engine = introducing(tmp_path, monkeypatch, note)
    engine.create_topic("t", held=True)
    parts.skip(["t", "u"])
    await parts.discover("t")
    assert (asked, engine.topics["t"].held) == ([], False)
    parts.forget("u")
    engine.create_topic("u", held=True)
    await parts.discover("u")
    assert asked == ["u"]


async def test_a_distributor_that_wants_a_topic_here_is_not_asked_for_the_channels_that_it_named(tmp_path, monkeypatch):
    asked = {}

    async def note(topic, clients, *_):
        asked[topic] = len(clients)

    parts, engine = introducing(tmp_path, monkeypatch, note, managed=("t",))
    for name in ("t", "u"):
        engine.create_topic(name, held=True)
        await parts.discover(name)
        assert not engine.topics[name].held
    assert asked == {"t": 0, "u": 1}


async def test_a_thousand_new_topics_are_asked_about_a_few_at_a_time(tmp_path, monkeypatch, autojump_clock):
    now = most = 0

    async def note(*_):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await trio.sleep(0.001)
        now -= 1

    parts, engine = introducing(tmp_path, monkeypatch, note)
    names = [f"t{number}" for number in range(1000)]
    async with trio.open_nursery() as nursery:
        for name in names:
            engine.create_topic(name, held=True)
            nursery.start_soon(parts.discover, name)
    assert most == channel_discovery._MAX_QUERIES
    assert not any(engine.topics[name].held for name in names)
