"""Options of a broker that runs: shown, and some of them changed."""

import pytest


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("broadcast_address", b""),
        ("broadcast_tcp_port", b"4150"),
        ("broadcast_http_port", b"4151"),
        ("statsd_prefix", b"nsq.127_0_0_1_4151."),
        ("tcp_address", b"127.0.0.1:4150"),
        ("msg_timeout", b"60000000000"),
        ("max_rdy_count", b"2500"),
        ("log_level", b"2"),
        ("tls_required", b"0"),
        ("tls_min_version", b"769"),
        ("snappy", b"true"),
        ("nsqlookupd_tcp_addresses", b'["a:4160"]'),
        ("e2e_processing_latency_percentiles", b"[]"),
    ],
)
async def test_an_option_is_shown_by_its_key_texts_bare_and_the_rest_in_json(admin, key, body):
    response = await admin.ask("GET", f"/config/{key}")
    assert (response.status, response.body) == (200, body)
    assert dict(response.headers)["X-NSQ-Content-Type"] == "nsq; version=1.0"


async def test_the_nsqlookupds_in_use_can_be_changed(admin):
    response = await admin.ask("PUT", "/config/nsqlookupd_tcp_addresses", b'["b:1", "c:2"]')
    assert (response.status, response.body) == (200, b'["b:1","c:2"]')
    assert admin.lookups == ["b:1", "c:2"]


async def test_the_level_of_the_log_can_be_changed(admin):
    response = await admin.ask("PUT", "/config/log_level", b"ERROR")
    assert (response.status, response.body, admin.log_settings.level) == (200, b"4", "error")


@pytest.mark.parametrize(
    ("method", "key", "body", "expected"),
    [
        ("GET", "no_such_option", b"", (400, "INVALID_OPTION")),
        ("PUT", "max_rdy_count", b"5", (400, "INVALID_OPTION")),
        ("PUT", "no_such_option", b"5", (400, "INVALID_OPTION")),
        ("PUT", "log_level", b"", (413, "INVALID_VALUE")),
        ("PUT", "log_level", b"x" * 101, (413, "INVALID_VALUE")),
        ("PUT", "log_level", b"loud", (400, "INVALID_VALUE")),
        ("PUT", "log_level", b"\xff", (400, "INVALID_VALUE")),
        ("PUT", "nsqlookupd_tcp_addresses", b"a:1", (400, "INVALID_VALUE")),
        ("PUT", "nsqlookupd_tcp_addresses", b"[1]", (400, "INVALID_VALUE")),
        ("PUT", "nsqlookupd_tcp_addresses", b'["a"]', (400, "INVALID_VALUE")),
        ("POST", "log_level", b"info", (405, "METHOD_NOT_ALLOWED")),
    ],
)
async def test_a_bad_option_or_value_is_refused_and_changes_nothing(admin, method, key, body, expected):
    assert await admin.code(method, f"/config/{key}", body) == expected
    assert (admin.lookups, admin.log_settings.level) == (["a:4160"], "info")


async def test_a_path_that_lacks_the_name_at_its_end_is_not_there(admin):
    assert await admin.code("GET", "/config/") == (404, "NOT_FOUND")
