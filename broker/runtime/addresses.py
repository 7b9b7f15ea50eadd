"""The addresses that a broker listens on, and those that it tells others to connect to."""

from __future__ import annotations

from typing import NamedTuple

from broker.config import BrokerConfig, EngineConfig
from srtm.net.address import format_address, is_socket_path, parse_address


class Ports(NamedTuple):
    """-1: a Unix socket, or off, as nsqd shows it."""

    tcp: int
    http: int
    https: int
    mqtt: int
    mqtts: int
    mqtt_ws: int
    mqtt_wss: int


class BoundAddresses(NamedTuple):
    """HOST:PORT with the real ports, the path of a Unix socket, or "" for off."""

    tcp: str
    http: str
    https: str
    mqtt: str
    mqtts: str
    mqtt_ws: str
    mqtt_wss: str


def bound_addresses(settings: EngineConfig, ports: Ports) -> BoundAddresses:
    """The configured addresses with their real ports."""
    return BoundAddresses(
        _with_port(settings.tcp_address, ports.tcp),
        _with_port(settings.http_address, ports.http),
        _with_port(settings.https_address, ports.https),
        _with_port(settings.mqtt_address, ports.mqtt),
        _with_port(settings.mqtts_address, ports.mqtts),
        _with_port(settings.mqtt_ws_address, ports.mqtt_ws),
        _with_port(settings.mqtt_wss_address, ports.mqtt_wss),
    )


def broadcast_address(config: BrokerConfig, hostname: str) -> str:
    """The host that others connect to."""
    if config.broadcast_address or is_socket_path(config.tcp_address):
        return config.broadcast_address or hostname
    host, _ = parse_address("tcp_address", config.tcp_address)
    return hostname if host in ("0.0.0.0", "::") else host


def _with_port(address: str, port: int) -> str:
    return address if port == -1 else format_address(parse_address("address", address)[0], port)
