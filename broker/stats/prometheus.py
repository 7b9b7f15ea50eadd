"""``/metrics``: the snapshot as Prometheus metrics. Imports prometheus-client (50 ms) at the first scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.snapshot import Bucket, Channel, Latencies, Mqtt, Snapshot, Topic

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from srtm.control import Throttling

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_QUANTILES = {"0.5": "p50_ns", "0.95": "p95_ns", "0.99": "p99_ns", "0.999": "p999_ns", "1": "max_ns"}
_TOPIC_COUNTERS = {
    "received": "Messages that came, the rejected ones too",
    "released": "Messages let go by the token bucket (all, where there is none)",
    "rejected": "Messages refused by the token bucket",
}
_BUCKET_COUNTERS = {
    "delayed": "Messages that had to wait for a token",
    "undeclared": "Messages of publishers that the topic does not name here",
    "lapses": "Times that the lease of the share ended without renewal",
}
_BUCKET_GAUGES = {
    "rate_micro": ("rate", "Token rate, msg/s", 1e-6),
    "burst_micro": ("burst", "Bucket size, messages", 1e-6),
    "fill": ("fill", "Tokens in the bucket", 1.0),
    "backlog": ("backlog", "Messages that wait for tokens", 1.0),
    "backlog_bytes": ("backlog_bytes", "Bytes that wait for tokens", 1.0),
    "largest_backlog": ("largest_backlog", "Largest unfinished work of the last 60 s, messages", 1.0),
    "lateness_max_ns": ("lateness_max_seconds", "Largest time from due to actual release", 1e-9),
}
_MQTT_GAUGES = {
    "sessions": "Sessions of MQTT clients, connected or away",
    "subscriptions": "Subscriptions of MQTT clients",
    "retained": "Retained messages",
}
_MQTT_COUNTERS = {
    "published": "Messages that MQTT clients published",
    "delivered": "Messages that went to MQTT clients",
    "dropped": "Deliveries to MQTT clients that were dropped for want of room",
    "denied": "Connections, publishes and subscriptions that were denied",
    "expired": "Messages that expired before their delivery",
    "refused": "Publishes above a limit of which no client could be told",
}
_CHANNEL_GAUGES = ("depth", "in_flight_count", "deferred_count", "client_count")
_CHANNEL_COUNTERS = ("message_count", "requeue_count", "timeout_count")


def metrics_text(snapshot: Snapshot, name: str, version: str, throttling: Throttling, gdrl: tuple[int, int]) -> bytes:
    """``gdrl``: rounds, and messages that made no sense."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily

    class Collector:
        def collect(self) -> Iterator[Metric]:
            yield from metrics(snapshot, name, version)
            yield from _throttling_metrics(throttling)
            yield CounterMetricFamily(
                "srtm_broker_gdrl_rounds", "Rounds in which it asked another broker for tokens", gdrl[0]
            )
            yield CounterMetricFamily(
                "srtm_broker_gdrl_nonsense", "Offers, answers and credits of other brokers that made none", gdrl[1]
            )

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return generate_latest(registry)


def metrics(snapshot: Snapshot, name: str, version: str) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    info = GaugeMetricFamily("srtm_broker_info", "Always 1", labels=["name", "version"])
    info.add_metric([name, version], 1)
    yield info
    yield GaugeMetricFamily("srtm_broker_connections", "Open TCP connections", snapshot.connections)
    yield GaugeMetricFamily("srtm_broker_http_connections", "Open HTTP connections", snapshot.http_connections)
    yield GaugeMetricFamily("srtm_broker_memory_bytes", "Bytes of queued messages", snapshot.memory_bytes)
    yield GaugeMetricFamily("srtm_broker_max_memory_bytes", "Bound of the above", snapshot.max_memory_bytes)
    yield GaugeMetricFamily("srtm_broker_accepting", "1 while publishes are accepted", int(snapshot.accepting))
    yield CounterMetricFamily("srtm_broker_accepted_connections", "TCP connections since start", snapshot.accepted)
    yield CounterMetricFamily(
        "srtm_broker_accept_failures",
        "Times that no descriptor or memory was left for a connection that waited",
        snapshot.accept_failures,
    )
    yield CounterMetricFamily(
        "srtm_broker_timestamp_fallbacks",
        "Reads with publishes without a kernel time stamp",
        snapshot.timestamp_fallbacks,
    )
    yield from _limit_metrics(snapshot)
    yield GaugeMetricFamily(
        "srtm_broker_lab_service_seconds",
        "Service time of the laboratory's virtual server; 0: there is none",
        snapshot.lab_service_time_ns * 1e-9,
    )
    yield from _arrival_metrics(snapshot)
    yield from _mqtt_metrics(snapshot.mqtt)
    yield from _topic_metrics(snapshot.topics)
    yield from _bucket_metrics([(topic.topic_name, topic.bucket) for topic in snapshot.topics if topic.bucket])
    yield from _channel_metrics(
        [(topic.topic_name, channel) for topic in snapshot.topics for channel in topic.channels]
    )
    yield from _latency_metrics(snapshot.topics)


def _throttling_metrics(throttling: Throttling) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if throttling.quota_cores is not None:
        yield GaugeMetricFamily("srtm_broker_cpu_quota_cores", "CPU quota of the control group", throttling.quota_cores)
    yield GaugeMetricFamily(
        "srtm_broker_cpu_throttled_share",
        "Of the quota's periods in the last seconds, those in which it was used up",
        throttling.throttled_share,
    )
    yield CounterMetricFamily(
        "srtm_broker_cpu_throttled_seconds", "Held back by the quota since start", throttling.throttled_s
    )
    yield GaugeMetricFamily(
        "srtm_broker_cpu_steal_share",
        "Of all processors' time in the last seconds, what the host gave to others",
        throttling.steal_share,
    )


def _limit_metrics(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    met = CounterMetricFamily("srtm_broker_limits_met", "Times that clients met a limit", labels=["limit"])
    for setting, count in snapshot.limits_met.items():
        met.add_metric([setting], count)
    yield met
    yield CounterMetricFamily(
        "srtm_broker_postponements",
        "Times that the rest of what a connection sent waited for the next turn",
        snapshot.postponements,
    )
    yield GaugeMetricFamily(
        "srtm_broker_unfinished_bytes", "Bytes of commands that are not whole yet", snapshot.unfinished_bytes
    )
    yield GaugeMetricFamily(
        "srtm_broker_unread_bytes", "Bytes of output that clients do not read", snapshot.unread_bytes
    )


def _arrival_metrics(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    yield CounterMetricFamily("srtm_broker_publish_reads", "Reads that brought publishes", snapshot.publish_reads)
    yield CounterMetricFamily(
        "srtm_broker_merged_reads",
        "Reads with a publish that took the stamp of later bytes",
        snapshot.merged_reads,
    )
    yield GaugeMetricFamily(
        "srtm_broker_timestamp_bias_max_seconds",
        "Largest bound of what such a stamp was too late",
        snapshot.timestamp_bias_max_ns * 1e-9,
    )
    yield CounterMetricFamily(
        "srtm_broker_packet_fallbacks",
        "Reads of the NSQ and HTTP ports that took the kernel's stamp although packets count",
        snapshot.packet_fallbacks,
    )
    yield CounterMetricFamily(
        "srtm_broker_packets_lost", "Packets that the ring of the packet clock had no room for", snapshot.packets_lost
    )
    yield CounterMetricFamily("srtm_broker_clock_steps", "Steps of the wall clock", snapshot.clock_steps)
    yield CounterMetricFamily(
        "srtm_broker_stamps_corrected",
        "Stamps from outside the time in which their bytes can have come",
        snapshot.stamps_corrected,
    )


def _mqtt_metrics(mqtt: Mqtt | None) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if mqtt is None:
        return
    for field, text in _MQTT_GAUGES.items():
        yield GaugeMetricFamily(f"srtm_mqtt_{field}", text, getattr(mqtt, field))
    for field, text in _MQTT_COUNTERS.items():
        yield CounterMetricFamily(f"srtm_mqtt_{field}", text, getattr(mqtt, field))


def _topic_metrics(topics: list[Topic]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    depth = GaugeMetricFamily("srtm_topic_depth", "Messages that wait in the topic itself", labels=["topic"])
    for topic in topics:
        depth.add_metric([topic.topic_name], topic.depth)
    yield depth
    for field, text in _TOPIC_COUNTERS.items():
        counter = CounterMetricFamily(f"srtm_topic_{field}", text, labels=["topic"])
        for topic in topics:
            counter.add_metric([topic.topic_name], getattr(topic, field))
        yield counter


def _bucket_metrics(buckets: list[tuple[str, Bucket]]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for field, text in _BUCKET_COUNTERS.items():
        counter = CounterMetricFamily(f"srtm_topic_{field}", text, labels=["topic"])
        for topic, bucket in buckets:
            counter.add_metric([topic], getattr(bucket, field))
        yield counter
    for field, (name, text, unit) in _BUCKET_GAUGES.items():
        gauge = GaugeMetricFamily(f"srtm_bucket_{name}", text, labels=["topic"])
        for topic, bucket in buckets:
            gauge.add_metric([topic], getattr(bucket, field) * unit)
        yield gauge


def _channel_metrics(channels: list[tuple[str, Channel]]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    families: list[tuple[str, CounterMetricFamily | GaugeMetricFamily]] = []
    for field in _CHANNEL_GAUGES:
        name = f"srtm_channel_{field.removesuffix('_count')}"
        families.append((field, GaugeMetricFamily(name, "As in /stats", labels=["topic", "channel"])))
    for field in _CHANNEL_COUNTERS:
        name = f"srtm_channel_{field.removesuffix('_count')}s"
        families.append((field, CounterMetricFamily(name, "As in /stats", labels=["topic", "channel"])))
    for field, family in families:
        for topic, channel in channels:
            family.add_metric([topic, channel.channel_name], getattr(channel, field))
        yield family


def _latency_metrics(topics: list[Topic]) -> Iterator[Metric]:
    """Percentiles of the last 60 s as gauges: they cannot be averaged, which a summary would invite to."""
    from prometheus_client.core import GaugeMetricFamily

    gauge = GaugeMetricFamily(
        "srtm_topic_latency_seconds", "Latency over the last 60 s", labels=["topic", "kind", "quantile"]
    )
    for topic in topics:
        for kind in Latencies.__struct_fields__:
            latency = getattr(topic.latency.last_60s, kind)
            for quantile, field in _QUANTILES.items():
                gauge.add_metric([topic.topic_name, kind, quantile], getattr(latency, field) * 1e-9)
    yield gauge
