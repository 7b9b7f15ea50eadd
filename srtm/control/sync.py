"""The conversation of a broker with its distributor: what it has (``SyncRequest``), and what it shall have
(``SyncAnswer``).

Level-triggered pull: a broker calls ``POST /v1/brokers/NAME/sync`` with a ``SyncRequest``; the ``SyncAnswer`` is its
desired state: whole, or as differences from a state that both know. Reports go up in the same two ways; whoever does
not know what differences begin with says so, and is told everything. With ``wait_s > 0`` the distributor holds the
answer until the state's version differs from ``have_version`` (or moves are due), or until the wait is over.

Who has proof that a broker's process has ended says so in its place (``DeadNotice``).
"""

from __future__ import annotations

from srtm.control.measuring import MeasurementRequest
from srtm.control.message import Control
from srtm.control.reports import BrokerMachine, DrainProgress, Stranger, Throttling, TopicReport


class SyncRequest(Control, frozen=True):
    """Made by ``broker.sync.loop``, read by ``distributor.api.app``."""

    incarnation: str  # START-DIRECTORY: new at every start of the broker process, sorts by it in one data directory
    srtm_version: str
    tcp_address: str  # HOST:PORT that clients connect to
    http_address: str
    mcap: float  # msg/s; 0: not stated
    accepting: bool = True  # false: publishers are refused, for it drains
    drain: DrainProgress | None = None  # None: it does not drain
    have_version: int = 0  # version of the desired state that the broker has in force (SyncAnswer.version); 0: none
    remembered: int = 0  # version of the one that an earlier incarnation left in the data directory; 0: none
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
    machine: BrokerMachine | None = None  # None: it does not say
    wait_s: float = 0.0


class Share(Control, frozen=True):
    """A sub-token bucket (r_l, b_l) as a lease. Made by ``distributor.model.leases``, read by
    ``broker.leases.lease_holder``.

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
    """Made by ``distributor.registry.desired_state``, read by ``broker.leases.gdrl_agent``: the members of a topic may
    exchange what they hold among themselves. ``epoch`` grows with every new beginning; what belongs to another one is
    refused."""

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
    steady_histories: bool = False  # and seldom, while traffic is steady
    exchange: Exchange | None = None  # under ``gdrl``, once all shares are in force


class Move(Control, frozen=True):
    """Made by ``distributor.registry.registry`` for a stranger: where that publisher belongs. The broker tells it
    (``_move_``) if it is aware."""

    topic: str
    publisher_id: str
    address: str  # HOST:PORT
    version: int


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


class DeadNotice(Control, frozen=True):
    """Made by ``srtm.cluster.supervisor`` (or an operator), read by ``distributor.api.app`` at ``POST
    /v1/brokers/NAME/dead``: proof of death of one incarnation."""

    incarnation: str
    reason: str = ""
