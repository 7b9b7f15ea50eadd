"""nsqd's options, one row each: the flag, its kind, its default, and its place in a ``BrokerConfig``.

``srtm nsqd``'s flags, its TOML file and ``/config/NAME`` use this one table: an option that is read goes to its place,
and is shown from there (protocol sections 1 and 13). Durations are whole nanoseconds here, as nsqd shows them, and
milliseconds in the configuration. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.config import BrokerConfig, EngineConfig, StatsdConfig
from srtm.errors import BadInput
from srtm.log import FORMATS, LEVELS
from srtm.text import read_duration_ns

Value = Any  # of the option's kind: str, int, bool, or a tuple of str or float
Options = dict[str, Value]  # by key of the TOML file

_MS = 10**6  # ns
_S = 10**9
_MAX_INT64 = (1 << 63) - 1
_MAX_UINT32 = (1 << 32) - 1
_LONGEST_NUMBER = 70  # characters: a sign, 0b and 64 digits
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
_TLS_VERSIONS = {"tls1.0": 769, "tls1.1": 770, "tls1.2": 771, "tls1.3": 772}
_TLS_REQUIRED = ("false", "tcp-https", "true")


@dataclass(frozen=True)
class Kind:
    """How values are read and shown. ``read`` takes the word of a flag, ``take`` a value of the TOML file; both raise
    ValueError with the rule. ``show`` returns what ``/config`` answers."""

    name: str  # as the usage calls the value
    read: Callable[[str], Value]
    take: Callable[[object], Value]
    show: Callable[[Value], object] = lambda value: value
    repeats: bool = False
    switch: bool = False  # may stand without a value


def _read_bool(text: str) -> bool:
    if text not in _TRUE + _FALSE:
        raise ValueError("must be true or false (also t, f, 1, 0)")
    return text in _TRUE


def _read_whole(text: str) -> int:
    """Parse as Go does: 0x, 0o and 0b prefixes, a leading 0 for octal, underscores between digits."""
    bare = re.sub(r"^([+-]?)0(?=[0-7_]+$)", r"\g<1>0o", text)
    if len(text) > _LONGEST_NUMBER or re.fullmatch(r"[+-]?[0-9][0-9a-fA-FxXoO_]*", text, re.ASCII) is None:
        raise ValueError("must be a whole number")
    try:
        value = int(bare, 0)
    except ValueError:
        raise ValueError("must be a whole number") from None
    if not -_MAX_INT64 - 1 <= value <= _MAX_INT64:
        raise ValueError("must be a whole number of at most 64 bits")
    return value


def _read_percentiles(text: str) -> tuple[float, ...]:
    try:
        return tuple(sorted((float(part) for part in text.split(",")), reverse=True))
    except ValueError:
        raise ValueError("must be numbers above 0, up to 1, with commas between them") from None


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"must be one of {', '.join(word or '(nothing)' for word in words)}")
        return text.lower()

    return read


_read_tls_version = _one_of(tuple(_TLS_VERSIONS))


def _read_tls_required(text: str) -> str:
    if text.lower() == "tcp-https":
        return "tcp-https"
    try:
        return "true" if _read_bool(text) else "false"
    except ValueError:
        raise ValueError("must be true, false or tcp-https") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004
    return value


def _bool(value: object) -> bool:
    if isinstance(value, int):
        return bool(value)
    return _read_bool(value) if isinstance(value, str) else _typed(value, bool, "true or false")


def _whole(value: object) -> int:
    return _read_whole(value) if isinstance(value, str) else _typed(value, int, "a whole number")


def _duration_ns(value: object) -> int:
    """A bare number means milliseconds in nsqd's file."""
    if isinstance(value, str):
        return read_duration_ns(value)
    return int(_typed(value, int, "a duration such as '250ms', or whole milliseconds")) * _MS


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part for part in value.split(",") if part)
    return tuple(_text(part) for part in _typed(value, list, "a list of texts"))


def _percentiles(value: object) -> tuple[float, ...]:
    parts = value if isinstance(value, list) else [value]
    return tuple(sorted((part for given in parts for part in _read_percentiles(str(given))), reverse=True))


def _typed(value: object, kind: type, rule: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"must be {rule}")
    return value


def _word(name: str, read: Callable[[str], str], show: Callable[[str], object] = str) -> Kind:
    return Kind(name, read, lambda value: read(str(value).lower() if isinstance(value, bool) else _text(value)), show)


TEXT = Kind("text", str, _text)
SWITCH = Kind("", _read_bool, _bool, switch=True)
WHOLE = Kind("number", _read_whole, _whole)
DURATION = Kind("duration", read_duration_ns, _duration_ns)
TEXTS = Kind("text", lambda text: (text,), _texts, repeats=True)
PERCENTILES = Kind("share", _read_percentiles, _percentiles, repeats=True)
LOG_LEVEL = _word("level", _one_of(LEVELS), lambda level: LEVELS.index(level) + 1)
LOG_FORMAT = _word("format", _one_of(FORMATS))
TLS_VERSION = _word("version", lambda text: _read_tls_version(text or "tls1.0"), lambda version: _TLS_VERSIONS[version])
AUTH_POLICY = _word("policy", _one_of(("", "require", "require-verify")))
AUTH_METHOD = _word("method", _one_of(("get", "post")))
TLS_REQUIRED = Kind(
    "false|true|tcp-https",
    _read_tls_required,
    lambda value: _read_tls_required(str(value)),
    _TLS_REQUIRED.index,
    switch=True,
)


@dataclass(frozen=True)
class Option:
    """``place``: the path in ``BrokerConfig``; "": taken and without effect here (kept in ``unused``). ``low`` and
    ``high`` bound numbers."""

    flag: str
    kind: Kind
    default: Value
    place: str
    help: str
    key: str = ""
    low: int = 0
    high: int = _MAX_INT64
    toml: str = field(default="", init=False)  # the key in the file

    def __post_init__(self) -> None:
        object.__setattr__(self, "toml", self.key or self.flag.replace("-", "_"))

    def check(self, value: Value) -> None:
        """Raises BadInput."""
        if isinstance(value, int) and not isinstance(value, bool) and not self.low <= value <= self.high:
            shown = f"{value / _S:g}s" if self.kind is DURATION else value
            raise BadInput(f"--{self.flag}", shown, f"must be {self._range()}")

    def _range(self) -> str:
        if self.kind is DURATION:
            return "a duration of 1ms or more" if self.low else "a duration of 0 or more"
        return f"from {self.low} to {self.high}" if self.high < _MAX_INT64 else f"at least {self.low}"


def _count(flag: str, default: int, place: str, help_text: str, low: int = 0, high: int = _MAX_UINT32) -> Option:
    return Option(flag, WHOLE, default, place, help_text, low=low, high=high)


def _time(flag: str, default_ns: int, place: str, help_text: str, low: int = 0, high: int = _MAX_INT64) -> Option:
    return Option(flag, DURATION, default_ns, place, help_text, low=low, high=high)


TABLE: tuple[Option, ...] = (
    Option("node-id", WHOLE, 0, "node_id", "unique part of message ids (from the host name)", "id", high=1023),
    Option("log-level", LOG_LEVEL, "info", "log_level", "debug, info, warn, error or fatal"),
    Option("log-format", LOG_FORMAT, "text", "log_format", "text or json; nsqd itself has text alone"),
    Option("log-prefix", TEXT, "[nsqd] ", "log_name", "what log lines begin with"),
    Option("tcp-address", TEXT, "0.0.0.0:4150", "tcp_address", "where TCP clients are listened for"),
    Option("http-address", TEXT, "0.0.0.0:4151", "http_address", "where HTTP clients are listened for"),
    Option("https-address", TEXT, "0.0.0.0:4152", "https_address", "where HTTPS clients are listened for"),
    Option("broadcast-address", TEXT, "", "broadcast_address", "what others are told to connect to (the host name)"),
    _count("broadcast-tcp-port", 0, "broadcast_tcp_port", "what nsqlookupd is told; 0: the real one", 0, 65535),
    _count("broadcast-http-port", 0, "broadcast_http_port", "what nsqlookupd is told; 0: the real one", 0, 65535),
    Option("lookupd-tcp-address", TEXTS, (), "lookupd_tcp_addresses", "a nsqlookupd", "nsqlookupd_tcp_addresses"),
    Option("auth-http-address", TEXTS, (), "auth_http_addresses", "an auth server", "auth_http_addresses"),
    Option("auth-http-request-method", AUTH_METHOD, "get", "auth_http_request_method", "get or post"),
    _time("http-client-connect-timeout", 2 * _S, "http_client_connect_timeout_ms", "for our own HTTP requests", _MS),
    _time("http-client-request-timeout", 5 * _S, "http_client_request_timeout_ms", "for our own HTTP requests", _MS),
    Option("topology-region", TEXT, "", "engine.topology_region", "region of this broker"),
    Option("topology-zone", TEXT, "", "engine.topology_zone", "zone of this broker"),
    Option("enable-experiment", TEXTS, (), "experiments", "topology-aware-consumption"),
    Option("data-path", TEXT, "", "data_path", "directory for what is kept (the current one)"),
    _count("mem-queue-size", 10_000, "engine.mem_queue_size", "messages in memory, per queue", 0, _MAX_INT64),
    _count("max-memory", 1 << 30, "max_memory_bytes", "bytes that all queues may hold in memory", 1, _MAX_INT64),
    _count("max-bytes-per-file", 100 << 20, "engine.max_bytes_per_file", "bytes of a queue file", 1, _MAX_INT64),
    _count("sync-every", 2500, "engine.sync_every", "messages between two fsyncs", 1, _MAX_INT64),
    _time("sync-timeout", 2 * _S, "engine.sync_timeout_ms", "longest time between two fsyncs", _MS),
    _count("queue-scan-worker-pool-max", 4, "", "without effect: there are no scan workers"),
    _count("queue-scan-selection-count", 20, "", "without effect: every channel keeps its own time"),
    _time("msg-timeout", 60 * _S, "engine.msg_timeout_ms", "after which an unanswered message comes back", _MS),
    _time("max-msg-timeout", 900 * _S, "engine.max_msg_timeout_ms", "longest message timeout of a client", _MS),
    _count("max-msg-size", 1 << 20, "engine.max_msg_size", "bytes of a message", 1),
    _count("max-body-size", 5 << 20, "engine.max_body_size", "bytes of a command's body", 5),
    _time("max-req-timeout", 3600 * _S, "engine.max_req_timeout_ms", "longest deferral", high=_MAX_UINT32 * _MS),
    _time("max-heartbeat-interval", 60 * _S, "engine.max_heartbeat_interval_ms", "longest a client may ask for", _MS),
    _count("max-rdy-count", 2500, "engine.max_rdy_count", "largest RDY of a client"),
    _count("max-output-buffer-size", 64 << 10, "engine.max_output_buffer_size", "largest a client may ask for"),
    _time("max-output-buffer-timeout", 30 * _S, "engine.max_output_buffer_timeout_ms", "longest a client may ask for"),
    _time("min-output-buffer-timeout", 25 * _MS, "engine.min_output_buffer_timeout_ms", "shortest they may ask for"),
    _time("output-buffer-timeout", 250 * _MS, "engine.output_buffer_timeout_ms", "where a client asks for none"),
    _count("max-channel-consumers", 0, "engine.max_channel_consumers", "consumers of a channel; 0: no limit"),
    Option("statsd-address", TEXT, "", "statsd.address", "UDP address of a statsd"),
    Option("statsd-prefix", TEXT, "nsq.%s", "statsd.prefix", "of its keys; %s is this broker"),
    _time("statsd-interval", 60 * _S, "statsd.interval_ms", "between two pushes", _MS),
    Option("statsd-mem-stats", SWITCH, True, "statsd.mem_stats", "push memory statistics too"),
    _count("statsd-udp-packet-size", 508, "statsd.udp_packet_size", "bytes of a packet", 1, 65507),
    Option("statsd-exclude-ephemeral", SWITCH, False, "statsd.exclude_ephemeral", "leave #ephemeral ones out"),
    Option(
        "e2e-processing-latency-percentile", PERCENTILES, (), "engine.e2e_percentiles", "of publish to FIN, 0 to 1",
        "e2e_processing_latency_percentiles",
    ),
    _time("e2e-processing-latency-window-time", 600 * _S, "engine.e2e_window_ms", "over which they are taken", _MS),
    Option("tls-cert", TEXT, "", "tls_cert", "certificate file"),
    Option("tls-key", TEXT, "", "tls_key", "key file"),
    Option("tls-root-ca-file", TEXT, "", "tls_root_ca_file", "certificates that clients' are checked against"),
    Option("tls-client-auth-policy", AUTH_POLICY, "", "engine.tls_client_auth_policy", "require or require-verify"),
    Option("tls-required", TLS_REQUIRED, "false", "engine.tls_required", "refuse clients without TLS"),
    Option("tls-min-version", TLS_VERSION, "tls1.0", "engine.tls_min_version", "tls1.0 to tls1.3"),
    Option("deflate", SWITCH, True, "engine.deflate", "offer deflate"),
    _count("max-deflate-level", 6, "engine.max_deflate_level", "largest level of a client", 1, 9),
    Option("snappy", SWITCH, True, "engine.snappy", "offer snappy"),
    # Not nsqd's: what one client may take from the others.
    _count("max-connections", 0, "engine.max_connections", "0: as many as there are descriptors"),
    _count("max-connections-per-address", 0, "engine.max_connections_per_address", "0: seven eighths of all"),
    _count("max-topics", 10_000, "engine.max_topics", "that clients may make; 0: no limit"),
    _count("max-channels-per-topic", 1_000, "engine.max_channels_per_topic", "that clients may make; 0: no limit"),
    _count("max-mpub-messages", 65_536, "engine.max_mpub_messages", "of one MPUB; 0: what its bytes allow"),
)  # fmt: skip

BY_KEY: Mapping[str, Option] = {option.toml: option for option in TABLE}


def to_config(options: Options, **more: Any) -> BrokerConfig:
    """``options``: a value for each row. ``more``: fields of ``BrokerConfig`` that are no option of nsqd's. Raises
    BadInput."""
    parts: dict[str, dict[str, Any]] = {"": dict(more), "engine": {}, "statsd": {}}
    unused: Options = {}
    for option in TABLE:
        value = options[option.toml]
        option.check(value)
        part, _, name = option.place.rpartition(".")
        if not name:
            unused[option.toml] = value
        else:
            parts[part][name] = -(-value // _MS) if name.endswith("_ms") else value
    statsd = StatsdConfig(**parts["statsd"])
    return BrokerConfig(**parts[""], engine=EngineConfig(**parts["engine"]), statsd=statsd, unused=unused)


def from_config(config: BrokerConfig) -> Options:
    """What ``to_config`` was given, or would have to be."""
    return {option.toml: _value_of(config, option) for option in TABLE}


def _value_of(config: BrokerConfig, option: Option) -> Value:
    if not option.place:
        return config.unused.get(option.toml, option.default)
    value: Any = config
    for name in option.place.split("."):
        value = getattr(value, name)
    if option.place.endswith("_ms"):
        return value * _MS
    return option.default if value is None else value
