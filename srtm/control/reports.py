"""What a broker reports of itself with a sync: traffic and latency of topics, unassigned publishers, undelivered
messages, its machine."""

from __future__ import annotations

from srtm.control.message import Control


class LatencyMs(Control, frozen=True):
    """Percentiles of one latency histogram, in milliseconds, with the number of samples."""

    count: int = 0
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0


class TopicLatency(Control, frozen=True):
    """The four histograms of a topic over one period."""

    access: LatencyMs = LatencyMs()
    processing: LatencyMs = LatencyMs()
    consumer_wait: LatencyMs = LatencyMs()
    total: LatencyMs = LatencyMs()


class ChannelQueue(Control, frozen=True):
    """What a channel of a topic has not delivered yet."""

    channel: str
    depth: int = 0  # messages that no consumer has taken
    in_flight: int = 0  # messages that consumers hold
    consumers: int = 0
    paused: bool = False


class TopicReport(Control, frozen=True):
    """One topic on one broker, now. Made by ``broker.sync.reports``, read by ``distributor.sync.service``. Counters
    are since the broker's start."""

    topic: str
    share_version: int  # of the share in force; 0: none
    received: int = 0
    released: int = 0
    delayed: int = 0
    rejected: int = 0
    undeclared: int = 0  # messages from publishers that are not assigned to this broker
    backlog: int = 0  # messages waiting for tokens now
    largest_backlog: float = 0.0  # largest unfinished work U = b - tokens + waiting, messages, last 60 s
    holds_messages: bool = False  # some wait here or are in flight, also from before the start
    channels: list[str] = []
    consumed: list[str] = []  # channels that have a consumer now
    consumers: list[int] = []  # clients of each of ``consumed``; empty: a broker of an earlier version does not say
    rate: float = 0.0  # of the share in force, msg/s (under ``gdrl`` other than the distributor dealt)
    burst: float = 0.0
    last_60s: TopicLatency = TopicLatency()
    since_start: TopicLatency = TopicLatency()
    recent: TopicLatency | None = None  # the last 5 to 10 s
    depth: int = 0  # messages let go that no channel has yet: there is none, or the topic is paused
    queues: list[ChannelQueue] = []  # of channels that hold messages
    network_ms: float | None = (
        None  # publisher to broker and broker to consumer, medians; None: the broker does not say
    )
    mqtt_refused: list[int] = []  # publishes by MQTT that were not taken, as in ``MqttLosses``
    mqtt_dropped: list[int] = []


class LinkLatency(Control, frozen=True):
    """How long messages of a topic at another broker took until they were sent to MQTT's subscribers here, over a link:
    one sample a message and class of subscribers. Made by ``broker.sync.link_reports``, read by
    ``distributor.sync.service``."""

    origin: str  # the other broker, where they took their tokens
    topic: str
    network_ms: float | None = None  # of the link, one way; None: not known
    last_60s: TopicLatency = TopicLatency()
    since_start: TopicLatency = TopicLatency()
    recent: TopicLatency | None = None  # the last 5 to 10 s


class UnassignedPublisher(Control, frozen=True):
    """Publisher ``publisher_id`` sends to ``topic`` on this broker but is not assigned to it. Made by
    ``broker.sync.unassigned_publishers``."""

    topic: str
    publisher_id: str


class ContractCounts(Control, frozen=True):
    """What was asked of one contract since it was set or changed there. Made by ``broker.sync.contract_counts``."""

    namespace: str
    subject: str  # a pattern
    counts: list[tuple[int, int, int]]  # of each policy: publishes allowed and refused, messages of the allowed ones


class ContractSubject(Control, frozen=True):
    """A client that a broker checked often, and what its contract has left for it there. Made by the engine
    (``limiter/contracts.rs``), read by ``distributor.page.contract_subjects``."""

    subject: str  # at most 256 bytes of it
    contract: str  # the pattern of the contract that counts for it
    checks: int  # publishes or deliveries, by a sample of one in 16
    remaining: list[int]  # whole tokens of each policy


class MessagesLeft(Control, frozen=True):
    """Messages that a broker has not delivered yet."""

    queued: int = 0
    in_flight: int = 0
    deferred: int = 0
    waiting: int = 0  # for tokens

    @property
    def total(self) -> int:
        return self.queued + self.in_flight + self.deferred + self.waiting


class DrainProgress(Control, frozen=True):
    """How far a drain has got. Made by ``broker.sync.drain``, read by the distributor in every sync, and by ``srtm
    drain --broker`` (``/v1/drain``)."""

    broker: str
    state: str  # "serving" | "draining" | "drained" (the broker is about to end)
    left: MessagesLeft = MessagesLeft()
    obstacles: list[str] = []  # what a person has to change before it can end


class BrokerMachine(Control, frozen=True):
    """The machine that a broker runs on. Made by ``broker.runtime.machine``, read by the distributor, which stores
    capacities with it."""

    cores: int  # that the process may run on
    kernel: str
    cpu: str  # model, as the kernel names it; the architecture where it has no name


class Throttling(Control, frozen=True):
    """Processor time that a broker's process did not get. Made by ``broker.runtime.cpu_throttling``, read by the
    distributor: under throttling a measured capacity is worthless. The two fractions are of the last 10 s, 0 to 1."""

    quota_cores: float | None = None  # quota of the control group, in processors; None: no quota
    throttled_share: float = 0.0  # fraction of the quota's periods in which it was used up
    throttled_s: float = 0.0  # for which the process was held back, since the broker's start
    steal_share: float = 0.0  # fraction of processor time that the host gave to other virtual machines
