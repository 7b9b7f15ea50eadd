"""The options of ``srtm broker``, a row each: flag, what its help says, how its word is read, which setting it is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.config import (
    ARRIVAL_CLOCKS,
    MQTT_REDIRECTS,
    MQTT_WORDS,
    TLS_REQUIRED,
    TLS_VERSIONS,
    BrokerConfig,
    EngineConfig,
)
from srtm.errors import BadInput
from srtm.log import FORMATS, LEVELS
from srtm.settings.service_file import FILE_VARIABLE
from srtm.text import read_duration_ns

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_ENGINE = EngineConfig()

Read = Callable[[str, Any], Any]  # the option's name and its value -> the setting's value; raises BadInput


def given(_name: str, value: Any) -> Any:
    """The value as it is."""
    return value


def several(_name: str, values: list[str]) -> tuple[str, ...]:
    """All values of an option that may be repeated."""
    return tuple(values)


def number(name: str, text: str) -> float:
    """Any finite number. Raises BadInput."""
    try:
        value = float(text)
    except ValueError:
        raise BadInput(name, text, "must be a number") from None
    if not math.isfinite(value):
        raise BadInput(name, text, "must be a finite number")
    return value


def thousandths(name: str, text: str) -> int:
    """A number in thousandths, such as the ms of so many s. Raises BadInput."""
    return round(number(name, text) * 1000)


def whole(name: str, text: str) -> int:
    """Digits. Raises BadInput."""
    if not (text.isascii() and text.isdigit()):
        raise BadInput(name, text, "must be a whole number")
    return int(text)


def size(name: str, text: str) -> int:
    """``1073741824``, ``64k``, ``512m``, ``1G``, ``1GiB``: powers of 1024. Raises BadInput."""
    match = re.fullmatch(r"([0-9]{1,30})([kmg]?)(?:i?b)?", text.lower(), re.ASCII)
    if match is None:
        raise BadInput(name, text, "must be a whole number, optionally with k, m or g (1024, 1024^2, 1024^3)")
    return int(match[1]) * _UNITS[match[2]]


def duration_ms(name: str, text: str) -> int:
    """``2s``, ``250ms``, ``1m``: as nsqd writes them; parts of a millisecond count as one. Raises BadInput."""
    try:
        return -(-read_duration_ns(text) // 10**6)
    except ValueError as error:
        raise BadInput(name, text, str(error)) from None


@dataclass(frozen=True)
class Row:
    """An option."""

    name: str  # without dashes in front
    value: str | None  # as the help calls it; None: it is a switch, or has choices
    default: str | list[str] | None
    help: str  # {default}: a remark that names it
    read: Read | None = given  # None: it counts together with others
    place: str = ""  # path of the setting in BrokerConfig; "": the name
    more: Mapping[str, Any] = field(default_factory=dict)  # what else argparse is told

    @property
    def key(self) -> str:
        """The name in a service file."""
        return self.name.replace("-", "_")


def _setting(name: str) -> tuple[str, Any]:
    """Return place and default of a setting of the broker, or of its engine."""
    if hasattr(BrokerConfig, name):
        return name, getattr(BrokerConfig, name)
    return f"engine.{name}", getattr(_ENGINE, name)


def _switch(name: str, text: str) -> Row:
    return Row(name.replace("_", "-"), None, None, text, place=_setting(name)[0], more={"action": "store_true"})


def _number(name: str, text: str, read: Read = size) -> Row:
    place, default = _setting(name)
    return Row(name.removesuffix("_s").replace("_", "-"), "N", str(default), f"{text} {{default}}", read, place)


def _word(name: str, words: tuple[str, ...], text: str) -> Row:
    place, default = _setting(name)
    return Row(name.replace("_", "-"), "|".join(words), default, f"{text} {{default}}", place=place)


def _list(name: str, value: str, text: str, read: Read | None, default: list[str] | None) -> Row:
    return Row(name, value, default, text, read, f"{name.replace('-', '_')}es", {"action": "append"})


# fmt: off
ROWS = (
    Row("config", "FILE", None,
        f"settings (TOML) that count where neither flag nor environment does; default: ${FILE_VARIABLE}", None),
    Row("name", None, None, "unique in the cluster", more={"required": True}),
    Row("tcp-address", "ADDRESS", "127.0.0.1:4150", "HOST:PORT or /PATH {default}"),
    Row("http-address", "ADDRESS", "127.0.0.1:4151", 'HOST:PORT, /PATH, or "" for none {default}'),
    Row("https-address", "ADDRESS", "", "HOST:PORT or /PATH, needs a certificate (default: none)"),
    Row("http-idle-timeout", "S", "0", "until an idle HTTP connection is closed; 0: never", thousandths,
        "http_idle_timeout_ms"),
    Row("data-path", "DIR", ".", "an existing directory (default: the current one)"),
    Row("mcap", "RATE", "0", "largest rate that keeps the SLO, msg/s; 0: not stated", number),
    _list("distributor", "URL", "may be repeated; default: $SRTM_DISTRIBUTOR, else none", None, None),
    _switch("accept_unknown", "started again, take messages for topics that were not limited before the first sync: a "
            "topic that was limited meanwhile then exceeds its limit"),
    _list("lookupd-tcp-address", "HOST:PORT", "a nsqlookupd; may be repeated", several, []),
    _list("auth-http-address", "ADDRESS", "an auth server, HOST:PORT or a URL; clients must AUTH then (MQTT, HTTP: a "
          "password); may be repeated", several, []),
    _word("auth_http_request_method", ("get", "post"), "how it is asked"),
    Row("topic-acl-file", "FILE", "", "who may do what by NSQ, HTTP and MQTT (IDENTITY ACTION PATTERN a line); needs "
        "--tokens or --mqtt-password-file"),
    Row("tls-cert", "FILE", "", "certificate (PEM); with it, TLS is offered"),
    Row("tls-key", "FILE", "", "its key (PEM)"),
    Row("tls-root-ca-file", "FILE", "", "certificates that clients' are checked against"),
    Row("tls-client-auth-policy", None, "", "certificates of clients", place="engine.tls_client_auth_policy",
        more={"choices": ("require", "require-verify")}),
    Row("tls-required", None, None, "refuse clients without TLS (default: true under a policy)", None,
        more={"choices": TLS_REQUIRED}),
    Row("tls-min-version", None, "tls1.2", "below 1.2 means 1.2 {default}", place="engine.tls_min_version",
        more={"choices": TLS_VERSIONS}),
    Row("mqtt-address", "ADDRESS", "", "HOST:PORT where MQTT is spoken (default: none)"),
    Row("mqtts-address", "ADDRESS", "", "HOST:PORT of MQTT inside TLS, needs a certificate"),
    Row("mqtt-ws-address", "ADDRESS", "", "HOST:PORT of MQTT in WebSocket, for browsers"),
    Row("mqtt-wss-address", "ADDRESS", "", "the same inside TLS, needs a certificate"),
    _list("mqtt-ws-origin", "ORIGIN", "whose pages may use WebSocket: https://HOST[:PORT], a host, or * for all; may "
          "be repeated (default: all where a password or --mqtt-allow-anonymous is given, else those of this machine)",
          None, None),
    _switch("mqtt_allow_anonymous", "let clients in that do not say who they are, from anywhere"),
    _word("mqtt_redirect", MQTT_REDIRECTS, "whether clients that follow are told which broker their topic is at"),
    Row("mqtt-password-file", "FILE", "", "users of MQTT, NSQ and HTTP, as mosquitto_passwd writes them"),
    Row("mqtt-acl-file", "FILE", "", "who may do what by MQTT, NSQ and HTTP, as in Mosquitto's acl_file"),
    _word("mqtt_identity", MQTT_WORDS["mqtt_identity"], "by what a publisher is known"),
    _word("mqtt_unmanaged", MQTT_WORDS["mqtt_unmanaged"], "whether MQTT names that are no topic's may be used"),
    _word("mqtt_full_session", MQTT_WORDS["mqtt_full_session"], "what becomes of a publish for which a session that "
          "outlives its connection has no room: that session does not get it, or it is refused"),
    Row("mqtt-topic", "NAME", _ENGINE.mqtt_topic, "the topic of MQTT names that are no topic's {default}",
        place="engine.mqtt_topic"),
    _number("mqtt_max_keep_alive_s", "longest keep alive in seconds, which clients of 5.0 are told; 0: as they wish",
            whole),
    _number("mqtt_receive_maximum", "publishes of QoS 2 that a client may leave unreleased", whole),
    _number("mqtt_max_in_flight", "deliveries of QoS 1 and 2 that a client may leave unacknowledged", whole),
    _number("mqtt_max_queued", "messages that wait for a session whose client is away or slow", whole),
    _number("mqtt_max_retained", "messages that are retained", whole),
    _number("mqtt_max_sessions", "sessions that outlive their connections", whole),
    _number("mqtt_max_subscriptions", "subscriptions of a session", whole),
    _number("mqtt_max_session_expiry_s", "seconds for which a session without a connection is kept", whole),
    Row("broadcast-address", "HOST", None, "what others are told to connect to"),
    Row("max-memory", "BYTES", "1g", "bound of queued messages, e.g. 512m {default}", size, "max_memory_bytes"),
    _number("max_connections", "connections; 0: as many as there are descriptors"),
    _number("max_connections_per_address", "connections of one address; 0: seven eighths of all"),
    _number("max_topics", "topics that clients may make; 0: no limit"),
    _number("max_channels_per_topic", "channels that clients may make; 0: no limit"),
    _number("max_mpub_messages", "messages of one MPUB; 0: what its bytes allow"),
    _number("mem_queue_size", "messages in memory, of every topic and every channel; the others go to disk"),
    Row("max-bytes-per-file", "BYTES", "100m", "size of a queue's files {default}", size, "engine.max_bytes_per_file"),
    _number("sync_every", "messages of a queue between two fsyncs"),
    Row("sync-timeout", "TIME", "2s", "longest time between two fsyncs {default}", duration_ms,
        "engine.sync_timeout_ms"),
    _number("trace_entries", "length of a topic's trace"),
    _word("log_level", LEVELS, "lowest level of log lines that are written"),
    _word("log_format", FORMATS, "log lines as text, or as JSON objects"),
    _number("metrics_topics", "topics with series of their own in /metrics, the busiest; as many channels"),
    _number("metrics_contracts", "contracts with series of their own in /metrics, those most asked"),
    _word("arrival_clock", ARRIVAL_CLOCKS, "whose word counts for when a message arrived; packet: exact also where "
          "several messages of one connection lay unread, needs CAP_NET_RAW"),
    Row("lab-service-time", "US", "0", "laboratory: let each message leave no earlier than one server with this "
        "service time, in microseconds, would (default: %(default)s, no such server)", thousandths,
        "engine.lab_service_time_ns"),
    _switch("realtime", "carry messages before all ordinary work of the machine (SCHED_FIFO), needs CAP_SYS_NICE"),
    Row("token", None, None, "bearer token of the cluster's HTTP; default: $SRTM_TOKEN (a flag shows in the process "
        "list)", None),
    Row("token-file", "FILE", None, "a file with that token", None),
    Row("tokens", "FILE", None, "tokens (SCOPE NAME TOKEN a line): operators' are taken by the HTTP here too", None),
    Row("ca-file", "FILE", None, "certificates (PEM) to trust of https:// distributors; default: $SRTM_CA_FILE, else "
        "the system's", None),
)
# fmt: on
