"""A broker's settings and flags: what is none is refused, and how."""

import pytest

from broker import process
from broker.__main__ import main
from broker.config import EngineConfig
from broker.option_rows import size
from srtm.errors import BadInput
from srtm.net.address import parse_address
from tests.support.broker_service import config


@pytest.mark.parametrize(
    ("first", "second", "address"),
    [
        ("tcp_address", "http_address", "127.0.0.1:4150"),
        ("tcp_address", "mqtt_address", "127.0.0.1:4150"),
        ("http_address", "mqtt_ws_address", "127.0.0.1:4151"),
        ("tcp_address", "http_address", "/run/broker.sock"),
    ],
)
def test_no_two_ports_have_the_same_address(tmp_path, first, second, address):
    with pytest.raises(BadInput, match=f"{second}: '{address}': must not be that of {first}"):
        config(tmp_path, **{first: address, second: address})


def test_a_member_of_a_cluster_cannot_listen_at_a_path(tmp_path):
    with pytest.raises(BadInput, match=r"tcp_address: '/run/b.sock': must be HOST:PORT with a distributor"):
        config(tmp_path, tcp_address="/run/b.sock", distributors=("http://d:1",))


def test_any_free_ports_and_ports_of_two_hosts_differ(tmp_path):
    config(tmp_path, tcp_address="127.0.0.1:0", http_address="127.0.0.1:0", mqtt_address="127.0.0.1:0")
    config(tmp_path, tcp_address="127.0.0.1:4150", http_address="[::1]:4150")


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
        ({"mqtt_address": "h"}, "mqtt_address"),
        ({"mqtt_address": "0.0.0.0:1883"}, "mqtt_address"),
        ({"mqtts_address": "127.0.0.1:8883"}, "mqtts_address"),
        ({"mqtt_ws_address": "0.0.0.0:9001"}, "mqtt_ws_address"),
        ({"mqtt_ws_address": "127.0.0.1:9001", "engine": EngineConfig(mqtt_identity="cert-cn")}, "mqtt_identity"),
        ({"mqtt_wss_address": "127.0.0.1:9443"}, "mqtt_wss_address"),
        ({"mqtt_address": "127.0.0.1:1883", "engine": EngineConfig(mqtt_identity="name")}, "mqtt_identity"),
        ({"mqtt_address": "127.0.0.1:1883", "engine": EngineConfig(mqtt_identity="cert-cn")}, "mqtt_identity"),
        (
            {
                "mqtt_address": "127.0.0.1:1883",
                "auth_http_addresses": ("a:1",),
                "mqtt_password_file": "users",
            },
            "mqtt_password_file",
        ),
        ({"mqtt_address": "127.0.0.1:1883", "engine": EngineConfig(mqtt_topic="a/b")}, "mqtt_topic"),
        ({"mqtt_address": "127.0.0.1:1883", "engine": EngineConfig(mqtt_max_in_flight=0)}, "mqtt_max_in_flight"),
        ({"engine": EngineConfig(mqtt_topic="a/b")}, "mqtt_topic"),
        ({"broadcast_address": "host:80"}, "broadcast_address"),
        ({"http_idle_timeout_ms": -1}, "http_idle_timeout"),
        ({"mcap": -1.0}, "mcap"),
        ({"mcap": 1e305}, "mcap"),
        ({"mcap": float("nan")}, "mcap"),
        ({"distributors": ("localhost:4190",)}, "distributor"),
        ({"lookupd_tcp_addresses": ("nowhere",)}, "lookupd_tcp_address"),
        ({"max_memory_bytes": 0}, "max_memory"),
        ({"trace_entries": -1}, "trace_entries"),
        ({"metrics_topics": 1_000_001}, "metrics_topics"),
        ({"log_level": "loud"}, "log_level"),
        ({"engine": EngineConfig(lab_service_time_ns=-1)}, "lab_service_time"),
        ({"engine": EngineConfig(tls_required="yes")}, "tls_required"),
        ({"engine": EngineConfig(max_deflate_level=10)}, "max_deflate_level"),
        ({"engine": EngineConfig(mem_queue_size=-1)}, "mem_queue_size"),
        ({"engine": EngineConfig(max_bytes_per_file=0)}, "max_bytes_per_file"),
        ({"engine": EngineConfig(sync_every=0)}, "sync_every"),
        ({"engine": EngineConfig(sync_timeout_ms=0)}, "sync_timeout"),
        ({"engine": EngineConfig(max_connections=-1)}, "max_connections"),
        ({"engine": EngineConfig(max_topics=1 << 32)}, "max_topics"),
        ({"mqtt_redirect": "all", "mqtt_address": "127.0.0.1:1883"}, "mqtt_redirect"),
        ({"engine": EngineConfig(mqtt_full_session="wait"), "mqtt_address": "127.0.0.1:1883"}, "mqtt_full_session"),
    ],
)
def test_bad_settings_name_field_and_value(tmp_path, changes, field):
    with pytest.raises(BadInput) as caught:
        config(tmp_path, **changes)
    assert caught.value.field == field


@pytest.mark.parametrize("address", ["127.0.0.1:1883", "[::1]:1883", "localhost:1883", "/run/mqtt.sock"])
def test_mqtt_is_for_this_machine_alone_unless_anybody_may_use_it(tmp_path, address):
    assert config(tmp_path, mqtt_address=address).mqtt_address == address
    assert config(tmp_path, mqtt_address=":1883", mqtt_allow_anonymous=True).mqtt_address == ":1883"
    assert config(tmp_path, mqtt_address=":1883", auth_http_addresses=("a:1",)).mqtt_address == ":1883"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("h:1", ("h", 1)), (":4150", ("0.0.0.0", 4150)), ("[::1]:0", ("::1", 0)), ("[::]:65535", ("::", 65535))],
)
def test_addresses_are_parsed(text, parsed):
    assert parse_address("a", text) == parsed


@pytest.mark.parametrize(
    ("text", "found"), [("7", 7), ("64k", 65536), ("2M", 2 << 20), ("1GiB", 1 << 30), ("1gb", 1 << 30)]
)
def test_sizes_have_units(text, found):
    assert size("max_memory", text) == found


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
        (["--name", "b", "--mqtt-max-queued", "many"], "srtm broker: mqtt_max_queued: 'many': must be a whole number"),
        (["--name", "b", "--mqtt-max-keep-alive", "x"], "srtm broker: mqtt_max_keep_alive: 'x': must be a whole"),
        (["--name", "b", "--http-idle-timeout", "-1"], "srtm broker: http_idle_timeout: -1.0: must be 0 s (for ever)"),
        (["--name", "b", "--mqtt-address", ":1883"], "srtm broker: mqtt_address: ':1883': must be on loopback"),
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

    monkeypatch.setattr(process, "run", interrupted)
    assert main(["--name", "b", "--data-path", str(tmp_path)]) == 130
    assert capsys.readouterr().err == ""
