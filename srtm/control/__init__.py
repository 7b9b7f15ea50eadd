"""What crosses a process boundary on the control plane: JSON over HTTP, one frozen type a message (msgspec).

Each type names its one maker and its one reader. Rates are msg/s, bursts are messages; both are multiples of 1e-6
(``srtm.units``), which JSON numbers carry exactly. Times say their unit in the name. Versions only
grow; a reader refuses one older than what it has.

A module a conversation: ``sync`` (a broker and its distributor) with ``reports`` (what the broker tells in it),
``measuring``, ``adapting`` (histories and proposals), ``gdrl`` (brokers among themselves), ``clients``. All names are
imported from here.
"""

from srtm.control.adapting import (
    BrokerHistory,
    BrokerTraits,
    HistoryAnswer,
    HistoryReport,
    ProposalResult,
    ProposalResults,
    ProposedShare,
    RateChange,
    ShareProposal,
    ShareProposals,
    TopicHistories,
    TopicHistory,
    TopicTraits,
)
from srtm.control.clients import FITTING_ENDED, Assignment, Lookup, Problem, Producer, Trace, schema_of
from srtm.control.gdrl import GdrlAnswer, GdrlCredit, GdrlMessage, GdrlOffer
from srtm.control.measuring import MeasuredTrace, MeasurementAnswer, MeasurementReport, MeasurementRequest, Promise
from srtm.control.message import Control, check_broker_name
from srtm.control.reports import (
    BrokerMachine,
    DrainProgress,
    LatencyMs,
    MessagesLeft,
    Stranger,
    Throttling,
    TopicLatency,
    TopicReport,
)
from srtm.control.sync import DeadNotice, DesiredTopic, Exchange, Move, Share, SyncAnswer, SyncRequest

__all__ = [
    "FITTING_ENDED",
    "Assignment",
    "BrokerHistory",
    "BrokerMachine",
    "BrokerTraits",
    "Control",
    "DeadNotice",
    "DesiredTopic",
    "DrainProgress",
    "Exchange",
    "GdrlAnswer",
    "GdrlCredit",
    "GdrlMessage",
    "GdrlOffer",
    "HistoryAnswer",
    "HistoryReport",
    "LatencyMs",
    "Lookup",
    "MeasuredTrace",
    "MeasurementAnswer",
    "MeasurementReport",
    "MeasurementRequest",
    "MessagesLeft",
    "Move",
    "Problem",
    "Producer",
    "Promise",
    "ProposalResult",
    "ProposalResults",
    "ProposedShare",
    "RateChange",
    "Share",
    "ShareProposal",
    "ShareProposals",
    "Stranger",
    "SyncAnswer",
    "SyncRequest",
    "Throttling",
    "TopicHistories",
    "TopicHistory",
    "TopicLatency",
    "TopicReport",
    "TopicTraits",
    "Trace",
    "check_broker_name",
    "schema_of",
]
