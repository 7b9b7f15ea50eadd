"""The conversation of a broker with its distributor.

``SyncRequest`` says what the broker has, ``SyncAnswer`` what it is to have.

A broker sends ``POST /v1/brokers/NAME/sync``. The answer is its desired state: in full, or as a delta to a state that
both sides know. Reports go up in the same two ways; a side that does not know what a delta rests on says so, and gets
everything. With ``wait_s`` above 0 the distributor holds the answer back until the state's version differs from
``have_version``, publishers have to move, or the wait is over.

A ``DeadNotice`` is proof that a broker's process has ended, sent in its place.
"""

from __future__ import annotations

import msgspec

from srtm.control.measurements import MeasurementRequest
from srtm.control.message import Control
from srtm.control.reports import (
    BrokerMachine,
    ContractCounts,
    DrainProgress,
    LinkLatency,
    Throttling,
    TopicReport,
    UnassignedPublisher,
)


class MqttPorts(Control, frozen=True):
    """Where a broker speaks MQTT beside in clear over TCP: HOST:PORT; "": nowhere."""

    tls: str = ""
    ws: str = ""  # WebSocket
    wss: str = ""  # WebSocket inside TLS


class SyncRequest(Control, frozen=True):
    """The state of a broker, and its reports. Made by ``broker.sync.loop``, read by ``distributor.sync.service``."""

    incarnation: str  # START-DIRECTORY: new at every start of the process; sorts by start within one data directory
    srtm_version: str
    tcp_address: str  # HOST:PORT that clients connect to
    http_address: str
    mcap: float  # msg/s; 0: not stated
    mqtt_address: str = ""  # HOST:PORT where MQTT is spoken in clear; "": nowhere, or by a broker of an earlier version
    mqtt_ports: MqttPorts = MqttPorts()
    accepting: bool = True  # false: publishers are refused, because the broker drains
    drain: DrainProgress | None = None  # None: the broker does not drain
    have_version: int = 0  # ``SyncAnswer.version`` of the desired state in force; 0: none
    remembered: int = 0  # version of the state that an earlier incarnation left in the data directory; 0: none
    applied: dict[str, int] = {}  # {topic: version of the share in force}: the acknowledgement of the lease protocol
    held: dict[str, tuple[int, int]] = {}  # {topic: (rate, burst) in force, micro}, of recalled shares
    number: int = 0  # of the request in this incarnation, 1, 2, ...; 0: the broker does not count them
    topics: list[TopicReport] = []  # managed topics, and others that had traffic
    # Above 0: ``topics`` has only reports that may differ from those of the request with this number. ``gone`` names
    # topics that were reported then, or since, and are no longer reported.
    reports_since: int = 0
    gone: list[str] = []
    partial: bool = False  # an acknowledgement: only reports of topics whose shares have just changed are up to date
    takes_differences: bool = False  # whether the broker takes deltas (``SyncAnswer.since``)
    strangers: list[UnassignedPublisher] = []  # unassigned publishers that are new since the latest answered sync
    stayed: list[UnassignedPublisher] = []  # told twice to move, and here yet 5 s later; new since the latest sync
    lab_service_time_ns: int = 0  # service time of every message in the laboratory; 0: not in the laboratory
    throttling: Throttling | None = None  # None: the system does not say
    connections: int | None = None  # of clients, NSQ and MQTT; None: a broker of an earlier version
    mqtt_sessions: int | None = None  # also of clients that are away; None: a broker of an earlier version
    machine: BrokerMachine | None = None  # None: the broker does not say
    # What one process of one running kernel alone can hold: the lock of its data directory, its port. None: a broker of
    # an earlier version. Whoever holds the same one proves that the holder before it has ended.
    claims: list[str] | None = None
    cluster: int = 0  # ``SyncAnswer.cluster`` that the data directory knows; 0: none
    # {broker: incarnation} that the cluster had when this broker was told last. It says so again after every sync
    # without an answer: the next leader may have an older store. None: as before, or a broker of an earlier version.
    peers: dict[str, str] | None = None
    # ``BrokerContracts.version`` in force; -1: what an earlier incarnation left. None: a broker that knows none.
    contracts: int | None = None
    takes_contract_differences: bool = False  # whether the broker takes ``BrokerContracts.since``
    contract_counts: list[ContractCounts] = []  # without ``reports_since`` all, else those that may differ
    links: list[LinkLatency] = []  # without ``reports_since`` all, else those that may differ
    # {topic: ``MqttLosses.full`` of it}, {}: nothing more; without ``reports_since`` all, else those that may differ
    mqtt_full: dict[str, dict[str, int]] = {}
    names_peers: bool = False  # whether the broker knows what ``peers`` is
    peer_claims: dict[str, list[str]] = {}  # {broker of ``peers``: its ``claims``}, as told
    wants_verdicts: bool = False  # MQTT clients here may want to hear of promises
    have_addresses: int | None = None  # ``SyncAnswer.addresses_version`` of the addresses here; None: none are wanted
    wait_s: float = 0.0


class Share(Control, frozen=True):
    """A sub-token bucket (r_l, b_l) as a lease. Made by ``distributor.model.leases``, read by
    ``broker.leases.lease_holder``.

    (0, 0) means: managed, but no tokens; messages wait. ``full`` is true only in a topic's first grant ever: the bucket
    starts full. Any other new bucket starts empty. ``recall``: the broker keeps what it has of this
    topic, exchanges no more, and reports it (``SyncRequest.held``).
    """

    version: int
    rate: float
    burst: float
    full: bool = False
    lease_s: float | None = None  # None: the share is kept without renewal
    recall: bool = False


class Exchange(Control, frozen=True):
    """How the brokers of a topic may exchange tokens among themselves. Made by
    ``distributor.registry.desired_state``, read by ``broker.leases.gdrl_agent``.

    ``epoch`` grows whenever the exchange begins anew; messages of another epoch are refused.
    """

    epoch: int
    rate: float  # of the topic, msg/s
    burst: float | None = None  # of the topic, messages; None: an earlier version does not say
    members: dict[str, str] = {}  # {broker: HOST:PORT of its HTTP}
    partners: str = "random"  # or "ring"
    indicator: str = "slack"  # or "fill"
    batch: int = 1  # largest number of messages that one of the broker's publishers sends at once
    capacity: float | None = None  # msg/s that the receiving broker can process; None: not known


class ContractTerms(Control, frozen=True):
    """Which contracts the clients of a topic are under, by their namespaces. Empty names are none. Made by
    ``distributor.registry.desired_state``, read by the engine (``limiter/contracts.rs``)."""

    publishers: str = ""  # of all that ``named`` does not name, undeclared ones too
    named: dict[str, list[str]] = {}  # {namespace: publishers assigned to this broker}
    consumers: str = ""
    tenant: str = ""  # a subject of the namespace "tenants"


class BrokerContract(Control, frozen=True):
    """A contract as brokers enforce it: JSON of ``srtm.contracts``, which the engine reads."""

    namespace: str
    subject: str  # a pattern
    core: msgspec.Raw
    replicated: bool = False  # brokers tell one another what was taken (``ContractNews``)


class BrokerContracts(Control, frozen=True):
    """All contracts, or those that differ from the ones of ``since``. Made by ``distributor.registry.desired_state``,
    read by ``broker.leases.contract_holder``."""

    version: int  # of the last change of any; 0: there was none
    contracts: list[BrokerContract] = []
    since: int = 0  # above 0: a version; ``contracts`` has what is new or changed since
    removed: list[tuple[str, str]] = []  # since then: namespace, pattern


class ContractNews(Control, frozen=True):
    """What clients took of replicated contracts at the sender, from broker to broker. Made and read by
    ``broker.leases.contract_news``."""

    sender: str
    incarnation: str
    number: int  # grows; the next message to a receiver only once this one was acknowledged
    taken: list[tuple[str, str, int]]  # namespace, subject, cost
    late: bool = False  # since the receiver was last reached, or the sender started: a burst of each at most counts


class Overdrawn(Control, frozen=True):
    """By how much subjects of replicated contracts are below zero at a broker, for one that starts. Made and read by
    ``broker.leases.contract_agent``."""

    owed: list[tuple[str, str, int]]  # namespace, subject, tokens


class DesiredTopic(Control, frozen=True):
    """One managed topic as a broker is to run it."""

    topic: str
    share: Share
    on_excess: str = "delay"
    max_backlog: int = 1_000_000
    max_backlog_bytes: int = 1 << 30
    publishers: list[str] = []  # ids assigned to this broker
    assignment_version: int = 0
    channels: list[str] = []  # of the topic on any broker, to be created before publishers come
    histories: bool = False  # the mode follows the traffic: send ``TopicHistory``
    steady_histories: bool = False  # steady traffic need not be reported
    exchange: Exchange | None = None  # under ``gdrl``, once all shares are in force
    mqtt_filters: list[str] = []  # what matches one of them belongs to the topic
    promise_ms: float = 0.0  # latency of the topic's promise; 0: an earlier version does not say
    mqtt_name: str = ""  # of messages that come by NSQ; "": the topic's own
    mqtt_v3_excess: str = "delay"  # or "close", "drop": publishes of MQTT 3.1.1 above the limit
    terms: ContractTerms = ContractTerms()
    mqtt_groups: list[str] = []  # shared subscriptions ($share/GROUP/FILTER) that are there without members too


class Move(Control, frozen=True):
    """The broker that an unassigned publisher belongs to. Made by ``distributor.sync.service``; the broker tells the
    publisher (``_move_``) if it understands assignments."""

    topic: str
    publisher_id: str
    address: str  # HOST:PORT
    version: int
    mqtt_address: str = ""  # of the same broker; "": it speaks none in clear
    mqtt_ports: MqttPorts = MqttPorts()  # of the same broker


class TopicVerdict(Control, frozen=True):
    """The word on a topic's promise: kept, broken or unknown."""

    verdict: str
    latency_ms: float | None = None  # that the promise is about; None: not known, or without end


class SyncAnswer(Control, frozen=True):
    """The desired state of one broker: every managed topic of the cluster, or, as a delta, those that differ from
    the state ``since``."""

    version: int
    since: int = 0  # above 0: a delta to the state of this version
    removed: list[str] = []  # of a delta: topics that are no longer managed
    reported: int = 0  # number of the latest request whose reports are known; 0: all reports are needed
    unchanged: bool = False  # the state is that of ``have_version``; ``topics`` is left out
    topics: list[DesiredTopic] = []
    moves: list[Move] = []
    draining: bool = False  # take no new messages, deliver the others, end
    measurements: list[MeasurementRequest] = []  # all that are to run, even if ``unchanged``
    cluster: int = 0  # identity of the store; 0: an earlier version
    brokers: dict[str, str] | None = None  # {broker: incarnation} that the cluster has; None: as told before
    broker_claims: dict[str, list[str]] = {}  # {broker of ``brokers``: its claims}, of those that state them
    contracts: BrokerContracts | None = None  # None: as before, or a distributor of an earlier version
    addresses: dict[str, str] | None = None  # {broker: its HTTP address}, of all that live; None: as told before
    addresses_version: int = 0  # differs for other addresses
    verdicts: dict[str, TopicVerdict] | None = None  # of topics that have a share at the broker; None: not asked for
    purged: list[str] = []  # topics removed since ``have_version``, to be deleted with their messages


class DeadNotice(Control, frozen=True):
    """Proof that one incarnation of a broker has ended (``POST /v1/brokers/NAME/dead``). Made by
    ``srtm.cluster.supervisor``, an operator, or a broker that has drained; read by ``distributor.api.app``."""

    incarnation: str
    reason: str = ""
