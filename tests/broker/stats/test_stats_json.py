"""What a broker shows of itself: /stats as nsqd has it, /metrics, /healthz."""

import msgspec

from broker import snapshot
from broker.config import EngineConfig
from broker.stats import stats_json as stats
from broker.stats.mqtt_channels import MOST_GROUPS
from tests.support.broker_admin import Admin


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
    assert b"heap_in_use_bytes" in response.body
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
        "srtm_broker_cpu_throttled_ratio 0.25",
        "srtm_broker_cpu_throttled_seconds_total 7.0",
        "srtm_broker_gdrl_rounds_total 12.0",
        "srtm_broker_gdrl_nonsense_total 3.0",
        "srtm_broker_cpu_steal_ratio 0.5",
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


async def test_latency_from_publish_to_fin_is_shown_as_nsqd_shows_it():
    asked = Admin(settings=EngineConfig(e2e_percentiles=(0.99, 0.5)))
    asked.engine.create_topic("t").e2e = {"count": 7, "values_ns": [900, 500]}

    async def shown():
        _, stats = await asked.json("GET", "/stats?format=json")
        return stats["topics"][0]["e2e_processing_latency"]

    assert await shown() == {"count": 0, "percentiles": None}, "nobody can have finished anything"
    asked.engine.create_channel("t", "c")
    percentiles = [{"quantile": 0.99, "value": 900}, {"quantile": 0.5, "value": 500}]
    assert await shown() == {"count": 7, "percentiles": percentiles}
    assert b" e2e%: 900.0ns, 500.0ns\n" in (await asked.ask("GET", "/stats")).body
    asked.engine.topics["t"].e2e = {"count": 0, "values_ns": [0, 0]}
    assert await shown() == {"count": 0, "percentiles": [{"quantile": 0.99, "value": 0}, {"quantile": 0.5, "value": 0}]}


def held(topic: str, **figures: int | str) -> dict[str, object]:
    return {"topic": topic, "depth": 4, "in_flight": 2, "messages": 9, "holders": 3, "dropped": 0, **figures}


async def test_what_mqtts_sessions_hold_is_one_channel_of_each_topic_here_or_elsewhere(admin):
    for topic in ("heat", "own", "quiet"):
        admin.engine.create_topic(topic)
    admin.engine.create_channel("own", "mqtt")
    admin.engine.create_channel("heat", "archive")
    admin.engine.mqtt_topics = [held("heat"), held("own"), held("elsewhere", depth=1, dropped=5)]
    _, shown = await admin.json("GET", "/stats?format=json")
    channels = {topic["topic_name"]: topic["channels"] for topic in shown["topics"]}
    depths = {name: {one["channel_name"]: one["depth"] for one in of_topic} for name, of_topic in channels.items()}
    assert depths == {"elsewhere": {"mqtt": 1}, "heat": {"archive": 0, "mqtt": 4}, "own": {"mqtt": 0}, "quiet": {}}
    pseudo = channels["heat"][1]
    assert [pseudo[name] for name in ("in_flight_count", "message_count", "client_count")] == [2, 9, 3]
    assert pseudo["clients"] == []
    assert [one.get("dropped") for one in (pseudo, *channels["elsewhere"])] == [None, 5]
    _, one = await admin.json("GET", "/stats?format=json&topic=heat&channel=mqtt")
    assert [len(topic["channels"]) for topic in one["topics"]] == [1]
    assert b"[mqtt " in (await admin.ask("GET", "/stats?topic=heat")).body
    metrics = (await admin.ask("GET", "/metrics")).body.decode()
    assert 'srtm_mqtt_topic_depth{channel="mqtt",topic="heat"} 4.0' in metrics
    assert 'srtm_mqtt_topic_messages_total{channel="mqtt",topic="elsewhere"} 9.0' in metrics
    assert 'srtm_mqtt_topic_dropped_total{channel="mqtt",topic="elsewhere"} 5.0' in metrics


async def test_a_shared_group_of_mqtt_is_a_channel_and_of_many_the_busiest_are_shown(admin):
    admin.engine.create_topic("heat")
    name = "$share/workers/plant/+/heat"
    admin.engine.mqtt_topics = [held("heat"), held("heat", group=name, depth=1, dropped=7)]
    _, shown = await admin.json("GET", "/stats?format=json")
    channels = {one["channel_name"]: (one["depth"], one.get("dropped")) for one in shown["topics"][0]["channels"]}
    assert channels == {"mqtt": (4, None), name: (1, 7)}
    metrics = (await admin.ask("GET", "/metrics")).body.decode()
    assert f'srtm_mqtt_topic_dropped_total{{channel="{name}",topic="heat"}} 7.0' in metrics
    many = [held("heat", group=f"$share/{number:03}/#", messages=number) for number in range(100)]
    admin.engine.mqtt_topics = [held("heat"), *many]
    _, shown = await admin.json("GET", "/stats?format=json")
    names = [one["channel_name"] for one in shown["topics"][0]["channels"]]
    assert names == [*(f"$share/{number:03}/#" for number in range(100 - MOST_GROUPS, 100)), "mqtt"]


async def test_publishes_by_mqtt_that_were_not_taken_are_counted_by_topic_and_qos(admin):
    for topic in ("heat", "quiet"):
        admin.engine.create_topic(topic)
    admin.engine.topics["heat"].untaken = {"mqtt_refused": [0, 7, 2], "mqtt_dropped": [5, 0, 0]}
    _, shown = await admin.json("GET", "/stats?format=json")
    fields = [[topic.get(name) for name in ("mqtt_refused", "mqtt_dropped")] for topic in shown["topics"]]
    assert fields == [[[0, 7, 2], [5, 0, 0]], [None, None]]
    metrics = (await admin.ask("GET", "/metrics")).body.decode()
    assert 'srtm_mqtt_publishes_refused_total{qos="1",topic="heat"} 7.0' in metrics
    assert 'srtm_mqtt_publishes_dropped_total{qos="0",topic="heat"} 5.0' in metrics
    assert 'qos="0",topic="quiet"' not in metrics


async def test_deliveries_for_which_a_session_was_full_are_counted_by_topic(admin):
    admin.engine.mqtt_topics = [held("heat", dropped=9, full=5)]
    metrics = (await admin.ask("GET", "/metrics")).body.decode()
    assert 'srtm_mqtt_topic_full_total{channel="mqtt",topic="heat"} 5.0' in metrics


async def test_mqtts_sessions_are_listed_only_for_who_asks(admin):
    admin.engine.mqtt = {"sensor-7": {"client_id": "sensor-7", "queued": 2}}
    assert "mqtt" not in (await admin.json("GET", "/stats?format=json"))[1]
    _, shown = await admin.json("GET", "/stats?format=json&include_mqtt=1")
    assert [one["client_id"] for one in shown["mqtt"]["sessions"]] == ["sensor-7"]
    assert shown["mqtt"]["total"] == 1
