"""``/stats`` as nsqd gives it (protocol section 14): the engine's snapshot in nsqd's names and order. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.snapshot import Bucket, Channel, Client, EndToEnd, Snapshot, Topic

_NS_PER_S = 10**9
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
    shares: Sequence[float] = (),
) -> dict[str, object]:
    """``shares``: the percentiles that are kept of publish to FIN."""
    topics = selected(snapshot, topic, channel)
    shown = [_topic_json(found, channel, include_clients, shares) for found in topics]
    answer: dict[str, object] = {
        "version": version,
        "health": health,
        "start_time": start_wall_ns // _NS_PER_S,
        "topics": shown if shown or not topic else None,
    }
    if include_mem:
        answer["memory"] = go_memory(snapshot)
    producers = [client_json(client) for client in snapshot.producers] if include_clients else []
    answer["producers"] = producers or None
    return answer


def go_memory(snapshot: Snapshot) -> dict[str, int]:
    """The only heap that counts here is the engine's; there is no Go runtime behind the other names."""
    return {**dict.fromkeys(_GO_MEMORY, 0), "heap_in_use_bytes": snapshot.memory_bytes}


def selected(snapshot: Snapshot, topic: str, channel: str) -> list[Topic]:
    """Sorted by name; a ``channel`` drops the topics without it."""
    return [
        found
        for found in sorted(snapshot.topics, key=lambda found: found.topic_name)
        if topic in ("", found.topic_name) and (not channel or any(c.channel_name == channel for c in found.channels))
    ]


def _channels(topic: Topic, channel: str) -> list[Channel]:
    wanted = [found for found in topic.channels if channel in ("", found.channel_name)]
    return sorted(wanted, key=lambda found: found.channel_name)


def _topic_json(topic: Topic, channel: str, include_clients: bool, shares: Sequence[float]) -> dict[str, object]:
    return {
        "topic_name": topic.topic_name,
        "channels": [_channel_json(found, include_clients, shares) for found in _channels(topic, channel)],
        "depth": topic.depth,
        "backend_depth": topic.backend_depth,
        "message_count": topic.message_count,
        "message_bytes": topic.message_bytes,
        "paused": topic.paused,
        "e2e_processing_latency": _end_to_end_json(topic.e2e, shares),
        **({"bucket": _bucket_json(topic.bucket)} if topic.bucket else {}),
    }


def _end_to_end_json(measured: EndToEnd | None, shares: Sequence[float]) -> dict[str, object]:
    """Always an object: nsqadmin crashes on null."""
    if measured is None or not measured.count:
        return {"count": 0, "percentiles": None}
    pairs = zip(shares, measured.values_ns, strict=True)
    return {"count": measured.count, "percentiles": [{"quantile": share, "value": value} for share, value in pairs]}


def _bucket_json(bucket: Bucket) -> dict[str, object]:
    """Ours; tools of nsqd's pass over it. Rates in msg/s, bursts and fills in messages."""
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


def _channel_json(channel: Channel, include_clients: bool, shares: Sequence[float]) -> dict[str, object]:
    return {
        "channel_name": channel.channel_name,
        "depth": channel.depth,
        "backend_depth": channel.backend_depth,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "message_count": channel.message_count,
        **_nearness_json(channel),
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": channel.client_count,
        "clients": [client_json(client) for client in channel.clients] if include_clients else None,
        "paused": channel.paused,
        "e2e_processing_latency": _end_to_end_json(channel.e2e, shares),
    }


def _nearness_json(channel: Channel) -> dict[str, int]:
    """Without what is 0, as nsqd leaves it out."""
    names = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
    return {name: getattr(channel, name) for name in names if getattr(channel, name)}


def client_json(client: Client) -> dict[str, object]:
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
    if client.pub_counts:
        answer["pub_counts"] = [{"topic": pub.topic, "count": pub.count} for pub in client.pub_counts]
    return answer | {
        "tls": client.tls,
        "tls_cipher_suite": client.tls_cipher_suite,
        "tls_version": client.tls_version,
        "tls_negotiated_protocol": client.tls_negotiated_protocol,
        "tls_negotiated_protocol_is_mutual": client.tls_negotiated_protocol_is_mutual,
    }


def _auth_json(client: Client) -> dict[str, object]:
    """Without what is empty, as nsqd leaves it out."""
    said = {
        "authed": client.authed,
        "auth_identity": client.auth_identity,
        "auth_identity_url": client.auth_identity_url,
    }
    return {name: value for name, value in said.items() if value}


def stats_text(
    snapshot: Snapshot,
    version: str,
    health: str,
    start_wall_ns: int,
    *,
    topic: str = "",
    channel: str = "",
    include_mem: bool = True,
    shares: Sequence[float] = (),
) -> str:
    """For people: ``*P`` marks what is paused, ``be-depth`` is what of the depth is on disk."""
    up_s = (snapshot.wall_ns - start_wall_ns) // _NS_PER_S
    lines = [
        f"nsqd v{version} (SRTM)",
        f"start_time {start_wall_ns // _NS_PER_S}",
        f"uptime {up_s}s",
        "",
        f"Health: {health}",
        "",
    ]
    if include_mem:
        lines += [f"Memory: {snapshot.memory_bytes} of {snapshot.max_memory_bytes} bytes", ""]
    lines.append("Topics:")
    for found in selected(snapshot, topic, channel):
        lines += _topic_lines(found, channel, shares)
    lines += ["", "Producers:", *_client_lines(snapshot.producers)]
    return "\n".join(lines) + "\n"


def _topic_lines(topic: Topic, channel: str, shares: Sequence[float]) -> list[str]:
    lines = [
        f"   {_mark(topic.paused)} [{topic.topic_name:<15}] depth: {topic.depth:<5}"
        f" be-depth: {topic.backend_depth:<5} msgs: {topic.message_count:<8} bytes: {topic.message_bytes}"
        f"{_end_to_end_text(topic.e2e, shares)}"
    ]
    if topic.bucket:
        lines.append(_bucket_line(topic.bucket))
    for found in _channels(topic, channel):
        lines.append(
            f"      {_mark(found.paused)} [{found.channel_name:<25}] depth: {found.depth:<5}"
            f" be-depth: {found.backend_depth:<5} inflt: {found.in_flight_count:<4}"
            f" def: {found.deferred_count:<4} re-q: {found.requeue_count:<5}"
            f" timeout: {found.timeout_count:<5} msgs: {found.message_count}"
            f"{_end_to_end_text(found.e2e, shares)}"
        )
        lines += _client_lines(found.clients)
    return lines


def _end_to_end_text(measured: EndToEnd | None, shares: Sequence[float]) -> str:
    if measured is None or not measured.count:
        return ""
    pairs = zip(shares, measured.values_ns, strict=True)
    return " e2e: " + ", ".join(f"{share * 100:g}%: {value / 1e6:.3f}ms" for share, value in pairs)


def _bucket_line(bucket: Bucket) -> str:
    return (
        f"      bucket: {bucket.rate_micro * 1e-6:g} msg/s, fill: {bucket.fill:.6g} of {bucket.burst_micro * 1e-6:g}"
        f" wait: {bucket.backlog} of {bucket.max_backlog} delayed: {bucket.delayed} rejected: {bucket.rejected}"
    )


def _client_lines(clients: Iterable[Client]) -> list[str]:
    return [
        f"         [{client.client_id} {client.remote_address}] state: {client.state} inflt: {client.in_flight_count}"
        f" rdy: {client.ready_count} fin: {client.finish_count} re-q: {client.requeue_count}"
        f" msgs: {client.message_count}"
        for client in clients
    ]


def _mark(paused: bool) -> str:
    return "*P" if paused else "  "
