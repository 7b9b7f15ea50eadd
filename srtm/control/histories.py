"""Messages to and from the adaptor: histories of topics, which come from the brokers through the distributor, and
proposals of shares."""

from __future__ import annotations

from srtm.control.message import Control
from srtm.control.sync import Share
from srtm.topics.adaptation import Adaptation


class RateChange(Control, frozen=True):
    """Arrivals of a topic on one broker since the rate changed. Most of them are in bins that are still open."""

    since_ns: int  # wall clock
    span_ns: int  # from ``since_ns`` on
    arrivals: int  # messages in it
    waiting: int  # for tokens, at its end


class TopicHistory(Control, frozen=True, omit_defaults=True):
    """One topic on one broker, in consecutive bins. Made by ``broker.history.schedule``.

    All columns but ``supply`` have the same length; bins without messages count. Between two reports only what was lost
    is left out, and the time after a report of steady traffic. Demand is arrivals plus waiting messages.
    """

    topic: str
    share_version: int  # of the share in force at the end of the last bin; with a change: now; 0: no messages yet
    first_ns: int  # wall clock: when the first bin began
    arrivals: list[int] = []  # messages in the bin, rejected ones too
    waiting: list[int] = []  # messages waiting for tokens when the bin began
    unfinished: list[float] = []  # largest unfinished work U = b - tokens + waiting in it, messages
    # Sum of the access delays of the bin's messages, as foreseen on arrival. Rejected messages have none; under a share
    # of 0 the delay is not known. Empty: no delay in any bin.
    delay_ns: list[int] = []
    # (index of a bin, msg/s): the rate of the share in force at the end of that bin, and of the following bins up to
    # the next pair. Before the first pair the rate is not known: no message arrived.
    supply: list[tuple[int, float]] = []
    bin_ns: int = 100_000_000
    change: RateChange | None = None  # the reason for this report, which may have no bins
    steady: bool = False  # traffic stays as in this report until the next one

    @property
    def end_ns(self) -> int:
        """Wall-clock time at which the last bin ended."""
        return self.first_ns + len(self.arrivals) * self.bin_ns


class HistoryReport(Control, frozen=True):
    """The histories that a broker has to report. Made by ``broker.history.uploader``, read by
    ``distributor.sync.history_store`` (``POST /v1/brokers/NAME/history``).

    Sent about once a second, also where nothing comes; at once when a rate has changed, then four times a second for
    some seconds; once when a topic that may be seldom has become steady. A lost report is not repeated: the next one
    has the present state.
    """

    incarnation: str
    topics: list[TopicHistory] = []
    still_steady: list[str] = []  # topics whose latest report still holds, each named once in five minutes


class BrokerHistory(Control, frozen=True):
    """One report of one broker on one topic."""

    broker: str
    history: TopicHistory


class BrokerTraits(Control, frozen=True):
    """A broker's part in a topic, besides what it reports."""

    capacity: float | None = None  # msg/s of this topic that the broker can process; None: not known
    batch: int = 1  # largest number of messages that one of its publishers sends at once
    dispersion: float = 1.0  # of its declared traffic; 1: Poisson
    rate: float = 0.0  # of its declared traffic, msg/s


class TopicTraits(Control, frozen=True):
    """How a topic is to be adapted (``srtm.topics.adaptation``), and what its policy has to know. Made by
    ``distributor.placement.proposals``."""

    percentile: float = 99.0
    window_s: float = Adaptation.window_s
    interval_s: float = Adaptation.interval_s
    floor: float = Adaptation.floor
    dead_band: float = Adaptation.dead_band
    brokers: dict[str, BrokerTraits] = {}


class TopicHistories(Control, frozen=True):
    """A topic with new reports, or whose shares must be proposed anew: its limits, brokers or shareholders changed.
    ``shares`` is {broker: its target share}, also of brokers that have reported nothing."""

    topic: str
    mode: str
    rate: float  # (r, b) of the topic
    burst: float
    version: int  # the highest version of its shares; a proposal names it
    shares: dict[str, Share] = {}
    reports: list[BrokerHistory] = []  # in order of arrival
    traits: TopicTraits = TopicTraits()


class HistoryAnswer(Control, frozen=True):
    """Topics with news after ``since``: ``GET /v1/history?since=N&wait_s=S``. Made by
    ``distributor.sync.history_store``, read by the adaptor.

    A ``since`` that this distributor never returned counts as 0, which returns all that is kept: the last 10 s, and
    steady traffic. The answer is held back for up to ``wait_s`` while there is no news.
    """

    version: int  # the next ``since``
    topics: list[TopicHistories] = []
    gone: list[str] = []  # topics removed after ``since``; a topic of that name in ``topics`` is a new one


class ProposedShare(Control, frozen=True):
    """(r_l, b_l): msg/s and messages."""

    rate: float
    burst: float


class ShareProposal(Control, frozen=True):
    """New shares of one topic, for every broker that has one. Made by the adaptor."""

    topic: str
    mode: str  # under which the proposal was made
    version: int  # ``TopicHistories.version`` that the proposal rests on
    shares: dict[str, ProposedShare]
    reason: str = ""


class ShareProposals(Control, frozen=True):
    """The body of ``PUT /v1/shares``, read by ``distributor.placement.proposals``."""

    proposals: list[ShareProposal]


class ProposalResult(Control, frozen=True):
    """What became of one proposal."""

    topic: str
    taken: bool
    problem: str = ""  # why it was not taken


class ProposalResults(Control, frozen=True):
    """The answer to ``PUT /v1/shares``, in the order of the proposals."""

    results: list[ProposalResult]
