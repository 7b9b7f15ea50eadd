"""Pushes counters to a statsd by UDP, with nsqd's names (protocol section 16). ``push`` is the task; ``Lines`` and
``packets`` do no I/O."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import trio

from broker.config import StatsdConfig
from broker.snapshot import Channel, EndToEnd, Snapshot, Topic
from broker.stats.stats_json import go_memory, measured_of
from srtm.log import Log
from srtm.net.address import format_address, parse_peer
from srtm.protocol import is_ephemeral

_FOREIGN = re.compile(r"[^.a-zA-Z0-9_#-]")  # what no name of nsqd has, and a statsd may take for a separator
_TOPIC_COUNTERS = ("message_count", "message_bytes")
_TOPIC_GAUGES = ("depth", "backend_depth")
_CHANNEL_COUNTERS = ("message_count", "requeue_count", "timeout_count")
_CHANNEL_GAUGES = ("depth", "backend_depth", "in_flight_count", "deferred_count")


def key_prefix(prefix: str, host: str, http_port: int) -> str:
    """The prefix with ``%s`` replaced by this broker's address."""
    this = format_address(host, http_port).replace(".", "_").replace(":", "_")
    whole = prefix.replace("%s", this)
    return whole if whole.endswith(".") or not whole else f"{whole}."


@dataclass
class Lines:
    """Turns snapshots into lines; a counter is the increase since the snapshot before."""

    prefix: str
    config: StatsdConfig
    percentiles: Sequence[float]  # kept of publish to FIN

    def __post_init__(self) -> None:
        self._counted: dict[str, int] = {}

    def of(self, snapshot: Snapshot) -> list[str]:
        before, self._counted = self._counted, {}
        lines = [line for topic in snapshot.topics for line in self._topic(topic, before)]
        if self.config.mem_stats:
            memory = go_memory(snapshot)
            runs = memory.pop("gc_total_runs")
            lines += [self._gauge(f"mem.{name}", value) for name, value in memory.items()]
            lines.append(self._count("mem.gc_runs", runs, before))
        return lines

    def _topic(self, topic: Topic, before: dict[str, int]) -> Iterator[str]:
        if self.config.exclude_ephemeral and is_ephemeral(topic.topic_name):
            return
        key = f"topic.{topic.topic_name}."
        yield from (self._count(key + name, getattr(topic, name), before) for name in _TOPIC_COUNTERS)
        yield from (self._gauge(key + name, getattr(topic, name)) for name in _TOPIC_GAUGES)
        yield from self._end_to_end(key, measured_of(topic))
        for channel in topic.channels:
            name = _FOREIGN.sub("_", channel.channel_name)  # of a shared group: its client has chosen it
            yield from self._channel(f"{key}channel.{name}.", channel, before)

    def _channel(self, key: str, channel: Channel, before: dict[str, int]) -> Iterator[str]:
        if self.config.exclude_ephemeral and is_ephemeral(channel.channel_name):
            return
        yield from (self._count(key + name, getattr(channel, name), before) for name in _CHANNEL_COUNTERS)
        yield from (self._gauge(key + name, getattr(channel, name)) for name in _CHANNEL_GAUGES)
        yield self._gauge(f"{key}clients", channel.client_count)
        yield from self._end_to_end(key, channel.e2e)

    def _end_to_end(self, key: str, measured: EndToEnd | None) -> Iterator[str]:
        if measured is not None:  # without a FIN so far its values are 0, as nsqd's
            for percentile, value in zip(self.percentiles, measured.values_ns, strict=True):
                yield self._gauge(f"{key}e2e_processing_latency_{percentile * 100:.0f}", value)

    def _gauge(self, name: str, value: int) -> str:
        return f"{self.prefix}{name}:{value}|g\n"

    def _count(self, name: str, total: int, before: dict[str, int]) -> str:
        self._counted[name] = total
        since = total - before.get(name, 0)
        return f"{self.prefix}{name}:{since if since >= 0 else total}|c\n"  # below 0: it is a new one


def packets(lines: Sequence[str], size: int) -> list[bytes]:
    """Whole lines, as many per packet as fit into ``size`` bytes. A longer line has a packet of its own."""
    found: list[bytes] = []
    packet = b""
    for line in lines:
        data = line.encode()
        if packet and len(packet) + len(data) > size:
            found.append(packet)
            packet = b""
        packet += data
    return [*found, packet] if packet else found


async def push(config: StatsdConfig, lines: Lines, take: Callable[[], Snapshot], log: Log) -> None:
    """Push every interval until cancelled, with the packets spread over the interval. A failure is logged once and
    tried again at the next interval."""
    interval_s = config.interval_ms / 1000
    trouble = ""
    next_push = trio.current_time()
    while True:
        next_push += interval_s
        await trio.sleep_until(next_push)
        reason = await _send(config.address, packets(lines.of(take()), config.udp_packet_size), interval_s)
        if reason and reason != trouble:
            log.warning("statsd cannot be reached", address=config.address, reason=reason)
        trouble = reason


async def _send(address: str, waiting: Sequence[bytes], interval_s: float) -> str:
    """The reason if it failed, or ""."""
    host, port = parse_peer("statsd_address", address)
    try:
        ((family, _, _, _, where), *_) = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        with trio.socket.socket(family, socket.SOCK_DGRAM) as udp:
            await udp.connect(where)
            for number, packet in enumerate(waiting):
                await udp.send(packet)
                if number + 1 < len(waiting):
                    await trio.sleep(interval_s / len(waiting))
    except OSError as error:
        return error.strerror or str(error)
    return ""
