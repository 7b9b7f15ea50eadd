"""The settings of a broker: those of the engine, and those of the service. Defaults are nsqd's unless a comment says
why."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from srtm.control import check_broker_name
from srtm.errors import BadInput
from srtm.log import FORMATS, LEVELS, Format, Level
from srtm.net.address import (
    check_host,
    format_address,
    is_loopback,
    is_socket_path,
    listen_address,
    parse_peer,
    resolvable,
)
from srtm.net.http_client import parse_http_url
from srtm.net.tokens import OwnToken, Tokens, checked_token, shown
from srtm.units import LARGEST

ARRIVAL_CLOCKS = ("kernel", "packet")


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user and the hash of his password, as Mosquitto's password files have them."""

    name: str
    iterations: int  # of PBKDF2 with SHA-512; 0: one SHA-512 of password and salt
    salt: str  # base64, as the hash
    hash: str


AccessAction = Literal["read", "write", "readwrite", "deny"]
RowForm = Literal["stars", "filter", "template"]


class AccessRow(msgspec.Struct, frozen=True):
    """A row of who may do what (``broker.access_files``).

    Of the form ``stars``, ``*`` in identity and pattern stands for any characters. Of the others the pattern is a
    filter of MQTT: ``filter`` is for exactly this identity ("": who has no name), ``template`` for everybody, with
    ``%c`` and ``%u`` for client id and name.
    """

    identity: str
    action: AccessAction
    pattern: str
    form: RowForm


class TokenHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A token by whose name rows judge."""

    sha256: bytes  # base64 on the way to the engine
    name: str
    operator: bool  # it may do everything


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """Who is let in and may do what, by NSQ, HTTP and MQTT."""

    rows: tuple[AccessRow, ...] | None = None  # None: who is let in may do everything
    users: tuple[User, ...] | None = None  # None: no passwords are asked for
    tokens: tuple[TokenHolder, ...] | None = None  # None: no tokens are


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's settings, as JSON (docs/reference.md, "Configuration"). Made by ``broker.startup``, read by
    ``srtm._native.Engine``."""

    tcp_address: str = "127.0.0.1:4150"  # nsqd's is every address; with loopback nothing is exposed by accident
    arrival_clock: str = "kernel"  # or "packet": exact even if several messages lay unread; needs CAP_NET_RAW
    http_address: str = ""  # "": off
    https_address: str = ""  # "": off
    mqtt_address: str = ""  # "": off
    mqtts_address: str = ""  # the same inside TLS; "": off
    mqtt_ws_address: str = ""  # in WebSocket; "": off
    mqtt_wss_address: str = ""  # in WebSocket inside TLS; "": off
    mqtt_ws_origins: tuple[str, ...] | None = None  # whose pages may use WebSocket; None: all
    mqtt_identity: str = "client-id"  # by what a publisher is known; or username, cert-cn
    mqtt_topic: str = "default"  # of names that no topic has
    mqtt_unmanaged: str = "accept"  # such names; or refuse
    mqtt_max_keep_alive_s: int = 0  # that 5.0's clients are told; 0: as they wish
    mqtt_receive_maximum: int = 256  # publishes of QoS 2 that a client may leave unreleased
    mqtt_max_in_flight: int = 64  # deliveries of QoS 1 and 2 that a client may leave unacknowledged
    mqtt_max_queued: int = 10_000  # messages that wait for a session
    mqtt_full_session: str = "drop"  # where a session that outlives its connection has no room; or refuse
    mqtt_max_retained: int = 100_000  # messages
    mqtt_max_sessions: int = 100_000  # that outlive their connections
    mqtt_max_subscriptions: int = 10_000  # of a session
    mqtt_max_session_expiry_s: int = 604_800  # 7 days
    http_idle_timeout_ms: int = 0  # 0: for ever
    http_token: str = ""  # that /pub and /mpub ask for; "": none
    access: AccessRules = AccessRules()  # set by ``broker.service`` from users, tokens and rows
    anonymous: bool = True  # set by ``broker.startup``: clients that do not say who they are may come in
    realtime: bool = False  # real-time priority for its thread; needs CAP_SYS_NICE
    node_id: int = 0  # part of message ids; different on each broker of a host
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
    auth_servers: bool = False  # set by ``broker.startup``: they are asked who clients are
    auth_by_http: bool = False  # set by ``broker.startup``: also who publishes by HTTP
    e2e_percentiles: tuple[float, ...] = ()  # of publish to FIN, above 0 and at most 1; empty: not measured
    e2e_window_ms: int = 600_000
    max_memory_bytes: int = 1 << 30
    max_connections: int = 0  # 0: one for each file descriptor
    max_connections_per_address: int = 0  # 0: seven eighths of them, so that no address can shut out all others
    max_topics: int = 10_000  # created by clients, where nsqd has no limit; 0: no limit, also below
    max_channels_per_topic: int = 1_000
    max_mpub_messages: int = 65_536  # by HTTP or under a bucket it runs in one piece, and all others wait
    max_unfinished_bytes: int = 128 << 20  # of incomplete commands, over all connections
    max_unread_bytes: int = 256 << 20  # of output, over all connections
    data_path: str = ""  # "": no disk; set by ``broker.startup``
    mem_queue_size: int = 10_000  # messages in memory, for each topic and each channel
    max_bytes_per_file: int = 104_857_600
    sync_every: int = 2_500
    sync_timeout_ms: int = 2_000
    trace_entries: int = 1_000_000
    lab_service_time_ns: int = 0  # laboratory: one virtual server with this service time per message; 0: none
    hold_new_topics: bool = False
    accepting: bool = True
    not_accepting_reason: str = ""
    tls_cert_pem: str = ""  # contents of ``BrokerConfig.tls_cert``; "": none, also below
    tls_key_pem: str = ""
    tls_root_ca_pem: str = ""
    tls_client_auth_policy: str = ""  # "", require, require-verify
    tls_required: str = "false"  # false, true, tcp-https
    tls_min_version: str = "tls1.0"  # below 1.2 means 1.2
    deflate: bool = True
    max_deflate_level: int = 6
    snappy: bool = True
    topology_region: str = ""
    topology_zone: str = ""
    topology_aware: bool = False  # prefer consumers in the same zone


MQTT_ADDRESSES = ("mqtt_address", "mqtts_address", "mqtt_ws_address", "mqtt_wss_address")
MQTT_REDIRECTS = ("known", "never")
# {setting of the engine: what it may be}
MQTT_WORDS = {
    "mqtt_identity": ("client-id", "username", "cert-cn"),
    "mqtt_unmanaged": ("accept", "refuse"),
    "mqtt_full_session": ("drop", "refuse"),
}

TLS_REQUIRED = ("false", "true", "tcp-https")
TLS_VERSIONS = ("tls1.0", "tls1.1", "tls1.2", "tls1.3")


LIMITS = (
    "max_connections",
    "max_connections_per_address",
    "max_topics",
    "max_channels_per_topic",
    "max_mpub_messages",
)
MAX_LIMIT = (1 << 32) - 1  # of each of them
_MOST = (1 << 63) - 1  # of other counts: the engine's integers hold no more
_LONGEST_MS = 3_155_760_000_000  # 100 years, to which the engine holds all durations
_TOPIC = re.compile(r"[.a-zA-Z0-9_-]{1,64}")
TOPOLOGY_AWARE = "topology-aware-consumption"
EXPERIMENTS = (TOPOLOGY_AWARE,)


class _Row(NamedTuple):
    """What one setting may be, whatever the others are."""

    path: str  # from BrokerConfig
    fits: Callable[[Any], object]
    rule: str
    told: str = ""  # by which name users know it; "": the last word of the path
    per: int = 0  # how many of its units make one of those that users know; 0: they are the same


def _one_of(path: str, words: Sequence[str]) -> _Row:
    return _Row(path, words.__contains__, f"must be one of {', '.join(word or '(nothing)' for word in words)}")


def _within(path: str, least: float, most: float, rule: str = "", told: str = "", per: int = 0) -> _Row:
    """NaN is not within."""
    return _Row(path, lambda value: least <= value <= most, rule or f"must be {least} to {most}", told, per)


_ROWS = (
    _within(
        "http_idle_timeout_ms", 0, _LONGEST_MS, "must be 0 s (for ever) to 3155760000 s", "http_idle_timeout", 1000
    ),
    _Row("auth_http_request_method", ("get", "post").__contains__, "must be get or post"),
    _within("mcap", 0, LARGEST, f"must be a rate from 0 (not stated) to {LARGEST:g} msg/s"),
    _one_of("engine.arrival_clock", ARRIVAL_CLOCKS),
    _within("max_memory_bytes", 1, _MOST, f"must be 1 to {_MOST} bytes", "max_memory"),
    *(_within(f"metrics_{things}", 0, 10**6, "must be 0 to 1,000,000") for things in ("topics", "contracts")),
    _one_of("log_level", LEVELS),
    _one_of("log_format", FORMATS),
    _within("engine.lab_service_time_ns", 0, 10**9, "must be 0 (none) to 1000000 us", "lab_service_time", 1000),
    _within("trace_entries", 0, _MOST, f"must be 0 (no trace) to {_MOST}"),
    _within("engine.mem_queue_size", 0, _MOST),
    _within("engine.max_bytes_per_file", 1, _MOST),
    _within("engine.sync_every", 1, _MOST),
    _within("engine.sync_timeout_ms", 1, _LONGEST_MS, f"must be 1 to {_LONGEST_MS} ms", "sync_timeout"),
    *(_within(f"engine.{name}", 0, MAX_LIMIT, f"must be 0 (no limit of its own) to {MAX_LIMIT}") for name in LIMITS),
    _one_of("engine.tls_client_auth_policy", ("", "require", "require-verify")),
    _one_of("engine.tls_required", TLS_REQUIRED),
    _one_of("engine.tls_min_version", TLS_VERSIONS),
    _within("engine.max_deflate_level", 1, 9),
    *(_one_of(f"engine.{name}", words) for name, words in MQTT_WORDS.items()),
    _one_of("mqtt_redirect", MQTT_REDIRECTS),
    _Row("engine.mqtt_topic", _TOPIC.fullmatch, "must be the name of a topic: 1 to 64 of . a-z A-Z 0-9 _ -"),
    _within("engine.mqtt_max_keep_alive_s", 0, 65_535),
    _within("engine.mqtt_receive_maximum", 1, 65_535),
    _within("engine.mqtt_max_in_flight", 1, 65_535),
    _within("engine.mqtt_max_queued", 1, 10**9),
    _within("engine.mqtt_max_retained", 0, 10**9),
    _within("engine.mqtt_max_sessions", 0, 10**9),
    _within("engine.mqtt_max_subscriptions", 1, 10**9),
    _within("engine.mqtt_max_session_expiry_s", 0, (1 << 32) - 1),
)


@dataclass(frozen=True)
class AuthAddress:
    """The address of an auth server."""

    host: str
    port: int
    path: str = "/auth"
    tls: bool = False

    @property
    def base_url(self) -> str:
        return f"http{'s' if self.tls else ''}://{format_address(self.host, self.port)}"


def parse_auth_address(field: str, text: str) -> AuthAddress:
    """Parse ``HOST:PORT``, or a URL, whose path is used as it is. Raises BadInput."""
    if "://" not in text:
        host, port = parse_peer(field, text)
        return AuthAddress(host, port)
    rule = "must be HOST:PORT, or a URL such as http://HOST:PORT/PATH"
    try:
        parts = urlsplit(text)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise BadInput(field, text, rule) from None
    plain = parts.hostname and not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in ("http", "https") or not plain or not re.fullmatch(r"[!-~]*", parts.path):
        raise BadInput(field, text, rule)
    return AuthAddress(resolvable(field, text, parts.hostname or ""), port, parts.path or "/", parts.scheme == "https")


@dataclass(frozen=True, kw_only=True)
class StatsdConfig:
    """Where and how counters are pushed (protocol section 16). Raises BadInput if it makes no sense."""

    address: str = ""  # "": nowhere
    prefix: str = "nsq.%s"
    interval_ms: int = 60_000
    mem_stats: bool = True
    udp_packet_size: int = 508
    exclude_ephemeral: bool = False

    def __post_init__(self) -> None:
        if self.address:
            parse_peer("statsd_address", self.address)


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """Everything that ``srtm broker`` and ``srtm nsqd`` take. Raises BadInput if it makes no sense."""

    name: str
    tcp_address: str = "127.0.0.1:4150"
    http_address: str = "127.0.0.1:4151"  # "": off
    https_address: str = ""  # used if there is a certificate, as nsqd's; "": off
    mqtt_address: str = ""  # "": off
    mqtts_address: str = ""  # needs a certificate; "": off
    mqtt_ws_address: str = ""  # "": off
    mqtt_wss_address: str = ""  # needs a certificate; "": off
    mqtt_redirect: str = "known"  # or "never": whether clients that follow are told where their topic is
    mqtt_allow_anonymous: bool = False  # also beyond loopback, and beside users and rows; of NSQ and HTTP too
    mqtt_password_file: str = ""  # users, of all protocols; "": none
    mqtt_acl_file: str = ""  # rows of who may do what by NSQ, HTTP and MQTT, in Mosquitto's form; "": none
    http_idle_timeout_ms: int = 0  # 0: for ever, as nsqd; closing would race with the client's next request
    data_path: str = "."
    mcap: float = 0.0  # msg/s; 0: not stated
    distributors: tuple[str, ...] = ()  # (): a broker alone
    accept_unknown: bool = False  # started again, take what was not limited at once, and so exceed a limit made since
    lookupd_tcp_addresses: tuple[str, ...] = ()
    auth_http_addresses: tuple[str, ...] = ()  # (): AUTH is disabled
    auth_http_request_method: str = "get"
    auth_by_http: bool = False  # they are asked about publishes by HTTP too, which nsqd leaves open
    topic_acl_file: str = ""  # further rows, by the names of ``tokens`` and of users; "": none
    http_client_connect_timeout_ms: int = 2_000
    http_client_request_timeout_ms: int = 5_000
    tls_cert: str = ""  # PEM files; "": no TLS
    tls_key: str = ""
    tls_root_ca_file: str = ""  # with which client certificates are checked
    broadcast_address: str | None = None  # None: the host of tcp_address, or the host name where that is a wildcard
    broadcast_tcp_port: int = 0  # 0: the real port
    broadcast_http_port: int = 0
    experiments: tuple[str, ...] = ()  # of EXPERIMENTS
    node_id: int | None = None  # None: drawn from the name, so that brokers on one host differ
    metrics_topics: int = 1_000  # topics, and channels, with series of their own in /metrics: 70,000 lines at most
    metrics_contracts: int = 1_000  # contracts likewise, three for each policy
    log_level: Level = "info"
    log_format: Format = "text"
    log_name: str = ""  # with which log lines begin; "": the name
    statsd: StatsdConfig = field(default_factory=StatsdConfig)
    unused: Mapping[str, object] = field(default_factory=dict)  # nsqd's options without effect here, as given
    max_memory_bytes: int = 1 << 30
    trace_entries: int = 1_000_000
    token: OwnToken | None = field(default=None, repr=False)  # shown to the distributor, asked for here by HTTP
    tokens: Tokens | None = field(default=None, repr=False)  # further tokens, of operators, for this broker's HTTP
    ca_file: str | None = None  # CA of the distributors' certificates; None: the system's
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        check_broker_name("name", self.name)
        self._check_each()
        self._check_addresses()
        if any(getattr(self, name) for name in MQTT_ADDRESSES):
            self._check_mqtt()
        self._check_apart()
        if self.engine.arrival_clock == "packet" and is_socket_path(self.tcp_address):
            raise BadInput("arrival_clock", "packet", "must be kernel where tcp_address is a Unix socket")
        self._check_access()
        if self.token is not None:
            checked_token("token", shown(self.token))
        for experiment in self.experiments:
            if experiment not in EXPERIMENTS:
                raise BadInput("enable_experiment", experiment, f"must be one of {', '.join(EXPERIMENTS)}")
        self._check_streams()

    def _check_addresses(self) -> None:
        """Check where clients are listened for, and where others are asked. ``_check_mqtt`` has the ports of MQTT."""
        listen_address("tcp_address", self.tcp_address)
        for name, address in (("http_address", self.http_address), ("https_address", self.https_address)):
            if address:
                listen_address(name, address)
        if self.broadcast_address:
            check_host("broadcast_address", self.broadcast_address)
        if self.distributors:  # they tell clients where to connect to
            for name, address in (("tcp_address", self.tcp_address), ("http_address", self.http_address)):
                if not address or is_socket_path(address):
                    raise BadInput(name, address, "must be HOST:PORT with a distributor, which tells others of it")
        for address in self.lookupd_tcp_addresses:
            parse_peer("lookupd_tcp_address", address)
        for address in self.auth_http_addresses:
            parse_auth_address("auth_http_address", address)
        for url in self.distributors:
            parse_http_url("distributor", url, "https" if url.startswith("https:") else "http")

    def _check_access(self) -> None:
        """Check that the files of who may do what go together."""
        if self.topic_acl_file and self.tokens is None and not self.mqtt_password_file:
            raise BadInput("topic_acl_file", self.topic_acl_file, "needs --tokens or --mqtt-password-file")
        for name in ("topic_acl_file", "mqtt_password_file"):
            if getattr(self, name) and self.auth_http_addresses:
                rule = "goes with no auth server, which gets tokens and passwords"
                raise BadInput(name, getattr(self, name), rule)

    def _check_each(self) -> None:
        for row in _ROWS:
            value = attrgetter(row.path)(self)
            if not row.fits(value):
                name = row.told or row.path.rpartition(".")[2]
                raise BadInput(name, value / row.per if row.per else value, row.rule)

    def _check_apart(self) -> None:
        """No two ports are to be opened at one address. Port 0 is any free one."""
        taken: dict[str, str] = {}  # {address: the option that has it}
        for name in ("tcp_address", "http_address", "https_address", *MQTT_ADDRESSES):
            given: str = getattr(self, name)
            address = listen_address(name, given) if given else ":0"
            if address in taken:
                raise BadInput(name, given, f"must not be that of {taken[address]}")
            if is_socket_path(address) or not address.endswith(":0"):
                taken[address] = name

    @property
    def asks_clients(self) -> bool:
        """Whether clients must show a user's password or a token, whatever they speak."""
        return bool(self.topic_acl_file or self.mqtt_password_file)

    def _check_mqtt(self) -> None:
        """Check the MQTT ports. Nobody beyond this machine gets in without saying who he is, unless that is wanted."""
        by_certificate = self.engine.mqtt_identity == "cert-cn"
        in_clear = [name for name in ("mqtt_address", "mqtt_ws_address") if getattr(self, name)]
        if by_certificate and (in_clear or self.engine.tls_client_auth_policy != "require-verify"):
            rule = "needs ports inside TLS alone (--mqtts-address, --mqtt-wss-address), and the policy require-verify"
            raise BadInput("mqtt_identity", self.engine.mqtt_identity, rule)
        if in_clear and self.engine.tls_required != "false":
            rule = "must not be given where TLS is required: see mqtts_address and mqtt_wss_address"
            raise BadInput(in_clear[0], getattr(self, in_clear[0]), rule)
        for name in ("mqtts_address", "mqtt_wss_address"):
            if getattr(self, name) and not self.tls_cert:
                raise BadInput(name, getattr(self, name), "needs tls_cert and tls_key")
        asks = self.asks_clients or bool(self.auth_http_addresses)
        is_safe = self.mqtt_allow_anonymous or by_certificate or asks
        for name in MQTT_ADDRESSES:
            address: str = getattr(self, name)
            if not address:
                continue
            listen_address(name, address)
            if not (is_safe or is_loopback(address)):
                rule = (
                    "must be on loopback, or with --mqtt-password-file, --topic-acl-file, --auth-http-address "
                    "or --mqtt-allow-anonymous"
                )
                raise BadInput(name, address, rule)

    def _check_streams(self) -> None:
        """Check TLS and compression. The engine checks the contents of the files."""
        engine = self.engine
        if bool(self.tls_cert) != bool(self.tls_key):
            missing = "tls_key" if self.tls_cert else "tls_cert"
            raise BadInput(missing, "", "a certificate and its key must be given together")
        if engine.tls_required != "false" and not self.tls_cert:
            raise BadInput("tls_required", engine.tls_required, "needs tls_cert and tls_key")
        if engine.tls_client_auth_policy == "require-verify" and not self.tls_root_ca_file:
            raise BadInput("tls_root_ca_file", "", "must be given under the policy require-verify")

    @property
    def needs_discovery(self) -> bool:
        """Whether other services may know channels of a topic that is new here: it is held until they are asked."""
        return bool(self.distributors or self.lookupd_tcp_addresses)
