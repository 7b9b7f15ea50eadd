"""The broker service around a recording engine: start, restore, events, refusals at start, clean stop.

Ports are real, on loopback.
"""

import errno
import json
import re
import sys
from types import SimpleNamespace

import msgspec
import pytest
import trio
import trio.testing

from broker import data_path, metadata, service
from broker.__main__ import main, parse_size
from broker.config import BrokerConfig, EngineConfig
from broker.sync import SyncState, load_state, save_state
from srtm.address import parse_address
from srtm.control import DesiredTopic, Share, SyncAnswer
from srtm.errors import BadInput, Conflict, InternalError
from srtm.http_api import Response, json_response
from srtm.nursery import only_failure
from tests.support.fake_engine import FakeEngine
from tests.support.http_server import HttpServer


@pytest.fixture
def engines(monkeypatch):
    """Every engine that the service makes."""
    made = []

    def make(config):
        made.append(FakeEngine(config))
        return made[-1]

    monkeypatch.setitem(sys.modules, "srtm._native", SimpleNamespace(Engine=make))
    return made


def config(tmp_path, **changes):
    return BrokerConfig(
        **{
            "name": "b1",
            "tcp_address": "127.0.0.1:4150",
            "http_address": "127.0.0.1:0",
            "data_path": str(tmp_path),
            **changes,
        }
    )


async def until(condition):
    with trio.fail_after(5):
        while not condition():  # noqa: ASYNC110 - the broker under test cannot signal us
            await trio.sleep(0.002)


async def ask(engine, method, target, body=b""):
    """Status and body of the answer to a request that comes by HTTP."""
    number = engine.ask(method, target, body)
    await until(lambda: number in engine.answers)
    status, _, body = engine.answers[number]
    return status, body


async def serve_distributor(nursery, handler):
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(HttpServer(handler).serve, listeners)
    return f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"


async def test_a_bare_broker_answers_and_stops_cleanly(tmp_path, engines):
    async with trio.open_nursery() as inner:
        bound = await inner.start(service.serve, config(tmp_path))
        assert bound == ("127.0.0.1:4150", "127.0.0.1:4151", "")
        assert (await ask(engines[0], "GET", "/info"))[0] == 200
        assert engines[0].http == "open"
        inner.cancel_scope.cancel()
    (engine,) = engines
    assert engine.stopped
    assert ("set_accepting", True, "") in engine.calls
    assert engine.http == "closing"
    with data_path.locked(tmp_path):
        pass  # the lock is free again


async def test_the_engine_is_told_its_settings_and_starts_closed(tmp_path, engines, nursery):
    tuned = EngineConfig(msg_timeout_ms=1234)
    await nursery.start(service.serve, config(tmp_path, engine=tuned, max_memory_bytes=5, trace_entries=6))
    told = engines[0].config
    assert (told["msg_timeout_ms"], told["max_memory_bytes"], told["trace_entries"]) == (1234, 5, 6)
    assert told["accepting"] is False  # until what was limited is limited again
    assert told["hold_new_topics"] is False
    assert 0 <= told["node_id"] < 1024
    nursery.cancel_scope.cancel()


async def test_brokers_of_different_names_make_different_ids(tmp_path):
    ids = {service.engine_settings(config(tmp_path, name=name), SyncState()).node_id for name in ("b1", "b2", "b3")}
    assert len(ids) == 3


async def test_a_second_broker_in_the_same_directory_is_refused(tmp_path, engines, nursery):
    await nursery.start(service.serve, config(tmp_path))
    with pytest.raises(Conflict, match="in use by another broker"):
        await service.serve(config(tmp_path))
    assert len(engines) == 1
    nursery.cancel_scope.cancel()


async def test_a_missing_directory_is_refused(tmp_path, engines):
    with pytest.raises(BadInput, match="data_path"):
        await service.serve(config(tmp_path / "nowhere"))
    assert engines == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EADDRINUSE, "no"), Conflict),
        (OSError(errno.EACCES, "no"), Conflict),
        (OSError(errno.EADDRNOTAVAIL, "no"), BadInput),
        (OSError("failed to lookup address information"), BadInput),
    ],
)
async def test_a_port_that_cannot_be_bound_is_refused_and_the_engine_stopped(tmp_path, monkeypatch, error, kind):
    engine = FakeEngine()
    engine.start_error = error
    monkeypatch.setitem(sys.modules, "srtm._native", SimpleNamespace(Engine=lambda _config: engine))
    with pytest.raises(kind, match="tcp_address"):
        await service.serve(config(tmp_path))
    assert engine.stopped


async def test_the_address_that_cannot_be_had_is_named(tmp_path, monkeypatch):
    engine = FakeEngine()
    engine.start_error = OSError(errno.EADDRINUSE, "no", "http_address")
    monkeypatch.setitem(sys.modules, "srtm._native", SimpleNamespace(Engine=lambda _config: engine))
    with pytest.raises(Conflict, match=r"http_address: '0\.0\.0\.0:4151': the port is in use"):
        await service.serve(config(tmp_path, http_address=":4151"))
    assert engine.stopped


async def test_http_may_be_off_and_addresses_may_be_paths(tmp_path, engines, nursery):
    bound = await nursery.start(service.serve, config(tmp_path, tcp_address="/run/nsqd.sock", http_address=""))
    assert bound == ("/run/nsqd.sock", "", "")
    assert (engines[0].config["tcp_address"], engines[0].config["http_address"]) == ("/run/nsqd.sock", "")
    nursery.cancel_scope.cancel()


async def test_https_is_served_if_there_is_a_certificate(tmp_path, engines, nursery):
    (tmp_path / "pem").write_text("-----")
    for number, (file, bound) in enumerate((("", ""), (str(tmp_path / "pem"), "127.0.0.1:4152"))):
        data = tmp_path / str(number)
        data.mkdir()
        options = {"https_address": "127.0.0.1:0", "tls_cert": file, "tls_key": file}
        assert (await nursery.start(service.serve, config(data, **options))).https == bound
    assert [engine.config["https_address"] for engine in engines] == ["", "127.0.0.1:0"]
    nursery.cancel_scope.cancel()


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


def test_several_failures_at_once_come_out_as_one_refusal(tmp_path, monkeypatch):
    async def fail_twice(_config, **_options):
        raise BaseExceptionGroup("tasks", [InternalError("first"), BaseExceptionGroup("more", [Conflict("a", 1, "b")])])

    monkeypatch.setattr(service, "serve", fail_twice)
    with pytest.raises(InternalError, match="first"):
        service.run(config(tmp_path))


async def test_a_pause_by_http_is_remembered(tmp_path, engines, nursery):
    await nursery.start(service.serve, config(tmp_path))
    engines[0].create_topic("t")
    assert (await ask(engines[0], "POST", "/topic/pause?topic=t"))[0] == 200
    await until(lambda: [topic.paused for topic in metadata.load(tmp_path).topics] == [True])
    nursery.cancel_scope.cancel()


async def test_a_disk_that_refuses_shows_in_ping_until_it_takes_it(tmp_path, engines, nursery, monkeypatch):
    full = True

    def save(directory, now, save=metadata.save):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(directory, now)

    monkeypatch.setattr(metadata, "save", save)
    monkeypatch.setattr(service, "_STORAGE_RETRY_S", 0.01)
    await nursery.start(service.serve, config(tmp_path))
    engines[0].create_topic("t")
    await until(lambda: engines[0].health.startswith("NOK - "))
    full = False
    await until(lambda: engines[0].health == "OK")
    assert [topic.name for topic in metadata.load(tmp_path).topics] == ["t"]
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


async def test_a_stop_that_could_not_save_all_messages_tells_and_is_a_failure(tmp_path, engines, capsys):
    async def served_and_stopped():
        async with trio.open_nursery() as inner:
            await inner.start(service.serve, config(tmp_path))
            engines[0].unsaved = "3 messages could not be saved: No space left on device"
            inner.cancel_scope.cancel()

    with pytest.raises(BaseExceptionGroup) as raised:
        await served_and_stopped()
    assert raised.group_contains(InternalError, match="not all saved: 3 messages could not be saved")
    assert "queued messages were not all saved" in capsys.readouterr().err


async def test_a_data_path_that_takes_no_queues_is_refused_by_name(tmp_path, monkeypatch):
    engine = FakeEngine()
    engine.start_error = OSError(errno.EACCES, "Permission denied (os error 13)", "data_path")
    monkeypatch.setitem(sys.modules, "srtm._native", SimpleNamespace(Engine=lambda _config: engine))
    with pytest.raises(BadInput, match=r"data_path: '.*': must take queues \(Permission denied"):
        await service.serve(config(tmp_path))


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


# --- as a member of a cluster


async def test_a_member_that_never_synced_accepts_nothing(tmp_path, engines, nursery):
    async def down(_request):
        return Response(status=503)

    url = await serve_distributor(nursery, down)
    await nursery.start(service.serve, config(tmp_path, distributors=(url,)))
    assert engines[0].accepting is False
    assert engines[0].reason == "broker b1 has not synced with the distributor yet"
    assert json.loads((await ask(engines[0], "GET", "/healthz"))[1])["accepting"] is False
    assert engines[0].health == "OK"
    nursery.cancel_scope.cancel()


async def test_a_member_syncs_and_then_accepts(tmp_path, engines, nursery):
    topic = DesiredTopic(topic="t", share=Share(version=2, rate=5.0, burst=1.0))
    requests = []

    async def answer(request):
        requests.append((request.path, json.loads(await request.read_body(10**6))))
        return Response(body=msgspec.json.encode(SyncAnswer(version=1, topics=[topic])))

    url = await serve_distributor(nursery, answer)
    bound = await nursery.start(service.serve, config(tmp_path, distributors=(url,), mcap=7.0))
    await until(lambda: engines[0].accepting)
    path, first = requests[0]
    assert path == "/v1/brokers/b1/sync"
    assert (first["tcp_address"], first["http_address"], first["mcap"]) == (bound.tcp, bound.http, 7.0)
    assert engines[0].topics["t"].bucket["version"] == 2
    assert load_state(tmp_path).has_synced
    nursery.cancel_scope.cancel()


async def test_a_restarted_member_limits_what_it_knew_before_it_accepts_anything(tmp_path, engines, nursery):
    known = DesiredTopic(topic="t", share=Share(version=9, rate=5.0, burst=4.0), channels=["c"])
    save_state(tmp_path, SyncState(True, 3, [known]))
    url = "http://127.0.0.1:9"  # nobody there
    await nursery.start(service.serve, config(tmp_path, distributors=(url,)))
    (engine,) = engines
    assert engine.accepting
    assert engine.topics["t"].bucket["rate_micro"] == 0  # messages wait: the tokens may be someone else's by now
    kinds = [call[0] for call in engine.calls]
    assert kinds.index("set_bucket") < kinds.index("set_accepting")
    nursery.cancel_scope.cancel()


async def test_a_new_topic_gets_the_channels_known_elsewhere_before_its_messages_move(tmp_path, engines, nursery):
    async def answer(request):
        if request.path == "/channels":
            return json_response({"channels": ["audit", "tail#ephemeral"]})
        return Response(body=msgspec.json.encode(SyncAnswer(version=1)))

    url = await serve_distributor(nursery, answer)
    await nursery.start(service.serve, config(tmp_path, distributors=(url,)))
    (engine,) = engines
    assert engine.config["hold_new_topics"] is True
    engine.create_topic("t", held=True)
    await until(lambda: not engine.topics["t"].held)
    assert engine.topics["t"].channels == {"audit": False}
    kinds = [call[0] for call in engine.calls]
    assert kinds.index("create_channel") < kinds.index("release_topic")
    nursery.cancel_scope.cancel()


async def test_a_new_topic_is_let_go_although_nobody_knows_its_channels(tmp_path, engines, nursery, monkeypatch):
    monkeypatch.setattr(service, "CHANNEL_QUERY_TIMEOUT_S", 0.05)

    async def hang(_request):
        await trio.sleep_forever()

    url = await serve_distributor(nursery, hang)
    await nursery.start(service.serve, config(tmp_path, distributors=(url,)))
    engines[0].create_topic("t", held=True)
    await until(lambda: not engines[0].topics["t"].held)
    nursery.cancel_scope.cancel()


async def test_new_topics_are_held_from_when_there_is_a_nsqlookupd_to_ask(tmp_path, engines, nursery):
    await nursery.start(service.serve, config(tmp_path))
    for body, held in ((b'["127.0.0.1:1"]', True), (b"[]", False)):
        assert await ask(engines[0], "PUT", "/config/nsqlookupd_tcp_addresses", body) == (200, body)
        assert engines[0].calls[-1] == ("set_hold_new_topics", held)
    nursery.cancel_scope.cancel()


async def test_strangers_and_starved_topics_reach_the_distributor_at_once(tmp_path, engines, nursery):
    strangers = []

    async def answer(request):
        asked = json.loads(await request.read_body(10**6))
        strangers.extend(asked["strangers"])
        if asked["wait_s"] and asked["have_version"]:
            await trio.sleep_forever()  # only an urgent sync comes through
        return Response(body=msgspec.json.encode(SyncAnswer(version=1, unchanged=bool(asked["have_version"]))))

    url = await serve_distributor(nursery, answer)
    await nursery.start(service.serve, config(tmp_path, distributors=(url,)))
    await until(lambda: engines[0].accepting)
    engines[0].emit(type="stranger", topic="t", publisher_id="p")
    await until(lambda: {"topic": "t", "publisher_id": "p"} in strangers)
    nursery.cancel_scope.cancel()


# --- the data directory


def test_incarnations_sort_by_start_even_if_the_clock_goes_back(tmp_path, monkeypatch):
    with data_path.locked(tmp_path) as first:
        pass
    monkeypatch.setattr(data_path.time, "time_ns", lambda: 1)
    with data_path.locked(tmp_path) as second:
        pass
    assert first < second
    assert first.partition("-")[2] == second.partition("-")[2]  # the same directory


def test_incarnations_name_their_directory(tmp_path):
    names = set()
    for directory in (tmp_path / "a", tmp_path / "b"):
        directory.mkdir()
        with data_path.locked(directory) as incarnation:
            names.add(incarnation.partition("-")[2])
    assert len(names) == 2


@pytest.mark.parametrize("content", [b"", b"\xff", "²".encode(), b"12"])
def test_a_spoilt_incarnation_file_is_drawn_anew(tmp_path, content):
    (tmp_path / "srtm.incarnation").write_bytes(content)
    with data_path.locked(tmp_path) as incarnation:
        assert re.fullmatch(r"\d{20}-[0-9a-f]{16}", incarnation)


def test_an_incarnation_file_that_cannot_be_read_is_a_refusal(tmp_path):
    (tmp_path / "srtm.incarnation").mkdir()
    with pytest.raises(BadInput, match="must be readable and writable"), data_path.locked(tmp_path):
        pass


def test_a_file_is_replaced_whole(tmp_path):
    data_path.replace_file(tmp_path / "f", b"old")
    data_path.replace_file(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


# --- settings and flags


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "b" * 65}, "name"),
        ({"tcp_address": "4150"}, "tcp_address"),
        ({"tcp_address": "h:65536"}, "tcp_address"),
        ({"tcp_address": "::1:80"}, "tcp_address"),
        ({"http_address": "h:http"}, "http_address"),
        ({"https_address": "h"}, "https_address"),
        ({"tcp_address": "/run/b.sock", "distributors": ("http://d:1",)}, "tcp_address"),
        ({"http_address": "", "distributors": ("http://d:1",)}, "http_address"),
        ({"http_idle_timeout_ms": -1}, "http_idle_timeout"),
        ({"mcap": -1.0}, "mcap"),
        ({"mcap": float("nan")}, "mcap"),
        ({"distributors": ("localhost:4190",)}, "distributor"),
        ({"lookupd_tcp_addresses": ("nowhere",)}, "lookupd_tcp_address"),
        ({"max_memory_bytes": 0}, "max_memory"),
        ({"trace_entries": -1}, "trace_entries"),
        ({"engine": EngineConfig(mem_queue_size=-1)}, "mem_queue_size"),
        ({"engine": EngineConfig(max_bytes_per_file=0)}, "max_bytes_per_file"),
        ({"engine": EngineConfig(sync_every=0)}, "sync_every"),
        ({"engine": EngineConfig(sync_timeout_ms=0)}, "sync_timeout_ms"),
        ({"engine": EngineConfig(max_connections=-1)}, "max_connections"),
        ({"engine": EngineConfig(max_topics=1 << 32)}, "max_topics"),
    ],
)
def test_bad_settings_name_field_and_value(tmp_path, changes, field):
    with pytest.raises(BadInput) as caught:
        config(tmp_path, **changes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("h:1", ("h", 1)), (":4150", ("0.0.0.0", 4150)), ("[::1]:0", ("::1", 0)), ("[::]:65535", ("::", 65535))],
)
def test_addresses_are_parsed(text, parsed):
    assert parse_address("a", text) == parsed


def test_others_are_told_an_address_that_they_can_connect_to(tmp_path):
    assert service.broadcast_address(config(tmp_path), "vm") == "127.0.0.1"
    assert service.broadcast_address(config(tmp_path, tcp_address=":4150"), "vm") == "vm"
    assert service.broadcast_address(config(tmp_path, broadcast_address="x.org"), "vm") == "x.org"
    assert service.broadcast_address(config(tmp_path, tcp_address="/run/nsqd.sock"), "vm") == "vm"


@pytest.mark.parametrize(
    ("text", "size"), [("7", 7), ("64k", 65536), ("2M", 2 << 20), ("1GiB", 1 << 30), ("1gb", 1 << 30)]
)
def test_sizes_have_units(text, size):
    assert parse_size("max_memory", text) == size


QUESTION = {"type": "auth_asked", "secret": "cw==", "remote_ip": "h", "tls": False, "common_name": ""}


async def test_a_client_that_says_auth_gets_the_servers_answer_or_a_refusal(tmp_path, engines, nursery):
    asked = []

    async def answer(request):
        asked.append(request.query)
        return json_response({"ttl": 9}) if len(asked) == 1 else Response(500)

    url = (await serve_distributor(nursery, answer)).removeprefix("http://")
    await nursery.start(service.serve, config(tmp_path, auth_http_addresses=(url,)))
    (engine,) = engines
    assert engine.config["auth_required"] is True
    for connection in (1, 2):
        engine.emit(connection=connection, **QUESTION)
        await until(lambda: engine.calls[-1][0] == "set_authorization" and engine.calls[-1][1] == connection)  # noqa: B023
    (_, first, granted), (_, second, refused) = [call for call in engine.calls if call[0] == "set_authorization"]
    assert (first, json.loads(granted)["ttl"]) == (1, 9)
    assert (second, refused) == (2, None)
    nursery.cancel_scope.cancel()


async def test_nobody_asks_for_a_client_that_has_gone(tmp_path, engines, nursery):
    asked = []

    async def answer(request):
        asked.append(request.query)
        return json_response({"ttl": 9})

    url = (await serve_distributor(nursery, answer)).removeprefix("http://")
    await nursery.start(service.serve, config(tmp_path, auth_http_addresses=(url,)))
    (engine,) = engines
    engine.gone.add(1)
    engine.emit(connection=1, **QUESTION)
    engine.emit(connection=2, **QUESTION)
    await until(lambda: engine.calls[-1][:2] == ("set_authorization", 2))
    assert len(asked) == 1
    nursery.cancel_scope.cancel()


async def test_more_questions_than_may_wait_are_refused_at_once(tmp_path, engines, nursery, monkeypatch):
    monkeypatch.setattr(service, "_AUTHORIZATIONS_AT_ONCE", 1)
    monkeypatch.setattr(service, "_MOST_QUESTIONS", 1)
    reached = trio.Event()

    async def never(_request):
        reached.set()
        await trio.sleep_forever()

    url = (await serve_distributor(nursery, never)).removeprefix("http://")
    await nursery.start(service.serve, config(tmp_path, auth_http_addresses=(url,)))
    (engine,) = engines
    engine.emit(connection=1, **QUESTION)
    await reached.wait()
    for connection in (2, 3):  # the second waits for the first
        engine.emit(connection=connection, **QUESTION)
        await trio.testing.wait_all_tasks_blocked()
    await until(lambda: ("set_authorization", 3, None) in engine.calls)
    assert [call for call in engine.calls if call[0] == "set_authorization"] == [("set_authorization", 3, None)]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "b", "--auth-http-address", "x"], "srtm broker: auth_http_address: 'x': must be HOST:PORT"),
        (["--name", "b", "--auth-http-request-method", "x"], "srtm broker: auth_http_request_method: 'x': must be get"),
        (["--name", "a b"], "srtm broker: name: 'a b': must be 1 to 64 of the characters"),
        (["--name", "b", "--mcap", "many"], "srtm broker: mcap: 'many': must be a number"),
        (["--name", "b", "--max-topics", "-1"], "srtm broker: max_topics: '-1': must be a whole number"),
        (["--name", "b", "--max-memory", "1x"], "srtm broker: max_memory: '1x': must be a whole number"),
        (["--name", "b", "--sync-timeout", "2"], "srtm broker: sync_timeout: '2': must be a duration with units"),
        (["--name", "b", "--mem-queue-size", "-1"], "srtm broker: mem_queue_size: '-1': must be a whole number"),
        (["--name", "b", "--tcp-address", "x"], "srtm broker: tcp_address: 'x': must be HOST:PORT"),
    ],
)
def test_bad_flags_are_one_line_and_exit_status_2(arguments, message, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_ctrl_c_during_the_start_is_status_130_without_a_word(tmp_path, monkeypatch, capsys):
    def interrupted(_config):
        raise KeyboardInterrupt

    monkeypatch.setattr(service, "run", interrupted)
    assert main(["--name", "b", "--data-path", str(tmp_path)]) == 130
    assert capsys.readouterr().err == ""
