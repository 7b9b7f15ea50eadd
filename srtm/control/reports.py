"""What a broker tells of itself, as part of its syncs: traffic and latency of topics, publishers that belong elsewhere,
what it has not delivered yet, what others take of its processors."""

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
    """The four histograms of a topic (design section 5) over one period."""

    access: LatencyMs = LatencyMs()
    processing: LatencyMs = LatencyMs()
    consumer_wait: LatencyMs = LatencyMs()
    total: LatencyMs = LatencyMs()


class TopicReport(Control, frozen=True):
    """Made by ``broker.sync.reports``, read by the distributor's registry: one topic on one broker, now. Counters since
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
    """Made by ``broker.sync.loop``: publisher ``publisher_id`` publishes to ``topic`` on this broker but is not
    assigned here."""

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
    """Made by ``broker.sync.drain``; read by ``srtm drain --broker`` at ``/v1/drain``, and by the distributor in every
    sync."""

    broker: str
    state: str  # "serving" | "draining" | "drained" (it is about to end)
    left: MessagesLeft = MessagesLeft()
    obstacles: list[str] = []  # what somebody has to do something about


class BrokerMachine(Control, frozen=True):
    """Made by ``broker.runtime.machine`` once, read by the distributor: what a broker runs on. Capacities are stored
    with it."""

    cores: int  # that its process may run on
    kernel: str
    cpu: str  # model, as the kernel names it; the architecture where it has no name


class Throttling(Control, frozen=True):
    """Made by ``broker.runtime.cpu_throttling``, read by the distributor: what others take of the processors that a
    broker thinks it has. Shares are of the last seconds, 0 to 1; they make a measured capacity worthless."""

    quota_cores: float | None = None  # of the control group, processors' worth; None: no quota
    throttled_share: float = 0.0  # of the quota's periods, those in which it was used up
    throttled_s: float = 0.0  # held back, since the broker's start
    steal_share: float = 0.0  # of the time of all processors, what the host of this virtual machine gave to others
