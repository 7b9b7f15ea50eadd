"""What flags of a broker mean: alone, and those of the MQTT port together."""

import pytest

from broker.config import BrokerConfig, EngineConfig
from broker.options import check_arguments
from srtm.errors import BadInput


def settings(*flags):
    return check_arguments(["--name", "b", *flags]).engine


OWN_PAGES = ("localhost", "127.0.0.1", "[::1]")


def test_without_flags_all_settings_have_their_defaults(monkeypatch):
    for name in ("SRTM_DISTRIBUTOR", "SRTM_TOKEN", "SRTM_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    engine = EngineConfig(tls_min_version="tls1.2", mqtt_ws_origins=OWN_PAGES)  # nsqd's is tls1.0
    assert check_arguments(["--name", "b"]) == BrokerConfig(name="b", auth_by_http=True, engine=engine)


@pytest.mark.parametrize(
    ("flag", "word", "value"),
    [
        ("--http-idle-timeout", "1.5", lambda config: config.http_idle_timeout_ms == 1_500),
        ("--lab-service-time", "2.5", lambda config: config.engine.lab_service_time_ns == 2_500),
        ("--sync-timeout", "1500us", lambda config: config.engine.sync_timeout_ms == 2),
        ("--max-bytes-per-file", "2m", lambda config: config.engine.max_bytes_per_file == 2 << 20),
        ("--max-memory", "1k", lambda config: config.max_memory_bytes == 1_024),
        ("--mqtt-max-session-expiry", "60", lambda config: config.engine.mqtt_max_session_expiry_s == 60),
        ("--lookupd-tcp-address", "a:1", lambda config: config.lookupd_tcp_addresses == ("a:1",)),
    ],
)
def test_a_word_is_read_into_the_unit_of_its_setting(flag, word, value):
    assert value(check_arguments(["--name", "b", flag, word]))


@pytest.mark.parametrize(
    ("flag", "word", "field"),
    [
        ("--http-idle-timeout", "1e300", "http_idle_timeout"),
        ("--mqtt-max-in-flight", "9" * 20, "mqtt_max_in_flight"),
        ("--max-memory", "9" * 20, "max_memory"),
        ("--mem-queue-size", "9" * 20, "mem_queue_size"),
        ("--max-bytes-per-file", "999999999999g", "max_bytes_per_file"),
        ("--sync-every", "9" * 20, "sync_every"),
        ("--sync-timeout", "999999999h", "sync_timeout"),
        ("--trace-entries", "9" * 20, "trace_entries"),
        ("--max-topics", "9" * 20, "max_topics"),
        ("--metrics-topics", "9" * 20, "metrics_topics"),
    ],
)
def test_a_number_beyond_what_the_engine_counts_is_refused_with_its_range(flag, word, field):
    with pytest.raises(BadInput, match=rf"{field}: .*: must be \d.* to \d") as caught:
        check_arguments(["--name", "b", flag, word])
    assert caught.value.field == field


def test_an_address_for_https_needs_a_certificate():
    with pytest.raises(BadInput, match=r"https_address: '127.0.0.1:4152': needs tls_cert and tls_key"):
        settings("--https-address", "127.0.0.1:4152")


def test_where_nobody_is_asked_for_a_password_only_pages_of_this_machine_may_connect(tmp_path):
    users = tmp_path / "users"
    users.write_text("eva:$7$101$c2FsdA==$aGFzaA==\n")
    assert settings().mqtt_ws_origins == OWN_PAGES
    assert settings("--mqtt-password-file", str(users)).mqtt_ws_origins is None
    assert settings("--mqtt-allow-anonymous").mqtt_ws_origins is None


def test_the_origins_that_are_given_replace_the_default():
    given = settings("--mqtt-ws-origin", "https://plant.example:8443", "--mqtt-ws-origin", "[::1]")
    assert given.mqtt_ws_origins == ("https://plant.example:8443", "[::1]")
    assert settings("--mqtt-ws-origin", "plant.example", "--mqtt-ws-origin", "*").mqtt_ws_origins is None


def test_words_have_the_defaults_of_the_engine_until_others_are_given():
    assert settings().mqtt_full_session == "drop"
    assert settings("--mqtt-full-session", "refuse").mqtt_full_session == "refuse"


@pytest.mark.parametrize(
    "origin", ["", "https://plant.example/", "https://", "ftp://plant.example", "a b", "*.example"]
)
def test_what_is_no_origin_is_refused_by_name(origin):
    with pytest.raises(BadInput) as caught:
        settings("--mqtt-ws-origin", origin)
    assert (caught.value.field, caught.value.value) == ("mqtt_ws_origin", origin)
