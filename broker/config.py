"""Settings of a broker: what the engine is told, and what the service needs besides. All defaults are nsqd's unless the line says why not."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Made by ``broker.service``, read once by ``srtm._native.Engine`` (as JSON). The fields are those of docs/architecture.md."""

    tcp_address: str = "127.0.0.1:4150"  # loopback, where nsqd has all addresses: nothing is exposed by accident
    node_id: int = 0
    version: str = "1.3.0"
    max_rdy_count: int = 2500
    msg_timeout_ms: int = 60_000
    max_msg_timeout_ms: int = 900_000
    max_req_timeout_ms: int = 3_600_000
    max_msg_size: int = 1_048_576
    max_body_size: int = 5_242_880
    heartbeat_interval_ms: int = 30_000
    max_heartbeat_interval_ms: int = 60_000
    output_buffer_size: int = 16_384
    max_output_buffer_size: int = 65_536
    output_buffer_timeout_ms: int = 250
    min_output_buffer_timeout_ms: int = 25
    max_output_buffer_timeout_ms: int = 30_000
    max_channel_consumers: int = 0
    max_memory_bytes: int = 1 << 30
    trace_entries: int = 1_000_000
    hold_new_topics: bool = False
    accepting: bool = True
    not_accepting_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """Everything that ``srtm broker`` takes, parsed."""

    name: str
    tcp_address: str = "127.0.0.1:4150"
    http_address: str = "127.0.0.1:4151"
    data_path: str = "."
    mcap: float = 0.0  # msg/s; 0: not stated
    distributors: tuple[str, ...] = ()  # none: a broker alone
    lookupd_tcp_addresses: tuple[str, ...] = ()
    broadcast_address: str | None = None  # None: the host of tcp_address, or the host name where that is a wildcard
    max_memory_bytes: int = 1 << 30
    trace_entries: int = 1_000_000
    token: str | None = field(default=None, repr=False)
    engine: EngineConfig = EngineConfig()
