"""Flags of the MQTT port."""

from __future__ import annotations

import argparse

from broker.config import EngineConfig
from srtm.errors import BadInput

# {setting of the engine: what it bounds}; each has a flag of its name.
_NUMBERS = {
    "mqtt_max_keep_alive_s": "longest keep alive in seconds, which clients of 5.0 are told; 0: as they wish",
    "mqtt_receive_maximum": "publishes of QoS 2 that a client may leave unreleased",
    "mqtt_max_in_flight": "deliveries of QoS 1 and 2 that a client may leave unacknowledged",
    "mqtt_max_queued": "messages that wait for a session whose client is away or slow",
    "mqtt_max_retained": "messages that are retained",
    "mqtt_max_subscriptions": "subscriptions of a session",
    "mqtt_max_session_expiry_s": "seconds for which a session without a connection is kept",
}


def add_mqtt(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the MQTT port."""
    parser.add_argument(
        "--mqtt-address", default="", metavar="ADDRESS", help="HOST:PORT where MQTT is spoken (default: none)"
    )
    parser.add_argument("--mqtt-allow-anonymous", action="store_true", help="let clients beyond this machine use MQTT")
    parser.add_argument(
        "--mqtt-topic",
        default=EngineConfig().mqtt_topic,
        metavar="NAME",
        help="the topic of MQTT names that are no topic's (default: %(default)s)",
    )
    for name, text in _NUMBERS.items():
        default = str(getattr(EngineConfig(), name))
        parser.add_argument(_flag(name), dest=name, default=default, metavar="N", help=f"{text} (default: %(default)s)")


def mqtt_settings(given: argparse.Namespace) -> dict[str, object]:
    """The engine's settings for MQTT. Raises BadInput."""
    return {"mqtt_topic": given.mqtt_topic} | {name: _whole(name, getattr(given, name)) for name in _NUMBERS}


def _flag(name: str) -> str:
    return "--" + name.removesuffix("_s").replace("_", "-")


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadInput(name, text, "must be a whole number")
    return int(text)
