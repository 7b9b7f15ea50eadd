"""The engine's snapshot, typed. Field names are those of docs/reference.md, "Snapshot".

Times are in ns, ``*_micro`` in 1e-6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from srtm._native import Engine


class Part(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all parts of a snapshot. Parts form no cycles; without ``gc`` the collector does not scan thousands of
    them a second."""


class PubCount(Part, frozen=True):
    topic: str
    count: int


class Client(Part, frozen=True):
    client_id: str
    hostname: str
    user_agent: str
    remote_address: str
    state: int
    ready_count: int
    in_flight_count: int
    message_count: int
    finish_count: int
    requeue_count: int
    connect_ts: int  # unix seconds
    sample_rate: int
    aware: bool
    authed: bool = False
    auth_identity: str = ""
    auth_identity_url: str = ""
    topology_region: str = ""
    topology_zone: str = ""
    deflate: bool = False
    snappy: bool = False
    tls: bool = False
    tls_version: str = ""  # "TLS1.2"
    tls_cipher_suite: str = ""
    tls_negotiated_protocol: str = ""
    tls_negotiated_protocol_is_mutual: bool = False
    pub_counts: list[PubCount] = []


class EndToEnd(Part, frozen=True):
    """From publish to FIN, over nsqd's window. ``values_ns`` is in the order of ``e2e_percentiles``."""

    count: int
    values_ns: list[int]


class Channel(Part, frozen=True):
    channel_name: str
    paused: bool
    depth: int
    in_flight_count: int
    deferred_count: int
    message_count: int
    requeue_count: int
    timeout_count: int
    client_count: int
    clients: list[Client] = []
    backend_depth: int = 0  # part of ``depth`` that is on disk
    dropped: int = 0  # by an #ephemeral one whose memory was full
    zone_local_msg_count: int = 0  # deliveries by nearness, counted under that experiment only
    region_local_msg_count: int = 0
    global_msg_count: int = 0
    e2e: EndToEnd | None = None


class Bucket(Part, frozen=True):
    rate_micro: int
    burst_micro: int
    reject: bool
    max_backlog: int
    max_backlog_bytes: int
    version: int  # of the share in force; 0: set by hand here
    fill: float  # tokens
    received: int
    released: int
    delayed: int
    rejected: int
    undeclared: int
    backlog: int
    backlog_bytes: int
    largest_backlog: float  # last 60 s
    lateness_max_ns: int
    timestamp_source: str
    lease_left_ns: int | None = None  # until the lease ends; None: the share is kept without renewal
    lapses: int = 0  # how often its lease ended


class LatencyNs(Part, frozen=True):
    count: int
    p50_ns: int
    p95_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int


class Latencies(Part, frozen=True):
    access: LatencyNs
    processing: LatencyNs
    consumer_wait: LatencyNs
    total: LatencyNs


class LatencyWindows(Part, frozen=True):
    since_start: Latencies
    last_60s: Latencies
    recent: Latencies | None = None  # the last 5 to 10 s


class Topic(Part, frozen=True):
    topic_name: str
    paused: bool
    held: bool
    depth: int
    message_count: int
    message_bytes: int
    received: int
    released: int
    rejected: int
    channels: list[Channel]
    bucket: Bucket | None
    latency: LatencyWindows
    backend_depth: int = 0  # part of ``depth`` that is on disk
    dropped: int = 0  # by an #ephemeral one whose memory was full
    network_ns: int | None = None  # from a publisher and to a consumer, medians; None: not known, or no limit
    e2e: EndToEnd | None = None
    mqtt_refused: tuple[int, int, int] = (0, 0, 0)  # publishes by QoS: their client was told, or its connection ended
    mqtt_dropped: tuple[int, int, int] = (0, 0, 0)  # the same without a word


class Mqtt(Part, frozen=True):
    """Counters are since the start."""

    sessions: int
    subscriptions: int
    retained: int
    published: int
    delivered: int
    dropped: int  # deliveries, for want of room
    denied: int
    expired: int
    refused: int  # publishes that nobody could be told of
    tells_topics: bool = False  # somebody may have subscribed to what is told of topics


class MqttTopic(Part, frozen=True):
    """What all sessions of MQTT, or a group of shared subscriptions, have of one topic, here or at another broker."""

    topic: str
    depth: int  # messages that wait; of sessions those of QoS 1 and 2
    in_flight: int  # went out, and are not acknowledged
    messages: int  # since the start
    holders: int  # sessions that were given some, until they end, or members of the group
    dropped: int  # deliveries of any QoS, for want of room, since the start
    full: int = 0  # of these, for want of room in a queue
    group: str = ""  # $share/GROUP/FILTER; "": of sessions


class LinkWay(Part, frozen=True):
    """How messages of another broker's topic came here over a link."""

    origin: str
    topic: str
    network_ns: int | None  # one way; None: not known yet
    latency: LatencyWindows


class Snapshot(Part, frozen=True):
    now_ns: int
    wall_ns: int
    memory_bytes: int
    max_memory_bytes: int
    connections: int
    http_connections: int
    accepted: int
    accept_failures: int
    limits_met: dict[str, int]  # {setting, or why clients were cut off: times}
    postponements: int  # times that a connection had used up its work budget
    unfinished_bytes: int
    unread_bytes: int
    timestamp_fallbacks: int
    timestamp_bias_max_ns: int
    publish_reads: int
    packet_fallbacks: int
    packets_lost: int
    clock_steps: int
    stamps_corrected: int
    merged_reads: int
    lab_service_time_ns: int  # in the laboratory; 0: not in the laboratory
    accepting: bool
    topics: list[Topic]
    producers: list[Client] = []
    mqtt: Mqtt | None = None
    mqtt_topics: list[MqttTopic] = []
    links: list[LinkWay] = []  # in a snapshot of all topics


class PolicyCounts(Part, frozen=True):
    """Of publishes, but for ``cost``: messages of the allowed ones."""

    name: str
    allowed: int
    refused: int  # by this policy; under a shadow contract they passed
    cost: int


class Contract(Part, frozen=True):
    """What was asked of a contract since it was set."""

    namespace: str
    subject: str  # a pattern
    shadow: bool
    policies: list[PolicyCounts]


NO_TOPIC = "#"  # no topic has this name: a snapshot without topics
_DECODER = msgspec.json.Decoder(Snapshot)
_TOPIC_DECODER = msgspec.json.Decoder(Topic)


_CONTRACTS_DECODER = msgspec.json.Decoder(list[Contract])


class RawTopics(msgspec.Struct, frozen=True):
    """Topics as the engine's JSON: unchanged ones compare equal. They keep the whole snapshot in memory."""

    topics: list[msgspec.Raw]
    connections: int
    mqtt: Mqtt | None = None
    mqtt_topics: list[MqttTopic] = []
    links: list[LinkWay] = []


_RAW_DECODER = msgspec.json.Decoder(RawTopics)


def take(engine: Engine, topic: str = "", channel: str = "", *, clients: bool = False) -> Snapshot:
    """All topics, or the one named ``topic`` if it has ``channel``. Raises RuntimeError if the engine has stopped."""
    return _DECODER.decode(engine.snapshot(topic, channel, clients))


def take_raw(engine: Engine, topic: str = "") -> RawTopics:
    """All topics, or the one named ``topic``. Raises RuntimeError if the engine has stopped."""
    return _RAW_DECODER.decode(engine.snapshot(topic, "", False))


def take_contracts(engine: Engine) -> list[Contract]:
    """All contracts in force, in the order in which they were set. Raises RuntimeError if the engine has stopped."""
    return _CONTRACTS_DECODER.decode(engine.contracts())


def decode_topic(raw: msgspec.Raw) -> Topic:
    return _TOPIC_DECODER.decode(raw)


def find_topic(engine: Engine, name: str) -> Topic | None:
    return next((topic for topic in take(engine, name).topics if topic.topic_name == name), None)
