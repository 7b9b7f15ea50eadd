"""The engine's start: what it is told, and refusals that name what cannot be had. Its end: what could not be saved."""

import errno
import sys
from types import SimpleNamespace

import pytest
import trio

from broker import service
from broker import startup as starting
from broker.config import EngineConfig
from broker.runtime.addresses import broadcast_address
from broker.sync.state_file import SyncState
from srtm.errors import BadInput, Conflict, InternalError, NotBuilt
from tests.support.broker_service import config
from tests.support.fake_engine import FakeEngine


async def test_the_engine_is_told_its_settings_and_starts_closed(tmp_path, engines, nursery):
    tuned = EngineConfig(msg_timeout_ms=1234)
    await nursery.start(service.serve, config(tmp_path, engine=tuned, max_memory_bytes=5, trace_entries=6))
    told = engines[0].config
    assert (told["msg_timeout_ms"], told["max_memory_bytes"], told["trace_entries"]) == (1234, 5, 6)
    assert told["accepting"] is False  # until what was limited is limited again
    assert told["hold_new_topics"] is False
    assert 0 <= told["node_id"] < 1024
    nursery.cancel_scope.cancel()


async def test_a_checkout_that_is_not_built_is_told_how_to_build_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "srtm._native", None)
    with pytest.raises(NotBuilt, match=r"srtm\._native.* is not built in this checkout: run make build"):
        starting.make_engine(EngineConfig(), config(tmp_path))


async def test_brokers_of_different_names_make_different_ids(tmp_path):
    ids = {starting.engine_settings(config(tmp_path, name=name), SyncState()).node_id for name in ("b1", "b2", "b3")}
    assert len(ids) == 3


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
    assert bound == ("/run/nsqd.sock", *[""] * 6)
    assert (engines[0].config["tcp_address"], engines[0].config["http_address"]) == ("/run/nsqd.sock", "")
    nursery.cancel_scope.cancel()


async def test_mqtt_is_off_unless_it_has_an_address(tmp_path, engines, nursery):
    for number, address in enumerate(("", "127.0.0.1:1883")):
        data = tmp_path / str(number)
        data.mkdir()
        bound = await nursery.start(service.serve, config(data, mqtt_address=address))
        assert (bound.mqtt, engines[number].config["mqtt_address"]) == (address, address)
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


async def test_a_data_path_that_takes_no_queues_is_refused_by_name(tmp_path, monkeypatch):
    engine = FakeEngine()
    engine.start_error = OSError(errno.EACCES, "Permission denied (os error 13)", "data_path")
    monkeypatch.setitem(sys.modules, "srtm._native", SimpleNamespace(Engine=lambda _config: engine))
    with pytest.raises(BadInput, match=r"data_path: '.*': must take queues \(Permission denied"):
        await service.serve(config(tmp_path))


def test_others_are_told_an_address_that_they_can_connect_to(tmp_path):
    assert broadcast_address(config(tmp_path), "vm") == "127.0.0.1"
    assert broadcast_address(config(tmp_path, tcp_address=":4150"), "vm") == "vm"
    assert broadcast_address(config(tmp_path, broadcast_address="x.org"), "vm") == "x.org"
    assert broadcast_address(config(tmp_path, tcp_address="/run/nsqd.sock"), "vm") == "vm"


async def test_a_stop_that_could_not_save_all_messages_tells_and_is_a_failure(tmp_path, engines, capsys):
    async def served_and_stopped():
        async with trio.open_nursery() as inner:
            await inner.start(service.serve, config(tmp_path))
            engines[0].unsaved = "3 messages could not be saved: No space left on device"
            inner.cancel_scope.cancel()

    with pytest.raises(BaseExceptionGroup) as raised:
        await served_and_stopped()
    whole = "not all saved: 3 messages could not be saved: No space left on device; sync t.000001.seg: failed$"
    assert raised.group_contains(InternalError, match=whole)
    assert "queued messages were not all saved" in capsys.readouterr().err
