"""What the adaptor hears and says: histories of topics up from the brokers, through the distributor; proposals of
other shares back to it."""

from __future__ import annotations

from srtm.control.message import Control
from srtm.control.sync import Share
from srtm.topics.adaptation import Adaptation


class RateChange(Control, frozen=True):
    """What came to a topic on a broker since its rate of arrivals changed, most of it in bins that are not over."""

    since_ns: int  # wall clock
    span_ns: int  # from then on
    arrivals: int  # messages in it
    waiting: int  # for tokens, at its end


class TopicHistory(Control, frozen=True, omit_defaults=True):
    """Made by ``broker.history.uploader``: one topic on one broker, in bins of ``bin_ns`` that follow one another.
    Columns of equal length, but for ``supply``. A bin without a message is there, too; times when nothing came and
    nothing waited may be left out between two reports. Demand (design section 11) is arrivals plus what waited."""

    topic: str
    share_version: int  # of the share in force at the end of the last bin, with a change: now; 0: nothing came yet
    first_ns: int  # wall clock: when the first bin began
    arrivals: list[int] = []  # messages that came in the bin, refused ones too
    waiting: list[int] = []  # for tokens, when it began
    unfinished: list[float] = []  # largest unfinished work U = b - tokens + waiting in it, messages
    # Sum of the access delays of those that came in the bin, as things stood then; refused ones have none, and of
    # those that came under a share of nothing it is not known. Empty: no delay in any bin.
    delay_ns: list[int] = []
    # (index of a bin, msg/s): the share's rate in force at the end of that bin and of those that follow it, up to the
    # next pair. Of bins before the first pair it is not known: nothing came in them.
    supply: list[tuple[int, float]] = []
    bin_ns: int = 100_000_000
    change: RateChange | None = None  # of the rate of arrivals: that is why it comes now, with or without bins
    steady: bool = False  # until the next report traffic stays as it is in this one: of a topic that may be told so

    @property
    def end_ns(self) -> int:
        """Wall clock: when the last bin ended."""
        return self.first_ns + len(self.arrivals) * self.bin_ns


class HistoryReport(Control, frozen=True):
    """Made by ``broker.history.uploader``, read by ``distributor.sync.histories`` at ``POST /v1/brokers/NAME/history``:
    about once a second, at once when something has changed, four times a second while it goes on changing; once when a
    topic that may say so has become steady. What is not taken in time is not sent again; what is so then follows.
    ``still_steady``: topics that are as their latest report says, each named once in five minutes."""

    incarnation: str
    topics: list[TopicHistory] = []
    still_steady: list[str] = []


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
    """Made by ``distributor.placement.proposals``: how a topic is to be adapted (``srtm.topics.adaptation``), and what
    its policy must know."""

    percentile: float = 99.0
    window_s: float = Adaptation.window_s
    interval_s: float = Adaptation.interval_s
    floor: float = Adaptation.floor
    dead_band: float = Adaptation.dead_band
    brokers: dict[str, BrokerTraits] = {}


class TopicHistories(Control, frozen=True):
    """One topic whose histories have grown, or for which proposals must be others now (its limits, its places, who has
    a share; its fitting has ended), if need be without reports. ``shares``: {broker: what it is to have}, also where
    nothing was heard."""

    topic: str
    mode: str
    rate: float  # (r, b) of the topic
    burst: float
    version: int  # the highest of its shares' versions: a proposal names it
    shares: dict[str, Share] = {}
    reports: list[BrokerHistory] = []  # in the order in which they came
    traits: TopicTraits = TopicTraits()


class HistoryAnswer(Control, frozen=True):
    """Made by ``distributor.sync.histories``, read by the adaptor: the answer of ``GET /v1/history?since=N&wait_s=S``.
    Topics of which there is nothing new after ``since`` are left out; a ``since`` that this distributor never gave
    counts as 0, which gives all that is kept (the last 10 s, and what is steady). Held back for up to ``wait_s`` while
    there is nothing to tell."""

    version: int  # the next ``since``
    topics: list[TopicHistories] = []
    gone: list[str] = []  # topics removed after ``since``: one of that name in ``topics`` is another one


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
    """The body of ``PUT /v1/shares``, read by ``distributor.placement.proposals``."""

    proposals: list[ShareProposal]


class ProposalResult(Control, frozen=True):
    """What became of one proposal."""

    topic: str
    taken: bool
    problem: str = ""  # why it was not


class ProposalResults(Control, frozen=True):
    """The answer of ``PUT /v1/shares``, read by the adaptor; in the order of the proposals."""

    results: list[ProposalResult]
