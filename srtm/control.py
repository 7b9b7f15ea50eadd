"""What crosses a process boundary on the control plane: JSON over HTTP, one frozen type a message (msgspec).

Each type names its one maker and its one reader. Rates are msg/s, bursts are messages; both are multiples of 1e-6
(``srtm.splitting``), which JSON numbers carry exactly. Times say their unit in the name. Versions only grow; a reader
refuses one older than what it has.

The flow (level-triggered pull): a broker calls ``POST /v1/brokers/NAME/sync`` with a ``SyncRequest``; the
``SyncAnswer`` is its desired state: whole, or as differences from a state that both know. Reports go up in the same
two ways; whoever does not know what differences begin with says so, and is told everything. With ``wait_s > 0`` the
distributor holds the answer until the state's version differs from ``have_version`` (or moves are due), or until the
wait is over.
"""

from __future__ import annotations

import re

import msgspec

from srtm.errors import BadInput

_BROKER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Control(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False, forbid_unknown_fields=False):
    """Base of all messages. Unknown fields are ignored, so that versions may differ during an upgrade."""


class LatencyMs(Control, frozen=True):
    """Percentiles of one latency histogram, in milliseconds, with the number of samples."""

    count: int = 0
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0


class TopicLatency(Control, frozen=True):
    """The four histograms of a topic (design section 5) over one period."""

    access: LatencyMs = LatencyMs()
    processing: LatencyMs = LatencyMs()
    consumer_wait: LatencyMs = LatencyMs()
    total: LatencyMs = LatencyMs()


class TopicReport(Control, frozen=True):
    """Made by ``broker.reports``, read by the distributor's registry: one topic on one broker, now. Counters since
    the broker's start."""

    topic: str
    share_version: int  # version of the share in force; 0: none yet
    received: int = 0
    released: int = 0
    delayed: int = 0
    rejected: int = 0
    undeclared: int = 0  # messages from publishers that the topic does not name here
    backlog: int = 0  # messages that wait for tokens now
    largest_backlog: float = 0.0  # largest unfinished work U = b - tokens + waiting, messages, last 60 s
    channels: list[str] = []
    consumed: list[str] = []  # of these, the ones that have a consumer now
    rate: float = 0.0  # of the share in force now, msg/s (under ``gdrl`` not what the distributor dealt)
    burst: float = 0.0
    last_60s: TopicLatency = TopicLatency()
    since_start: TopicLatency = TopicLatency()
    recent: TopicLatency | None = None  # the last 5 to 10 s


class Stranger(Control, frozen=True):
    """Made by ``broker.sync``: publisher ``publisher_id`` publishes to ``topic`` on this broker but is not assigned
    here."""

    topic: str
    publisher_id: str


class MessagesLeft(Control, frozen=True):
    """What a broker has not delivered yet."""

    queued: int = 0
    in_flight: int = 0
    deferred: int = 0
    waiting: int = 0  # for tokens

    @property
    def total(self) -> int:
        return self.queued + self.in_flight + self.deferred + self.waiting


class DrainProgress(Control, frozen=True):
    """Made by ``broker.drain``; read by ``srtm drain --broker`` at ``/v1/drain``, and by the distributor in every
    sync."""

    broker: str
    state: str  # "serving" | "draining" | "drained" (it is about to end)
    left: MessagesLeft = MessagesLeft()
    obstacles: list[str] = []  # what somebody has to do something about


class Throttling(Control, frozen=True):
    """Made by ``broker.throttling``, read by the distributor: what others take of the processors that a broker thinks
    it has. Shares are of the last seconds, 0 to 1; they make a measured capacity worthless."""

    quota_cores: float | None = None  # of the control group, processors' worth; None: no quota
    throttled_share: float = 0.0  # of the quota's periods, those in which it was used up
    throttled_s: float = 0.0  # held back, since the broker's start
    steal_share: float = 0.0  # of the time of all processors, what the host of this virtual machine gave to others


class SyncRequest(Control, frozen=True):
    """Made by ``broker.sync``, read by ``distributor.api``."""

    incarnation: str  # START-DIRECTORY: new at every start of the broker process, sorts by it in one data directory
    srtm_version: str
    tcp_address: str  # HOST:PORT that clients connect to
    http_address: str
    mcap: float  # msg/s; 0: not stated
    accepting: bool = True  # false: publishers are refused, for it drains
    drain: DrainProgress | None = None  # None: it does not drain
    have_version: int = 0  # version of the desired state that the broker has in force (SyncAnswer.version); 0: none
    applied: dict[str, int] = {}  # {topic: version of the share in force}: the acknowledgement of the lease protocol
    held: dict[str, tuple[int, int]] = {}  # {topic: rate, burst, micro}: what is in force where ``applied`` is a recall
    number: int = 0  # in this incarnation, 1, 2, ...; 0: it does not count them
    topics: list[TopicReport] = []  # managed topics and others that have traffic
    # Above 0: ``topics`` are only those whose report may be other than when the request of that number was made, and
    # ``gone`` those that were reported then, or since, and are no more.
    reports_since: int = 0
    gone: list[str] = []
    partial: bool = False  # an acknowledgement: only topics whose shares have just changed were looked at
    takes_differences: bool = False  # whether ``SyncAnswer.since`` is understood
    strangers: list[Stranger] = []  # new since the last sync that was answered
    lab_service_time_ns: int = 0  # of a broker in the laboratory: what every message takes
    throttling: Throttling | None = None  # None: the system does not tell
    wait_s: float = 0.0


class Share(Control, frozen=True):
    """A sub-token bucket (r_l, b_l) as a lease. Made by ``distributor.leases``, read by ``broker.lease_holder``.

    (0, 0) means: managed, but no tokens here; messages that come wait. ``full`` is true only on a topic's first grant
    ever: the bucket starts full; in every other case a bucket that did not exist starts empty (design section 3).
    ``recall``: whatever the broker has of this topic it keeps, exchanges no more, and names (``SyncRequest.held``).
    """

    version: int
    rate: float
    burst: float
    full: bool = False
    lease_s: float | None = None  # None: the rule "keep"
    recall: bool = False


class Exchange(Control, frozen=True):
    """Made by ``distributor.desired``, read by ``broker.gdrl_agent``: the members of a topic may exchange what they
    hold among themselves. ``epoch`` grows with every new beginning; what belongs to another one is refused."""

    epoch: int
    rate: float  # of the topic, msg/s
    members: dict[str, str] = {}  # {broker: HOST:PORT of its HTTP}
    partners: str = "random"  # or "ring"
    indicator: str = "slack"  # or "fill"
    batch: int = 1  # the largest that one of this broker's publishers sends at once
    capacity: float | None = None  # msg/s that this broker can process; None: not known


class DesiredTopic(Control, frozen=True):
    """One managed topic as one broker shall run it."""

    topic: str
    share: Share
    on_excess: str = "delay"
    max_backlog: int = 1_000_000
    max_backlog_bytes: int = 1 << 30
    publishers: list[str] = []  # ids assigned to this broker
    assignment_version: int = 0
    channels: list[str] = []  # every channel that the topic has anywhere: to be created before publishers come
    histories: bool = False  # its mode follows the traffic: send ``TopicHistory``
    exchange: Exchange | None = None  # under ``gdrl``, once all shares are in force


class Move(Control, frozen=True):
    """Made by ``distributor.registry`` for a stranger: where that publisher belongs. The broker tells it (``_move_``)
    if it is aware."""

    topic: str
    publisher_id: str
    address: str  # HOST:PORT
    version: int


class Promise(Control, frozen=True):
    """What a topic that is already on a broker was promised."""

    topic: str
    percentile: float
    target_ns: int


class MeasurementRequest(Control, frozen=True):
    """Made by ``distributor.measured``, read by the broker: a measurement that it shall be running. One that is no
    longer named has ended.

    It begins ``after_ns`` after the broker has learned of it, with share version ``share_version`` in force; it reports
    every ``report_ns``, at the latest after ``at_most_ns`` of measuring for the last time.
    """

    id: str
    topic: str
    percentile: float
    target_ns: int  # also the length of an interval
    share_version: int
    after_ns: int = 0  # for buckets to fill
    at_least_ns: int = 0  # of measuring, before the first report (unless a promise is broken)
    at_most_ns: int = 0
    report_ns: int = 200_000_000
    others: list[Promise] = []  # to be watched meanwhile, second by second
    trace_wanted: bool = False  # enough: stop, and send what arrived


class MeasuredTrace(Control, frozen=True):
    """Messages of one measurement in order of decision, those that were sent. Columns of equal length, as differences,
    because those are short in JSON."""

    publishers: list[str] = []  # ids
    publisher: list[int] = []  # index into ``publishers``
    first_ns: int = 0  # arrival of the first, wall clock: traces of several brokers are joined
    gap_ns: list[int] = []  # arrival less that of the message before, never negative; of the first: 0
    access_ns: list[int] = []  # due less arrival
    processing_ns: list[int] = []  # sent less due, without the wait for a subscriber


class MeasurementReport(Control, frozen=True):
    """Made by the broker, read by ``distributor.measured`` at ``POST /v1/brokers/NAME/measurements/ID``. The columns
    are of intervals since the report before, those without a message left out."""

    incarnation: str
    sequence: int  # 1, 2, ...: one that comes twice counts once
    interval: list[int] = []  # numbers of intervals, 0 when the measurement began; told when all of it was sent
    count: list[int] = []  # messages that arrived in it
    late: list[int] = []  # of them over the target: access, processing and network together
    latency_ns: list[int] = []  # sum over them
    measured: int = 0  # messages since the measurement began, and their percentile of each delay
    lost: int = 0  # of those that came since, what the trace dropped before it was sent
    unsent: int = 0  # and what no subscriber had taken 2 s after it was due: not measured
    access_ns: int = 0
    processing_ns: int = 0
    total_ns: int = 0
    others_kept: bool = True  # every promise to another topic, in the last second
    others_worst_ns: int = 0  # the largest of their percentiles in it
    final: bool = False  # it has measured for as long as it was to
    lab_service_time_ns: int = 0  # of a broker in the laboratory: what every message takes
    trace: MeasuredTrace | None = None  # if it was wanted; the last word then


class MeasurementAnswer(Control, frozen=True):
    """The answer to a report, so that nobody waits for the next sync. Made by the distributor, read by the broker."""

    go_on: bool  # false: forget the measurement
    trace_wanted: bool = False


class SyncAnswer(Control, frozen=True):
    """The desired state of one broker: every managed topic of the cluster is named, or, as differences, every one that
    is not as in the state ``since``, which the broker said it has."""

    version: int
    since: int = 0  # above 0: differences, ``removed`` are the topics that are managed no more
    removed: list[str] = []
    reported: int = 0  # number of the latest request whose reports are known here; 0: all of them must be told
    unchanged: bool = False  # true: the state is that of have_version, topics is left out
    topics: list[DesiredTopic] = []
    moves: list[Move] = []
    draining: bool = False  # take no new messages, deliver what there is, end
    measurements: list[MeasurementRequest] = []  # every one that shall run here; told even when ``unchanged``
    purged: list[str] = []  # topics removed with their messages since have_version: to be deleted here, queues and all


class TopicHistory(Control, frozen=True):
    """Made by ``broker.histories``: one topic on one broker, in bins of ``bin_ns`` that follow one another. Columns of
    equal length. A bin without a message is there, too; times when nothing came and nothing waited may be left out
    between two reports. Demand (design section 11) is arrivals plus what waited."""

    topic: str
    share_version: int  # of the share in force at the end of the last bin
    first_ns: int  # wall clock: when the first bin began
    arrivals: list[int] = []  # messages that came in the bin, refused ones too
    waiting: list[int] = []  # for tokens, when it began
    unfinished: list[float] = []  # largest unfinished work U = b - tokens + waiting in it, messages
    bin_ns: int = 100_000_000
    changed: bool = False  # the rate of arrivals is not what it was: that is why it comes now

    @property
    def end_ns(self) -> int:
        """Wall clock: when the last bin ended."""
        return self.first_ns + len(self.arrivals) * self.bin_ns


class HistoryReport(Control, frozen=True):
    """Made by ``broker.histories``, read by ``distributor.histories`` at ``POST /v1/brokers/NAME/history``: about once
    a second, at once when something has changed, four times a second while it goes on changing. What is not taken in
    time is not sent again."""

    incarnation: str
    topics: list[TopicHistory] = []


class BrokerHistory(Control, frozen=True):
    """One report of one broker on one topic, as it came."""

    broker: str
    history: TopicHistory


class BrokerTraits(Control, frozen=True):
    """What is known of a broker's part in a topic, besides what it reports."""

    capacity: float | None = None  # msg/s of this topic that it can process; None: not known
    batch: int = 1  # the largest that one of its publishers sends at once, messages
    dispersion: float = 1.0  # of its traffic, as declared: 1 for Poisson
    rate: float = 0.0  # of its traffic, as declared, msg/s


class TopicTraits(Control, frozen=True):
    """Made by ``distributor.adapting``: how a topic is to be adapted (``srtm.adaptation``), and what its policy must
    know."""

    percentile: float = 99.0
    window_s: float = 10.0
    interval_s: float = 1.0
    floor: float = 0.02
    dead_band: float = 0.1
    brokers: dict[str, BrokerTraits] = {}


class TopicHistories(Control, frozen=True):
    """One topic whose histories have grown. ``shares``: {broker: what it is to have}, also where nothing was heard."""

    topic: str
    mode: str
    rate: float  # (r, b) of the topic
    burst: float
    version: int  # the highest of its shares' versions: a proposal names it
    shares: dict[str, Share] = {}
    reports: list[BrokerHistory] = []  # in the order in which they came
    traits: TopicTraits = TopicTraits()


class HistoryAnswer(Control, frozen=True):
    """Made by ``distributor.histories``, read by the adaptor: the answer of ``GET /v1/history?since=N&wait_s=S``.
    Topics without a report after ``since`` are left out; a ``since`` that this distributor never gave counts as 0,
    which gives all that is kept (the last 10 s). Held back for up to ``wait_s`` while there is nothing to tell."""

    version: int  # the next ``since``
    topics: list[TopicHistories] = []


class ProposedShare(Control, frozen=True):
    """(r_l, b_l): msg/s and messages."""

    rate: float
    burst: float


class ShareProposal(Control, frozen=True):
    """Made by the adaptor: other shares for one topic, of each broker that has one."""

    topic: str
    mode: str  # under which they were made
    version: int  # TopicHistories.version that they rest on
    shares: dict[str, ProposedShare]
    reason: str = ""


class ShareProposals(Control, frozen=True):
    """The body of ``PUT /v1/shares``, read by ``distributor.adapting``."""

    proposals: list[ShareProposal]


class ProposalResult(Control, frozen=True):
    """What became of one proposal."""

    topic: str
    taken: bool
    problem: str = ""  # why it was not


class ProposalResults(Control, frozen=True):
    """The answer of ``PUT /v1/shares``, read by the adaptor; in the order of the proposals."""

    results: list[ProposalResult]


class GdrlOffer(Control, frozen=True):
    """What a broker has of a topic, and wants. Micro-units; demand and capacity in msg/s."""

    number: int
    rate: int
    burst: int
    demand: float
    dispersion: float = 1.0
    batch: int = 1
    capacity: float | None = None


class GdrlCredit(Control, frozen=True):
    """What the sender took out of its share for the receiver, after its offer of that number. Micro-units."""

    number: int
    rate: int
    burst: int


class GdrlMessage(Control, frozen=True):
    """Made and read by ``broker.gdrl_agent``, at ``POST /v1/gdrl/exchange``: an offer, or a credit."""

    topic: str
    epoch: int
    sender: str
    offer: GdrlOffer | None = None
    credit: GdrlCredit | None = None


class GdrlAnswer(Control, frozen=True):
    """``accepted`` false: nothing was done. To an offer: what has left the answerer, and what it asks for, micro."""

    accepted: bool
    gives_rate: int = 0
    gives_burst: int = 0
    asks_rate: int = 0
    asks_burst: int = 0


class DeadNotice(Control, frozen=True):
    """Made by ``srtm.supervisor`` (or an operator), read by ``distributor.api`` at ``POST /v1/brokers/NAME/dead``:
    proof of death of one incarnation."""

    incarnation: str
    reason: str = ""


class Assignment(Control, frozen=True):
    """Answer of ``GET /v1/topics/NAME/publishers/ID``, read by ``srtm.client``: where this publisher connects."""

    topic: str
    publisher_id: str
    declared: bool
    broker: str
    address: str  # HOST:PORT
    version: int
    reason: str = ""  # the decision log's word on why it is there


class Producer(Control, frozen=True):
    """A broker as nsqlookupd's HTTP answers show it (wire names of nsqlookupd)."""

    remote_address: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str


class Lookup(Control, frozen=True):
    """Answer of ``GET /lookup?topic=``, read by any NSQ consumer and by ``srtm.client``."""

    channels: list[str]
    producers: list[Producer]


def check_broker_name(field: str, name: str) -> None:
    """A broker's name stands in paths and labels. Raises BadInput."""
    if _BROKER_NAME.fullmatch(name) is None:
        rule = "must be 1 to 64 of the characters A-Z a-z 0-9 . _ -, beginning with a letter or digit"
        raise BadInput(field, name, rule)


class Problem(Control, frozen=True):
    """``application/problem+json`` as every service of ours answers a refusal."""

    title: str
    status: int
    detail: str
    field: str | None = None
    value: object = None
    rule: str | None = None
    leader: str | None = None  # of a distributor that stands by: URL of the one that leads, where it is known
