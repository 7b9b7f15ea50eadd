"""``/stats`` as nsqd answers it (protocol section 14): the engine's snapshot in nsqd's names and order. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from broker.snapshot import Bucket, Channel, Client, Contract, EndToEnd, PubCount, Snapshot, Topic

NS_PER_S = 10**9
_GO_MEMORY = (
    "heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes", "gc_pause_usec_100",
    "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes", "gc_total_runs",
)  # fmt: skip


def stats_json(
    snapshot: Snapshot,
    version: str,
    health: str,
    start_wall_ns: int,
    *,
    topic: str = "",
    channel: str = "",
    include_clients: bool = True,
    include_mem: bool = True,
    percentiles: Sequence[float] = (),
    contracts: Sequence[Contract] = (),
    mqtt: bytes | None = None,
) -> dict[str, object]:
    """``percentiles`` are those kept of publish to FIN. An unknown ``topic`` hides the producers. ``mqtt``: MQTT's
    sessions as JSON, if they were asked for."""
    topics = selected(snapshot, topic, channel)
    shown = [_topic_json(found, channel, include_clients, percentiles, topic) for found in topics]
    answer: dict[str, object] = {
        "version": version,
        "health": health,
        "start_time": start_wall_ns // NS_PER_S,
        "topics": shown if is_known(snapshot, topic) else None,
    }
    if include_mem:
        answer["memory"] = go_memory(snapshot)
    producers = shown_producers(snapshot, topic, include_clients=include_clients)
    answer["producers"] = [client_json(client, topic) for client in producers] or None
    if contracts:  # an addition to nsqd's fields
        answer["contracts"] = [msgspec.to_builtins(contract) for contract in contracts]
    if mqtt is not None:
        answer["mqtt"] = msgspec.Raw(mqtt)
    return answer


def go_memory(snapshot: Snapshot) -> dict[str, int]:
    """The engine's memory under nsqd's names; the other figures are of a Go runtime and 0 here."""
    return {**dict.fromkeys(_GO_MEMORY, 0), "heap_in_use_bytes": snapshot.memory_bytes}


def selected(snapshot: Snapshot, topic: str, channel: str) -> list[Topic]:
    """Topics by name. ``channel`` drops topics without it."""
    return [
        found
        for found in sorted(snapshot.topics, key=lambda found: found.topic_name)
        if topic in ("", found.topic_name) and (not channel or any(c.channel_name == channel for c in found.channels))
    ]


def is_known(snapshot: Snapshot, topic: str) -> bool:
    """ "" stands for any topic."""
    return not topic or any(found.topic_name == topic for found in snapshot.topics)


def shown_producers(snapshot: Snapshot, topic: str, *, include_clients: bool) -> list[Client]:
    """An unknown ``topic`` hides them."""
    return snapshot.producers if include_clients and is_known(snapshot, topic) else []


def channels_of(topic: Topic, channel: str) -> list[Channel]:
    wanted = [found for found in topic.channels if channel in ("", found.channel_name)]
    return sorted(wanted, key=lambda found: found.channel_name)


def _topic_json(
    topic: Topic, channel: str, include_clients: bool, percentiles: Sequence[float], published_to: str
) -> dict[str, object]:
    return {
        "topic_name": topic.topic_name,
        "channels": [
            _channel_json(found, include_clients, percentiles, published_to) for found in channels_of(topic, channel)
        ],
        "depth": topic.depth,
        "backend_depth": topic.backend_depth,
        "message_count": topic.message_count,
        "message_bytes": topic.message_bytes,
        "paused": topic.paused,
        "e2e_processing_latency": _end_to_end_json(measured_of(topic), percentiles),
        **({"bucket": _bucket_json(topic.bucket)} if topic.bucket else {}),
        **_untaken_json(topic),
    }


def _untaken_json(topic: Topic) -> dict[str, list[int]]:
    """Publishes by MQTT that were not taken, by QoS: an addition to nsqd's fields, without zeros."""
    counts = {"mqtt_refused": topic.mqtt_refused, "mqtt_dropped": topic.mqtt_dropped}
    return {name: list(by_qos) for name, by_qos in counts.items() if any(by_qos)}


def measured_of(topic: Topic) -> EndToEnd | None:
    """None if no channel can have measured anything."""
    return topic.e2e if topic.channels else None


def _end_to_end_json(measured: EndToEnd | None, percentiles: Sequence[float]) -> dict[str, object]:
    """An object even without a measurement: nsqadmin crashes on null."""
    if measured is None:
        return {"count": 0, "percentiles": None}
    pairs = zip(percentiles, measured.values_ns, strict=True)
    return {
        "count": measured.count,
        "percentiles": [{"quantile": quantile, "value": value} for quantile, value in pairs],
    }


def _bucket_json(bucket: Bucket) -> dict[str, object]:
    """An addition to nsqd's fields, which its tools ignore. Rates in msg/s, bursts and fills in messages."""
    return {
        "rate": bucket.rate_micro * 1e-6,
        "burst": bucket.burst_micro * 1e-6,
        "on_excess": "reject" if bucket.reject else "delay",
        "fill": bucket.fill,
        "backlog": bucket.backlog,
        "backlog_bytes": bucket.backlog_bytes,
        "max_backlog": bucket.max_backlog,
        "max_backlog_bytes": bucket.max_backlog_bytes,
        "delayed": bucket.delayed,
        "rejected": bucket.rejected,
    }


def _channel_json(
    channel: Channel, include_clients: bool, percentiles: Sequence[float], published_to: str
) -> dict[str, object]:
    return {
        "channel_name": channel.channel_name,
        "depth": channel.depth,
        "backend_depth": channel.backend_depth,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "message_count": channel.message_count,
        **_nearness_json(channel),
        **({"dropped": channel.dropped} if channel.dropped else {}),  # an addition, without zeros likewise
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": channel.client_count,
        "clients": [client_json(client, published_to) for client in channel.clients] if include_clients else None,
        "paused": channel.paused,
        "e2e_processing_latency": _end_to_end_json(channel.e2e, percentiles),
    }


def _nearness_json(channel: Channel) -> dict[str, int]:
    """Without zeros, as nsqd."""
    names = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
    return {name: getattr(channel, name) for name in names if getattr(channel, name)}


def client_json(client: Client, published_to: str = "") -> dict[str, object]:
    """``published_to`` limits the publish counts to one topic; "": all."""
    answer: dict[str, object] = {
        "client_id": client.client_id,
        "hostname": client.hostname,
        "version": "V2",
        "remote_address": client.remote_address,
        "state": client.state,
        "ready_count": client.ready_count,
        "in_flight_count": client.in_flight_count,
        "message_count": client.message_count,
        "finish_count": client.finish_count,
        "requeue_count": client.requeue_count,
        "connect_ts": client.connect_ts,
        "sample_rate": client.sample_rate,
        "deflate": client.deflate,
        "snappy": client.snappy,
        "user_agent": client.user_agent,
        **_auth_json(client),
        "topology_zone": client.topology_zone,
        "topology_region": client.topology_region,
    }
    counts = pub_counts(client, published_to)
    if counts:
        answer["pub_counts"] = [{"topic": pub.topic, "count": pub.count} for pub in counts]
    return answer | {
        "tls": client.tls,
        "tls_cipher_suite": client.tls_cipher_suite,
        "tls_version": client.tls_version,
        "tls_negotiated_protocol": client.tls_negotiated_protocol,
        "tls_negotiated_protocol_is_mutual": client.tls_negotiated_protocol_is_mutual,
    }


def pub_counts(client: Client, topic: str) -> list[PubCount]:
    return [pub for pub in client.pub_counts if topic in ("", pub.topic)]


def _auth_json(client: Client) -> dict[str, object]:
    """Without empty fields, as nsqd."""
    said = {
        "authed": client.authed,
        "auth_identity": client.auth_identity,
        "auth_identity_url": client.auth_identity_url,
    }
    return {name: value for name, value in said.items() if value}
