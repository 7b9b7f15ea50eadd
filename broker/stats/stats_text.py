"""``/stats`` as text: nsqd's lines, for scripts that read them, and one more line for a topic with a bucket. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from broker.snapshot import Bucket, Channel, Client, EndToEnd, Snapshot, Topic
from broker.stats.stats_json import NS_PER_S, channels_of, go_memory, measured_of, pub_counts, selected, shown_producers


def stats_text(
    snapshot: Snapshot,
    version: str,
    health: str,
    start_wall_ns: int,
    *,
    topic: str = "",
    channel: str = "",
    include_clients: bool = True,
    include_mem: bool = True,
) -> str:
    """``*P`` marks paused entries. ``be-depth`` is the part of the depth on disk. ``e2e%`` is publish to FIN at each
    kept percentile, largest first."""
    now_s = snapshot.wall_ns // NS_PER_S
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start_wall_ns // NS_PER_S))
    lines = [
        f"nsqd v{version} (SRTM)",
        f"start_time {started}",
        f"uptime {_duration(now_s - start_wall_ns // NS_PER_S)}",
        "",
        f"Health: {health}",
    ]
    if include_mem:
        lines += ["", "Memory:", *(f"   {name:<25}\t{value}" for name, value in go_memory(snapshot).items())]
    topics = selected(snapshot, topic, channel)
    lines += ["", "Topics:" if topics else "Topics: None"]
    for number, found in enumerate(topics):
        if number:
            lines.append("")
        lines += _topic_lines(found, channel, topic, now_s)
    producers = shown_producers(snapshot, topic, include_clients=include_clients)
    lines += ["", "Producers:" if producers else "Producers: None"]
    lines += [f"   {_client(client, topic, now_s)}" for client in producers]
    return "\n".join(lines) + "\n"


def _topic_lines(topic: Topic, channel: str, published_to: str, now_s: int) -> Iterator[str]:
    yield (
        f"{_mark(topic.paused)}[{topic.topic_name:<15}] depth: {topic.depth:<5} be-depth: {topic.backend_depth:<5}"
        f" msgs: {topic.message_count:<8} e2e%: {_end_to_end(measured_of(topic))}"
    )
    if topic.bucket:
        yield _bucket_line(topic.bucket)
    for found in channels_of(topic, channel):
        yield _channel_line(found)
        yield from (f"        {_client(client, published_to, now_s)}" for client in found.clients)


def _channel_line(channel: Channel) -> str:
    return (
        f"   {_mark(channel.paused)}[{channel.channel_name:<25}] depth: {channel.depth:<5}"
        f" be-depth: {channel.backend_depth:<5} inflt: {channel.in_flight_count:<4} def: {channel.deferred_count:<4}"
        f" re-q: {channel.requeue_count:<5} timeout: {channel.timeout_count:<5} msgs: {channel.message_count:<8}"
        f" e2e%: {_end_to_end(channel.e2e)}"
    )


def _bucket_line(bucket: Bucket) -> str:
    return (
        f"      bucket: {bucket.rate_micro * 1e-6:g} msg/s, fill: {bucket.fill:.6g} of {bucket.burst_micro * 1e-6:g}"
        f" wait: {bucket.backlog} of {bucket.max_backlog} delayed: {bucket.delayed} rejected: {bucket.rejected}"
    )


def _client(client: Client, published_to: str, now_s: int) -> str:
    """A producer by what it published, any other client by what it consumes."""
    port = client.remote_address.rpartition(":")[2]
    who = f"[V2 {f'{client.hostname}:{port} {client.user_agent}':<21}]"
    connected = f"connected: {_duration(now_s - client.connect_ts)}"
    counts = pub_counts(client, published_to)
    if counts:
        topics = ",".join(f"{pub.topic}={pub.count}" for pub in counts)
        return f"{who} msgs: {sum(pub.count for pub in counts):<8} topics: {topics} {connected}"
    return (
        f"{who} state: {client.state} inflt: {client.in_flight_count:<4} rdy: {client.ready_count:<4}"
        f" fin: {client.finish_count:<8} re-q: {client.requeue_count:<8} msgs: {client.message_count:<8} {connected}"
    )


def _end_to_end(measured: EndToEnd | None) -> str:
    return ", ".join(map(_short, measured.values_ns)) if measured is not None else ""


def _short(value_ns: int) -> str:
    for unit, size_ns in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if value_ns > size_ns:
            return f"{value_ns / size_ns:.1f}{unit}"
    return f"{value_ns:.1f}ns"


def _duration(seconds: int) -> str:
    """As Go writes it: ``1h2m3s``."""
    minutes, left_s = divmod(max(0, seconds), 60)
    hours, left_min = divmod(minutes, 60)
    parts: Iterable[str] = (f"{hours}h",) if hours else ()
    if minutes:
        parts = (*parts, f"{left_min}m")
    return "".join((*parts, f"{left_s}s"))


def _mark(paused: bool) -> str:
    return "*P " if paused else "   "
