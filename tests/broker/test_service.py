"""The broker service around a recording engine: start, restore, events, clean stop.

Ports are real, on loopback.
"""

import json

import msgspec
import pytest
import trio

from broker import service
from broker.nsqd import metadata
from broker.runtime import data_directory as data_path
from broker.sync.state_file import SyncState, load_state, save_state
from srtm.concurrency.failures import only_failure
from srtm.control import DesiredTopic, Move, MqttPorts, Share, SyncAnswer
from srtm.errors import BadInput, Conflict, InternalError
from srtm.net.http_server import Response, json_response
from tests.support.broker_service import ask, config, until
from tests.support.http_server import serve_http


async def test_a_bare_broker_answers_and_stops_cleanly(tmp_path, engines):
    async with trio.open_nursery() as inner:
        bound = await inner.start(service.serve, config(tmp_path))
        assert (bound.tcp, bound.http, any(bound[2:])) == ("127.0.0.1:4150", "127.0.0.1:4151", False)
        assert (await ask(engines[0], "GET", "/info"))[0] == 200
        assert engines[0].http == "open"
        inner.cancel_scope.cancel()
    (engine,) = engines
    assert engine.stopped
    assert ("set_accepting", True, "") in engine.calls
    assert engine.http == "closing"
    with data_path.locked(tmp_path):
        pass  # the lock is free again


async def test_a_second_broker_in_the_same_directory_is_refused(tmp_path, engines, nursery):
    await nursery.start(service.serve, config(tmp_path))
    with pytest.raises(Conflict, match="in use by another broker"):
        await service.serve(config(tmp_path))
    assert len(engines) == 1
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("address", "token", "warned"), [("0.0.0.0:4151", None, 1), ("0.0.0.0:4151", "t", 0), ("127.0.0.1:4151", None, 0)]
)
async def test_a_port_that_takes_orders_from_everybody_is_told_of(
    tmp_path, engines, nursery, capsys, address, token, warned
):
    await nursery.start(service.serve, config(tmp_path, http_address=address, token=token))
    assert capsys.readouterr().err.count("whoever reaches the HTTP port") == warned
    nursery.cancel_scope.cancel()


async def test_a_missing_directory_is_refused(tmp_path, engines):
    with pytest.raises(BadInput, match="data_path"):
        await service.serve(config(tmp_path / "nowhere"))
    assert engines == []


async def test_topics_come_back_after_a_restart(tmp_path, engines):
    async with trio.open_nursery() as inner:
        await inner.start(service.serve, config(tmp_path))
        engines[0].create_topic("t")
        engines[0].create_channel("t", "c")
        await until(lambda: [t.channels for t in metadata.load(tmp_path).topics] == [[metadata.ChannelMetadata("c")]])
        inner.cancel_scope.cancel()
    async with trio.open_nursery() as inner:
        await inner.start(service.serve, config(tmp_path))
        assert engines[1].topics["t"].channels == {"c": False}
        inner.cancel_scope.cancel()


async def test_what_changes_in_the_last_moment_is_written_too(tmp_path, engines):
    async with trio.open_nursery() as inner:
        await inner.start(service.serve, config(tmp_path))
        engines[0].create_topic("late")
        inner.cancel_scope.cancel()
    assert [topic.name for topic in metadata.load(tmp_path).topics] == ["late"]


async def test_a_pause_by_http_is_remembered(tmp_path, engines, nursery):
    await nursery.start(service.serve, config(tmp_path))
    engines[0].create_topic("t")
    assert (await ask(engines[0], "POST", "/topic/pause?topic=t"))[0] == 200
    await until(lambda: [topic.paused for topic in metadata.load(tmp_path).topics] == [True])
    nursery.cancel_scope.cancel()


async def test_the_log_names_publishers_whose_messages_are_not_taken_and_what_is_full(
    tmp_path, engines, nursery, capsys
):
    await nursery.start(service.serve, config(tmp_path))
    facts = {"topic": "heat", "why": "the topic's limit is reached", "refused": 41, "closed": 0, "dropped": 2}
    engines[0].emit(type="mqtt_excess", publisher="sensor-7\n", **facts)
    engines[0].emit(type="mqtt_unkept", topic="heat", first="$share/workers/#", dropped=3, refused=0, ended=2)
    engines[0].emit(type="disk_failed", reason="later")
    await until(lambda: engines[0].health == "NOK - later")
    said = capsys.readouterr().err
    rest = 'topic=heat why="the topic\'s limit is reached" refused=41 closed=0 dropped=2\n'
    assert f"WARNING: messages of an MQTT publisher are not taken publisher='sensor-7\\n' {rest}" in said
    assert "messages for MQTT subscribers are not kept topic=heat first=$share/workers/# dropped=3" in said
    nursery.cancel_scope.cancel()


async def test_a_disk_that_refuses_messages_shows_in_ping_and_repairs_are_told(tmp_path, engines, nursery, capsys):
    await nursery.start(service.serve, config(tmp_path))
    engines[0].emit(type="disk_failed", reason="write t.000000.seg: No space left on device (os error 28)")
    await until(lambda: engines[0].health == "NOK - write t.000000.seg: No space left on device (os error 28)")
    engines[0].emit(type="disk_works")
    engines[0].emit(type="disk_repaired", file="t.000000.seg", what="had a torn end: cut")
    await until(lambda: engines[0].health == "OK")
    assert "file=t.000000.seg done='had a torn end: cut'" in capsys.readouterr().err
    nursery.cancel_scope.cancel()


async def test_a_failed_engine_ends_the_broker(tmp_path, engines):
    async def serve_and_fail():
        async with trio.open_nursery() as inner:
            await inner.start(service.serve, config(tmp_path))
            engines[0].emit(type="failed", reason="epoll: bad file descriptor")
            await trio.sleep(5)

    with pytest.raises(BaseExceptionGroup) as caught:
        await serve_and_fail()
    error = only_failure(caught.value)
    assert isinstance(error, InternalError)
    assert "epoll: bad file descriptor" in str(error)
    assert engines[0].stopped


QUESTION = {"type": "auth_asked", "secret": "cw==", "remote_ip": "h", "tls": False, "common_name": ""}


async def test_a_client_that_says_auth_gets_the_servers_answer_or_a_refusal(tmp_path, engines, nursery):
    asked = []

    async def answer(request):
        asked.append(request.query)
        return json_response({"ttl": 9}) if len(asked) == 1 else Response(500)

    address = await serve_http(nursery, answer)
    await nursery.start(service.serve, config(tmp_path, auth_http_addresses=(address,)))
    (engine,) = engines
    assert (engine.config["auth_servers"], engine.config["auth_by_http"]) == (True, False)
    for connection in (1, 2):
        engine.emit(connection=connection, **QUESTION)
        await until(lambda: engine.calls[-1][0] == "set_authorization" and engine.calls[-1][1] == connection)  # noqa: B023
    (_, first, granted), (_, second, refused) = [call for call in engine.calls if call[0] == "set_authorization"]
    assert (first, json.loads(granted)["ttl"]) == (1, 9)
    assert (second, refused) == (2, None)
    nursery.cancel_scope.cancel()


# --- as a member of a cluster


async def test_a_member_that_never_synced_accepts_nothing(tmp_path, engines, nursery):
    async def down(_request):
        return Response(status=503)

    url = f"http://{await serve_http(nursery, down)}"
    await nursery.start(service.serve, config(tmp_path, distributors=(url,)))
    assert engines[0].accepting is False
    assert engines[0].reason == "broker b1 has not synced with the distributor yet"
    assert json.loads((await ask(engines[0], "GET", "/healthz"))[1])["accepting"] is False
    assert engines[0].health == "NOK - broker b1 has not synced with the distributor yet"
    nursery.cancel_scope.cancel()


async def test_a_member_syncs_and_then_accepts(tmp_path, engines, nursery):
    topic = DesiredTopic(topic="t", share=Share(version=2, rate=5.0, burst=1.0))
    requests = []

    async def answer(request):
        requests.append((request.path, json.loads(await request.read_body(10**6))))
        return Response(body=msgspec.json.encode(SyncAnswer(version=1, topics=[topic])))

    url = f"http://{await serve_http(nursery, answer)}"
    bound = await nursery.start(service.serve, config(tmp_path, distributors=(url,), mcap=7.0))
    await until(lambda: engines[0].accepting)
    path, first = requests[0]
    assert path == "/v1/brokers/b1/sync"
    assert (first["tcp_address"], first["http_address"], first["mcap"]) == (bound.tcp, bound.http, 7.0)
    assert engines[0].topics["t"].bucket["version"] == 2
    assert load_state(tmp_path).has_synced
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("redirect", "told"), [("known", ("h:8", "h:7", "", "h:6")), ("never", ("", "", "", ""))])
async def test_with_mqtt_redirect_never_only_clients_of_nsq_are_told_where_their_topic_is(
    tmp_path, engines, nursery, redirect, told
):
    ports = MqttPorts(tls="h:7", wss="h:6")
    move = Move(topic="t", publisher_id="p1", address="h:9", version=6, mqtt_address="h:8", mqtt_ports=ports)

    async def answer(_request):
        return Response(body=msgspec.json.encode(SyncAnswer(version=1, moves=[move])))

    url = f"http://{await serve_http(nursery, answer)}"
    await nursery.start(service.serve, config(tmp_path, distributors=(url,), mqtt_redirect=redirect))
    await until(lambda: ("move_publisher", "t", "p1", "h:9", told, 6) in engines[0].calls)
    assert {call[4] for call in engines[0].calls if call[0] == "move_publisher"} == {told}
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("accept_unknown", [False, True])
async def test_a_restarted_member_limits_what_it_knew_before_it_accepts_anything(
    tmp_path, engines, nursery, accept_unknown
):
    known = DesiredTopic(topic="t", share=Share(version=9, rate=5.0, burst=4.0), channels=["c"])
    save_state(tmp_path, SyncState(True, 3, [known]))
    url = "http://127.0.0.1:9"  # nobody there
    await nursery.start(service.serve, config(tmp_path, distributors=(url,), accept_unknown=accept_unknown))
    (engine,) = engines
    assert engine.topics["t"].bucket["rate_micro"] == 0  # messages wait: the tokens may be someone else's by now
    kinds = [call[0] for call in engine.calls]
    reason = "broker b1 has not synced with the distributor since its start: the topic may be limited"
    if accept_unknown:
        assert engine.accepting
        assert kinds.index("set_bucket") < kinds.index("set_accepting")
        assert engine.health == "OK"
    else:  # a topic that is not known here may have been limited meanwhile
        assert ("accept_limited", reason) in engine.calls
        assert "set_accepting" not in kinds
        assert kinds.index("set_bucket") < kinds.index("accept_limited")
        assert engine.health == f"NOK - {reason}"
    nursery.cancel_scope.cancel()


async def test_a_stranger_is_told_while_a_distributor_holds_its_answer_back(tmp_path, engines, nursery):
    strangers = []

    async def answer(request):
        asked = json.loads(await request.read_body(10**6))
        strangers.extend(asked["strangers"])
        if asked["wait_s"] and asked["have_version"]:
            await trio.sleep_forever()  # only an urgent sync comes through
        return Response(body=msgspec.json.encode(SyncAnswer(version=1, unchanged=bool(asked["have_version"]))))

    url = f"http://{await serve_http(nursery, answer)}"
    await nursery.start(service.serve, config(tmp_path, distributors=(url,)))
    await until(lambda: engines[0].accepting)
    engines[0].emit(type="unassigned_publisher", topic="t", publisher_id="p")
    await until(lambda: {"topic": "t", "publisher_id": "p"} in strangers)
    nursery.cancel_scope.cancel()
