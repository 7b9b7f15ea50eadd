"""Flags of the MQTT port."""

from __future__ import annotations

import argparse
import re

from broker.config import MQTT_REDIRECTS, MQTT_WORDS, EngineConfig
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


_WORDS = {
    "mqtt_identity": "by what a publisher is known",
    "mqtt_unmanaged": "whether MQTT names that are no topic's may be used",
    "mqtt_full_session": "what becomes of a publish for which a session that outlives its connection has no room: that "
    "session does not get it, or it is refused",
}

# Who asks for no password must not be open to each page that a browser on this machine shows.
_OWN_PAGES = ("localhost", "127.0.0.1", "[::1]")
_ORIGIN = re.compile(r"(https?://)?([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?")


def add_mqtt(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the MQTT port."""
    parser.add_argument(
        "--mqtt-address", default="", metavar="ADDRESS", help="HOST:PORT where MQTT is spoken (default: none)"
    )
    parser.add_argument(
        "--mqtts-address", default="", metavar="ADDRESS", help="HOST:PORT of MQTT inside TLS, needs a certificate"
    )
    parser.add_argument(
        "--mqtt-ws-address", default="", metavar="ADDRESS", help="HOST:PORT of MQTT in WebSocket, for browsers"
    )
    parser.add_argument(
        "--mqtt-wss-address", default="", metavar="ADDRESS", help="the same inside TLS, needs a certificate"
    )
    parser.add_argument(
        "--mqtt-ws-origin",
        action="append",
        metavar="ORIGIN",
        help="whose pages may use WebSocket: https://HOST[:PORT], a host, or * for all; may be repeated (default: all "
        "where a password or --mqtt-allow-anonymous is given, else those of this machine)",
    )
    parser.add_argument(
        "--mqtt-allow-anonymous", action="store_true", help="let clients in that do not say who they are, from anywhere"
    )
    parser.add_argument(
        "--mqtt-redirect",
        default="known",
        metavar="|".join(MQTT_REDIRECTS),
        help="whether clients that follow are told which broker their topic is at (default: %(default)s)",
    )
    parser.add_argument(
        "--mqtt-password-file", metavar="FILE", help="users of MQTT, NSQ and HTTP, as mosquitto_passwd writes them"
    )
    parser.add_argument(
        "--mqtt-acl-file", metavar="FILE", help="who may do what by MQTT, NSQ and HTTP, as in Mosquitto's acl_file"
    )
    for name, text in _WORDS.items():
        words, default = "|".join(MQTT_WORDS[name]), getattr(EngineConfig(), name)
        parser.add_argument(_flag(name), default=default, metavar=words, help=f"{text} (default: %(default)s)")
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
    numbers = {name: _whole(name, getattr(given, name)) for name in _NUMBERS}
    words = {name: getattr(given, name) for name in ("mqtt_topic", *_WORDS)}
    origins = _origins(given.mqtt_ws_origin, asks_nobody=not (given.mqtt_password_file or given.mqtt_allow_anonymous))
    return words | {"mqtt_ws_origins": origins} | numbers


def _origins(given: list[str] | None, *, asks_nobody: bool) -> tuple[str, ...] | None:
    """Whose pages may use WebSocket; None: all. Raises BadInput."""
    if given is None:
        return _OWN_PAGES if asks_nobody else None
    for origin in given:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise BadInput("mqtt_ws_origin", origin, "must be https://HOST[:PORT] without a path, a host, or *")
    return None if "*" in given else tuple(given)


def _flag(name: str) -> str:
    return "--" + name.removesuffix("_s").replace("_", "-")


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadInput(name, text, "must be a whole number")
    return int(text)
