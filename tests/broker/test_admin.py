"""The broker's HTTP routes against a recording engine: nsqd's words for nsqd's routes, ours for ours.

A refusal changes nothing.
"""

import json

import msgspec
import pytest

from broker import snapshot, stats
from broker.admin import admin_handler
from broker.admin_context import AdminContext, tokens_of
from broker.config import BrokerConfig, EngineConfig
from broker.drain import Drain
from broker.requests import request
from srtm.address import parse_peer
from srtm.control import GdrlAnswer, Throttling
from srtm.http_api import respond
from srtm.log import Log, Threshold
from srtm.tokens import Tokens
from tests.support.fake_engine import FakeEngine


class Admin:
    def __init__(self, **changes):
        self.engine = FakeEngine()
        self.managed = set()
        self.changes = 0
        self.health = "OK"
        self.threshold = Threshold()
        self.lookups = ["a:4160"]
        context = AdminContext(
            **{
                "engine": self.engine,
                "settings": EngineConfig(max_msg_size=100, max_body_size=1000),
                "name": "b1",
                "incarnation": "1",
                "start_wall_ns": 1_700_000_000_000_000_000,
                "hostname": "vm",
                "broadcast_address": "127.0.0.1",
                "tcp_port": 4150,
                "http_port": 4151,
                "tokens": None,
                "is_managed": self.managed.__contains__,
                "note_change": self.note_change,
                "health": lambda: self.health,
                "answer_gdrl": lambda _message: GdrlAnswer(accepted=False),
                "gdrl_rounds": lambda: 12,
                "throttling": lambda: Throttling(
                    quota_cores=1.5, throttled_share=0.25, throttled_s=7.0, steal_share=0.5
                ),
                "drain": Drain("b1", self.engine, Log("b1", lambda _line: None)),
                "config": BrokerConfig(name="b1", max_memory_bytes=99),
                "threshold": self.threshold,
                "lookup_addresses": lambda: self.lookups,
                "use_lookups": self.use_lookups,
                **changes,
            }
        )
        self.handler = admin_handler(context)

    def use_lookups(self, addresses):
        for address in addresses:
            parse_peer("nsqlookupd_tcp_addresses", address)
        self.lookups = addresses

    def note_change(self):
        self.changes += 1

    async def ask(self, method, target, body=b"", **headers):
        asked = request(method, target, list(headers.items()), body)
        return await respond(self.handler, asked, Log("b1"))

    async def code(self, method, target, body=b""):
        """Status and nsqd's error word."""
        response = await self.ask(method, target, body)
        return response.status, json.loads(response.body)["message"] if response.body.startswith(b"{") else ""

    async def json(self, method, target, value=None):
        response = await self.ask(method, target, b"" if value is None else json.dumps(value).encode())
        return response.status, json.loads(response.body)


@pytest.fixture
def admin():
    return Admin()


# --- nsqd's routes


async def test_info_is_nsqds(admin):
    response = await admin.ask("GET", "/info")
    assert dict(response.headers)["X-NSQ-Content-Type"] == "nsq; version=1.0"
    info = json.loads(response.body)
    assert info["version"] == "1.3.0"
    assert (info["tcp_port"], info["http_port"], info["hostname"]) == (4150, 4151, "vm")
    assert info["max_heartbeat_interval"] == 60_000_000_000
    assert info["start_time"] == 1_700_000_000


async def test_topics_are_created_paused_emptied_and_deleted(admin):
    for verb in ("create", "create", "pause", "unpause", "empty", "delete"):
        response = await admin.ask("POST", f"/topic/{verb}?topic=t")
        assert (response.status, response.body) == (200, b"")
    assert await admin.code("POST", "/topic/delete?topic=t") == (404, "TOPIC_NOT_FOUND")
    assert ("pause_topic", "t", True) in admin.engine.calls
    assert ("pause_topic", "t", False) in admin.engine.calls
    assert admin.changes > 0  # a pause reaches the metadata file although the engine has no event for it


async def test_channels_need_their_topic(admin):
    target = "/channel/{}?topic=t&channel=c"
    assert await admin.code("POST", target.format("create")) == (404, "TOPIC_NOT_FOUND")
    admin.engine.create_topic("t")
    assert await admin.code("POST", target.format("pause")) == (404, "CHANNEL_NOT_FOUND")
    for verb in ("create", "pause", "unpause", "empty", "delete"):
        assert (await admin.ask("POST", target.format(verb))).status == 200
    assert admin.engine.topics["t"].channels == {}


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/topic/create", "MISSING_ARG_TOPIC"),
        ("/topic/create?topic=%20", "INVALID_TOPIC"),
        ("/channel/create?channel=c", "MISSING_ARG_TOPIC"),
        ("/channel/create?topic=t", "MISSING_ARG_CHANNEL"),
        ("/channel/create?topic=!&channel=c", "INVALID_ARG_TOPIC"),
        ("/channel/pause?topic=t&channel=!", "INVALID_ARG_CHANNEL"),
    ],
)
async def test_bad_names_are_refused(admin, target, code):
    assert await admin.code("POST", target) == (400, code)
    assert admin.engine.calls == []


async def test_a_managed_topic_cannot_be_deleted_behind_the_distributors_back(admin):
    admin.engine.create_topic("t")
    admin.managed.add("t")
    assert await admin.code("POST", "/topic/delete?topic=t") == (409, "TOPIC_MANAGED")
    assert "t" in admin.engine.topics


async def test_nsqds_routes_refuse_in_nsqds_words(admin):
    assert await admin.code("GET", "/put") == (404, "NOT_FOUND")
    response = await admin.ask("GET", "/topic/create")
    assert (response.status, response.body) == (405, b'{"message":"METHOD_NOT_ALLOWED"}')
    assert dict(response.headers)["Allow"] == "OPTIONS, POST"
    assert dict(response.headers)["X-NSQ-Content-Type"] == "nsq; version=1.0"
    assert await admin.code("GET", "/%zz") == (400, "INVALID_REQUEST")


async def test_a_token_is_asked_for_in_both_kinds_of_routes():
    admin = Admin(tokens=Tokens.of_one("s3cret"))
    assert (await admin.ask("GET", "/healthz")).status == 200
    assert await admin.code("POST", "/topic/create?topic=t") == (401, "UNAUTHORIZED")
    assert (await admin.json("GET", "/v1/topics/t/bucket"))[0] == 401
    assert (await admin.ask("POST", "/topic/create?topic=t", authorization="Bearer s3cret")).status == 200


async def test_partners_use_the_exchange_with_tokens_of_brokers_and_nothing_else():
    listed = Tokens.parsed("tokens", "broker b1 own\nbroker b2 other\noperator ann o\nclient cars c\n")
    admin = Admin(tokens=tokens_of(BrokerConfig(name="b1", data_path=".", token="own", tokens=listed)))

    async def status(token, method, path):
        return (await admin.ask(method, path, b"{}", authorization=f"Bearer {token}")).status

    exchange, bucket = ("POST", "/v1/gdrl/exchange"), ("GET", "/v1/topics/t/bucket")
    assert [await status(token, *exchange) for token in ("own", "other", "o", "c", "x")] == [400, 400, 400, 403, 401]
    assert [await status(token, *bucket) for token in ("own", "other", "o", "c", "x")] == [404, 403, 404, 403, 401]


# --- stats


async def test_stats_json_has_nsqds_shape(admin):
    admin.engine.create_topic("b")
    admin.engine.create_topic("a")
    admin.engine.create_channel("a", "c")
    _, shown = await admin.json("GET", "/stats?format=json")
    assert list(shown) == ["version", "health", "start_time", "topics", "memory", "producers"]
    assert [topic["topic_name"] for topic in shown["topics"]] == ["a", "b"]
    (channel,) = shown["topics"][0]["channels"]
    assert channel["clients"] == []
    assert channel["e2e_processing_latency"] == {"count": 0, "percentiles": None}
    assert shown["producers"] is None


async def test_stats_filters(admin):
    for topic in ("a", "b"):
        admin.engine.create_topic(topic)
    admin.engine.create_channel("a", "c")
    _, shown = await admin.json("GET", "/stats?format=json&topic=nowhere&include_mem=false&include_clients=0")
    assert shown["topics"] is None
    assert "memory" not in shown
    _, shown = await admin.json("GET", "/stats?format=json&channel=c&include_clients=false")
    assert [topic["topic_name"] for topic in shown["topics"]] == ["a"]
    assert shown["topics"][0]["channels"][0]["clients"] is None


async def test_deliveries_by_nearness_are_shown_where_there_are_any(admin):
    topic = admin.engine.create_topic("t")
    admin.engine.create_channel("t", "c")
    _, stats = await admin.json("GET", "/stats?format=json")
    assert not [name for name in stats["topics"][0]["channels"][0] if "local" in name or "global" in name]
    topic.nearness = {"zone_local_msg_count": 3, "global_msg_count": 1}
    _, stats = await admin.json("GET", "/stats?format=json")
    shown = stats["topics"][0]["channels"][0]
    assert {name: shown[name] for name in shown if "local" in name or "global" in name} == topic.nearness


async def test_stats_text_is_the_default_and_marks_what_is_paused(admin):
    admin.engine.create_topic("t")
    admin.engine.pause_topic("t", True)
    response = await admin.ask("GET", "/stats?format=xml")
    assert response.content_type.startswith("text/plain")
    assert b"*P [t  " in response.body
    assert b"Memory: 0 of 1073741824 bytes" in response.body
    assert b"Memory" not in (await admin.ask("GET", "/stats?include_mem=false")).body


async def test_throttling_shows_in_stats_and_metrics_by_topic(admin):
    admin.engine.create_topic("free")
    admin.engine.set_bucket("tight", 2_000_000, 5_000_000, True, 7, 1000, 1, False)
    admin.engine.topics["tight"].bucket.update(fill=0.5, delayed=4, rejected=3, backlog=2, backlog_bytes=20)
    free, tight = (await admin.json("GET", "/stats?format=json"))[1]["topics"]
    assert "bucket" not in free
    assert tight["bucket"] == {
        "rate": 2.0, "burst": 5.0, "on_excess": "reject", "fill": 0.5, "backlog": 2, "backlog_bytes": 20,
        "max_backlog": 7, "max_backlog_bytes": 1000, "delayed": 4, "rejected": 3,
    }  # fmt: skip
    text = (await admin.ask("GET", "/stats")).body.decode()
    assert "bucket: 2 msg/s, fill: 0.5 of 5 wait: 2 of 7 delayed: 4 rejected: 3" in text
    metrics = (await admin.ask("GET", "/metrics")).body.decode()
    for line in ('srtm_topic_delayed_total{topic="tight"} 4.0', 'srtm_bucket_backlog{topic="tight"} 2.0'):
        assert line in metrics


async def test_metrics_tell_what_others_take_of_the_processors(admin):
    metrics = (await admin.ask("GET", "/metrics")).body.decode()
    for line in (
        "srtm_broker_cpu_quota_cores 1.5",
        "srtm_broker_cpu_throttled_share 0.25",
        "srtm_broker_cpu_throttled_seconds_total 7.0",
        "srtm_broker_gdrl_rounds_total 12.0",
        "srtm_broker_cpu_steal_share 0.5",
    ):
        assert line in metrics


def test_a_client_that_said_auth_is_shown_with_who_it_is():
    counts = ("state", "ready_count", "in_flight_count", "message_count", "finish_count", "requeue_count")
    words = ("client_id", "hostname", "user_agent", "remote_address")
    client = msgspec.convert(
        {**dict.fromkeys(counts, 0), **dict.fromkeys(words, ""), "connect_ts": 1, "sample_rate": 0, "aware": False},
        snapshot.Client,
    )
    assert "authed" not in stats.client_json(client)
    known = msgspec.structs.replace(client, authed=True, auth_identity="u")
    assert stats.client_json(known)["auth_identity"] == "u"
    assert "auth_identity_url" not in stats.client_json(known)


# --- ours


async def test_a_bucket_is_put_shown_changed_and_removed(admin):
    status, shown = await admin.json("PUT", "/v1/topics/t/bucket", {"rate": 0.5, "burst": 2.5, "on_excess": "reject"})
    assert status == 200
    assert (shown["rate"], shown["burst"], shown["on_excess"], shown["managed"]) == (0.5, 2.5, "reject", False)
    assert (shown["max_backlog"], shown["max_backlog_bytes"], shown["version"]) == (1_000_000, 1 << 30, 0)
    assert admin.engine.calls[-1] == ("set_bucket", "t", 500_000, 2_500_000, 0, True, None)
    status, shown = await admin.json("PUT", "/v1/topics/t/bucket", {"rate": 1, "burst": 1, "max_backlog": 0})
    assert (status, shown["max_backlog"], shown["fill"]) == (200, 0, 1.0)
    assert (shown["timestamp_bias_max_seconds"], shown["merged_read_share"]) == (0.0, 0.0)
    assert (shown["lease_left_seconds"], shown["lapses"]) == (None, 0)
    assert admin.engine.calls[-1][-2] is False  # only a bucket that was not there starts full
    assert (await admin.json("GET", "/v1/topics/t/bucket"))[1] == shown
    assert set(shown["latency"]) == {"access", "processing", "consumer_wait", "total"}
    assert set(shown["latency"]["access"]["last_60s"]) == {"count", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"}
    assert (await admin.ask("DELETE", "/v1/topics/t/bucket")).status == 200
    assert (await admin.ask("DELETE", "/v1/topics/t/bucket")).status == 404
    assert (await admin.ask("GET", "/v1/topics/t/bucket")).status == 404


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"rate": 0, "burst": 1}, "rate"),
        ({"rate": -5, "burst": 1}, "rate"),
        ({"rate": 1e-7, "burst": 1}, "rate"),
        ({"rate": 1e10, "burst": 1}, "rate"),
        ({"rate": "fast", "burst": 1}, "rate"),
        ({"rate": True, "burst": 1}, "rate"),
        ({"rate": None, "burst": 1}, "rate"),
        ({"burst": 1}, "rate"),
        ({"rate": 1}, "burst"),
        ({"rate": 1, "burst": 0.999}, "burst"),
        ({"rate": 1, "burst": 1, "on_excess": "drop"}, "on_excess"),
        ({"rate": 1, "burst": 1, "on_excess": ["delay"]}, "on_excess"),
        ({"rate": 1, "burst": 1, "max_backlog": -1}, "max_backlog"),
        ({"rate": 1, "burst": 1, "max_backlog": 1.5}, "max_backlog"),
        ({"rate": 1, "burst": 1, "max_backlog_bytes": True}, "max_backlog_bytes"),
        ({"rate": 1, "burst": 1, "bust": 2}, "bust"),
        ([1, 2], "body"),
        ("rate", "body"),
    ],
)
async def test_a_bad_bucket_is_refused_naming_field_value_and_rule(admin, value, field):
    status, refusal = await admin.json("PUT", "/v1/topics/t/bucket", value)
    assert status == 400
    assert refusal["field"] == field
    assert refusal["rule"]
    if field in value and not isinstance(value, str):
        assert refusal["value"] == value[field]
    assert admin.engine.calls == []


@pytest.mark.parametrize("body", [b"", b"{", b'{"rate": NaN, "burst": 1}', b"\xff", b'{"rate": 1e999, "burst": 1}'])
async def test_a_body_that_is_no_json_is_refused(admin, body):
    response = await admin.ask("PUT", "/v1/topics/t/bucket", body)
    assert response.status == 400
    assert admin.engine.calls == []


async def test_bad_topic_names_are_refused_in_our_routes(admin):
    status, refusal = await admin.json("PUT", "/v1/topics/t$/bucket", {"rate": 1, "burst": 1})
    assert (status, refusal["field"], refusal["value"]) == (400, "topic", "t$")


async def test_a_managed_bucket_is_shown_but_not_changed(admin):
    admin.engine.set_bucket("t", 1_000_000, 1_000_000, False, 1, 1, 5, True)
    admin.managed.add("t")
    before = list(admin.engine.calls)
    status, shown = await admin.json("GET", "/v1/topics/t/bucket")
    assert (status, shown["managed"], shown["version"]) == (200, True, 5)
    for method in ("PUT", "DELETE"):
        status, refusal = await admin.json(method, "/v1/topics/t/bucket", {"rate": 9, "burst": 9})
        assert (status, refusal["title"], refusal["value"]) == (409, "conflict", "t")
    assert admin.engine.calls == before


async def test_the_trace_is_columnar(admin):
    admin.engine.set_bucket("t", 1_000_000, 1_000_000, False, 1, 1, 5, True)
    assert (await admin.json("GET", "/v1/topics/t/trace"))[1] == {
        "publishers": ["a", "b"],
        "publisher": [0, 1],
        "arrival_ns": [10, 10],
        "due_ns": [20, 20],
        "released_ns": [30, 30],
        "sent_ns": [0, 0],
        "share_version": [7, 7],
    }
    assert (await admin.json("GET", "/v1/topics/nowhere/trace"))[0] == 404


async def test_our_routes_refuse_with_problem_json(admin):
    for method, path, status in (("GET", "/v1/nothing", 404), ("POST", "/v1/topics/t/bucket", 405)):
        response = await admin.ask(method, path)
        assert (response.status, response.content_type) == (status, "application/problem+json")
    assert dict(response.headers)["Allow"] == "DELETE, GET, OPTIONS, PUT"
    assert (await admin.json("GET", "/v1/topics/t/bucket?format=xml"))[1]["field"] == "format"


async def test_the_raw_histograms_are_read_back_by_the_hdr_library(admin, tmp_path):
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader

    recorded = HdrHistogram(1, 60_000_000_000, 3)
    for value_ns in (1_000, 2_000_000):
        recorded.record_value(value_ns)
    admin.engine.create_topic("t")
    admin.engine.histogram = lambda _topic, kind, _window: recorded.encode() if kind != "total" else None
    response = await admin.ask("GET", "/v1/topics/t/bucket?format=hlog")
    (tmp_path / "t.hlog").write_bytes(response.body)
    reader = HistogramLogReader(str(tmp_path / "t.hlog"), recorded)
    tags = []
    while (histogram := reader.get_next_interval_histogram()) is not None:
        tags.append(histogram.get_tag())
        assert histogram.get_total_count() == 2
        assert histogram.get_start_time_stamp() >= 1_700_000_000_000
    reader.close()
    assert tags == [f"{k}.{w}" for k in ("access", "processing", "consumer_wait") for w in ("since_start", "last_60s")]


async def test_healthz_tells_whether_publishes_are_taken(admin):
    admin.engine.set_accepting(False, "starting")
    status, health = await admin.json("GET", "/healthz")
    assert (status, health["status"], health["accepting"], health["name"]) == (200, "ok", False, "b1")
    admin.health = "NOK - disk full"
    assert (await admin.json("GET", "/healthz"))[0] == 503


async def test_metrics_are_prometheus_text(admin):
    from prometheus_client.parser import text_string_to_metric_families

    admin.engine.set_bucket("t", 1_500_000, 3_000_000, False, 1, 1, 5, True)
    admin.engine.create_channel("t", "c")
    response = await admin.ask("GET", "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(response.body.decode())}
    (rate,) = families["srtm_bucket_rate"].samples
    assert families["srtm_broker_timestamp_bias_max_seconds"].samples[0].value == 0.0
    assert families["srtm_broker_merged_reads"].samples[0].value == 0.0
    assert (rate.labels, rate.value) == ({"topic": "t"}, 1.5)
    (met,) = families["srtm_broker_limits_met"].samples
    assert (met.labels, met.value) == ({"limit": "max_topics"}, 2.0)
    bounded = [families[f"srtm_broker_{name}"].samples[0].value for name in ("postponements", "unfinished_bytes")]
    assert bounded == [3.0, 4.0]
    (depth,) = families["srtm_channel_depth"].samples
    assert depth.labels == {"topic": "t", "channel": "c"}
    assert families["srtm_topic_received"].type == "counter"
    assert len(families["srtm_topic_latency_seconds"].samples) == 4 * 5


@pytest.mark.parametrize(
    ("path", "name"), [("/topic/create?topic=t", ("t", "")), ("/channel/create?topic=u&channel=c", ("u", "c"))]
)
async def test_a_limit_refuses_topics_and_channels_made_by_http_and_changes_nothing(admin, path, name):
    admin.engine.create_topic("u")
    admin.engine.refusals[name] = "there may be 2 topics (max_topics)"
    assert await admin.json("POST", path) == (503, {"message": "there may be 2 topics (max_topics)"})
    assert list(admin.engine.topics) == ["u"]
    assert not admin.engine.topics["u"].channels
    del admin.engine.refusals[name]
    assert (await admin.ask("POST", path)).status == 200


# --- options


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("broadcast_address", b""),
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
    assert (response.status, response.body, admin.threshold.level) == (200, b"4", "error")


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
    assert (admin.lookups, admin.threshold.level) == (["a:4160"], "info")


async def test_latency_from_publish_to_fin_is_shown_as_nsqd_shows_it():
    asked = Admin(settings=EngineConfig(e2e_percentiles=(0.99, 0.5)))
    asked.engine.create_topic("t").e2e = {"count": 7, "values_ns": [900, 500]}
    _, stats = await asked.json("GET", "/stats?format=json")
    shown = {"count": 7, "percentiles": [{"quantile": 0.99, "value": 900}, {"quantile": 0.5, "value": 500}]}
    assert stats["topics"][0]["e2e_processing_latency"] == shown
    assert b" e2e: 99%: 0.001ms, 50%: 0.001ms" in (await asked.ask("GET", "/stats")).body
    asked.engine.topics["t"].e2e["count"] = 0
    _, stats = await asked.json("GET", "/stats?format=json")
    assert stats["topics"][0]["e2e_processing_latency"] == {"count": 0, "percentiles": None}


async def test_memory_can_be_given_back(admin):
    assert await admin.code("POST", "/debug/freememory") == (200, "")


@pytest.mark.parametrize(
    "path", ["/debug/pprof/", "/debug/pprof/heap", "/put", "/create_topic", "/mput", "/empty_channel"]
)
async def test_what_is_gos_own_and_what_is_long_gone_is_not_found(admin, path):
    assert await admin.code("GET", path) == (404, "NOT_FOUND")


# --- drain


async def test_a_broker_alone_is_drained_by_its_own_route(admin):
    admin.engine.create_topic("t").messages.append(b"x")
    assert (await admin.json("GET", "/v1/drain"))[1]["state"] == "serving"
    status, begun = await admin.json("POST", "/v1/drain")
    assert (status, begun["broker"], begun["state"], begun["left"]["queued"]) == (202, "b1", "draining", 1)
    assert begun["obstacles"] == ["topic t has no channel"]
    assert (await admin.json("POST", "/v1/drain"))[0] == 202
    assert (await admin.json("GET", "/v1/drain"))[1]["state"] == "draining"


async def test_a_member_of_a_cluster_is_not_drained_behind_its_distributors_back():
    admin = Admin(config=BrokerConfig(name="b1", distributors=("http://d:4190",)))
    status, refusal = await admin.json("POST", "/v1/drain")
    assert (status, refusal["field"], refusal["value"]) == (409, "broker", "b1")
    assert "srtm drain b1" in refusal["rule"]
    assert (await admin.json("GET", "/v1/drain"))[1]["state"] == "serving"


async def test_draining_asks_for_the_token():
    admin = Admin(tokens=Tokens.of_one("s3cret"))
    assert (await admin.ask("POST", "/v1/drain")).status == 401
    assert (await admin.ask("POST", "/v1/drain", authorization="Bearer s3cret")).status == 202
