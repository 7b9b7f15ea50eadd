"""``/metrics``: the snapshot as Prometheus metrics. Imports prometheus-client (50 ms) at the first scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING

from broker.snapshot import Bucket, Channel, Contract, Mqtt, MqttTopic, Snapshot, Topic
from broker.stats import latency_buckets
from broker.stats.latency_buckets import TopicBuckets
from broker.stats.mqtt_channels import channel_name
from srtm.version import __version__

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from srtm.control import Throttling

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
_MQTT_TOPIC_GAUGES = {
    "depth": ("depth", "Messages of QoS 1 and 2 that wait for sessions and shared groups"),
    "in_flight": ("in_flight", "Messages that MQTT clients have not acknowledged"),
    "holders": ("clients", "Sessions that were given messages of QoS 1 and 2, or members of a shared group"),
}
_MQTT_TOPIC_COUNTERS = {
    "messages": "Messages of QoS 1 and 2 that were given to sessions and shared groups",
    "dropped": "Deliveries to MQTT clients that were dropped for want of room",
    "full": "Of these, as many messages waited for the session or the group as may",
}
_MQTT_PUBLISH_COUNTERS = {
    "refused": "Publishes by MQTT that were not taken; their client was told, or its connection ended",
    "dropped": "Publishes by MQTT that were not taken, without a word to the client",
}
_CONTRACT_COUNTERS = {
    "allowed": "Publishes that passed a contract",
    "refused": "Publishes that a policy of a contract refused; under a shadow contract they passed",
    "cost": "Messages that passed a contract",
}
_CHANNEL_GAUGES = {
    "depth": ("depth", "Messages that wait in the channel"),
    "in_flight_count": ("in_flight", "Messages that consumers hold"),
    "deferred_count": ("deferred", "Messages that wait for their time"),
    "client_count": ("clients", "Consumers"),
}
_CHANNEL_COUNTERS = {
    "message_count": ("messages", "Messages that came to the channel"),
    "requeue_count": ("requeues", "Messages that consumers gave back"),
    "timeout_count": ("timeouts", "Messages that no consumer finished in time"),
}


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """What one scrape shows. ``metrics_topics``: topics, and channels, that have series of their own;
    ``metrics_contracts``: contracts."""

    name: str  # of the broker
    snapshot: Snapshot
    take_buckets: Callable[[Sequence[str]], list[TopicBuckets]]
    metrics_topics: int
    metrics_contracts: int
    throttling: Throttling
    gdrl_rounds: int
    gdrl_nonsense: int
    is_healthy: bool
    contracts: Sequence[Contract]
    take_disk: Callable[[], tuple[int, int] | None]  # bytes of the data path's file system, and free ones


def exposition(scrape: Scrape) -> Iterator[bytes]:
    """The text in portions, one a metric, or one a topic of the histograms."""
    from srtm.web.exposition import family_text

    shown = busiest(scrape.snapshot.topics, scrape.metrics_topics)
    for family in _metrics(scrape, shown):
        yield family_text(family)
    buckets = scrape.take_buckets([topic.topic_name for topic in shown])
    yield family_text(_late_metric(buckets))
    yield from latency_buckets.text(buckets)


def busiest(topics: Sequence[Topic], most: int) -> list[Topic]:
    """The topics with the most deliveries in the last 60 s, of equals those that more has come to since the start."""
    return nlargest(most, topics, key=lambda topic: (topic.latency.last_60s.total.count, topic.received))


def _metrics(scrape: Scrape, shown: list[Topic]) -> Iterator[Metric]:
    from srtm.web.exposition import left_out, service_metrics

    topics, most = scrape.snapshot.topics, scrape.metrics_topics
    channels = [(topic.topic_name, channel) for topic in shown for channel in topic.channels]
    busy_channels = nlargest(most, channels, key=lambda pair: pair[1].message_count)
    yield from service_metrics("broker")
    yield from _broker_metrics(scrape)
    yield from _throttling_metrics(scrape.throttling)
    contracts = nlargest(scrape.metrics_contracts, scrape.contracts, key=_asked)
    yield from _contract_metrics(contracts)
    yield from _mqtt_metrics(scrape.snapshot.mqtt)
    held = scrape.snapshot.mqtt_topics
    yield from _mqtt_topic_metrics(nlargest(most, held, key=lambda one: one.messages))
    yield from _mqtt_publish_metrics([topic for topic in shown if any(topic.mqtt_refused + topic.mqtt_dropped)])
    left = {
        "topic": len(topics) - len(shown),
        "channel": sum(len(t.channels) for t in topics) - len(busy_channels),
        "contract": len(scrape.contracts) - len(contracts),
    }
    yield left_out(left)
    yield from _topic_metrics(shown)
    yield from _bucket_metrics([(topic.topic_name, topic.bucket) for topic in shown if topic.bucket])
    yield from _channel_metrics(busy_channels)


def _broker_metrics(scrape: Scrape) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

    snapshot = scrape.snapshot
    yield InfoMetricFamily("srtm_broker", "Always 1", value={"name": scrape.name, "version": __version__})
    yield GaugeMetricFamily("srtm_broker_healthy", "1 while it can write what it has to", int(scrape.is_healthy))
    disk = scrape.take_disk()
    if disk is not None:
        yield GaugeMetricFamily("srtm_broker_disk_bytes", "Size of the data path's file system", disk[0])
        yield GaugeMetricFamily("srtm_broker_disk_free_bytes", "What is free of it", disk[1])
    yield CounterMetricFamily(
        "srtm_broker_gdrl_rounds", "Rounds in which it asked another broker for tokens", scrape.gdrl_rounds
    )
    yield CounterMetricFamily(
        "srtm_broker_gdrl_nonsense", "Offers, answers and credits of other brokers that made none", scrape.gdrl_nonsense
    )
    yield GaugeMetricFamily("srtm_broker_topics", "Topics", len(snapshot.topics))
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


def _throttling_metrics(throttling: Throttling) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if throttling.quota_cores is not None:
        yield GaugeMetricFamily("srtm_broker_cpu_quota_cores", "CPU quota of the control group", throttling.quota_cores)
    yield GaugeMetricFamily(
        "srtm_broker_cpu_throttled_ratio",
        "Of the quota's periods in the last seconds, those in which it was used up",
        throttling.throttled_share,
    )
    yield CounterMetricFamily(
        "srtm_broker_cpu_throttled_seconds", "Held back by the quota since start", throttling.throttled_s
    )
    yield GaugeMetricFamily(
        "srtm_broker_cpu_steal_ratio",
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


def _asked(contract: Contract) -> int:
    """How often: each question counts at every policy."""
    return max((policy.allowed + policy.refused for policy in contract.policies), default=0)


def _contract_metrics(contracts: Sequence[Contract]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for field, text in _CONTRACT_COUNTERS.items():
        family = CounterMetricFamily(f"srtm_broker_contract_{field}", text, labels=["namespace", "subject", "policy"])
        for contract in contracts:
            for policy in contract.policies:
                family.add_metric([contract.namespace, contract.subject, policy.name], getattr(policy, field))
        yield family


def _mqtt_metrics(mqtt: Mqtt | None) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    if mqtt is None:
        return
    for field, text in _MQTT_GAUGES.items():
        yield GaugeMetricFamily(f"srtm_mqtt_{field}", text, getattr(mqtt, field))
    for field, text in _MQTT_COUNTERS.items():
        yield CounterMetricFamily(f"srtm_mqtt_{field}", text, getattr(mqtt, field))


def _mqtt_topic_metrics(topics: Sequence[MqttTopic]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for field, (name, text) in _MQTT_TOPIC_GAUGES.items():
        gauge = GaugeMetricFamily(f"srtm_mqtt_topic_{name}", text, labels=["topic", "channel"])
        for topic in topics:
            gauge.add_metric([topic.topic, channel_name(topic)], getattr(topic, field))
        yield gauge
    for field, text in _MQTT_TOPIC_COUNTERS.items():
        counter = CounterMetricFamily(f"srtm_mqtt_topic_{field}", text, labels=["topic", "channel"])
        for topic in topics:
            counter.add_metric([topic.topic, channel_name(topic)], getattr(topic, field))
        yield counter


def _mqtt_publish_metrics(topics: Sequence[Topic]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    for field, text in _MQTT_PUBLISH_COUNTERS.items():
        counter = CounterMetricFamily(f"srtm_mqtt_publishes_{field}", text, labels=["topic", "qos"])
        for topic in topics:
            for qos, count in enumerate(getattr(topic, f"mqtt_{field}")):
                counter.add_metric([topic.topic_name, str(qos)], count)
        yield counter


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
    for make, rows in ((GaugeMetricFamily, _CHANNEL_GAUGES), (CounterMetricFamily, _CHANNEL_COUNTERS)):
        for field, (name, text) in rows.items():
            families.append((field, make(f"srtm_channel_{name}", text, labels=["topic", "channel"])))
    for field, family in families:
        for topic, channel in channels:
            family.add_metric([topic, channel.channel_name], getattr(channel, field))
        yield family


def _late_metric(topics: Sequence[TopicBuckets]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    what = "Messages whose access and processing together took longer than the topic promises"
    late = CounterMetricFamily("srtm_topic_late", what, labels=["topic"])
    for topic in topics:
        late.add_metric([topic.topic], topic.late)
    return late
