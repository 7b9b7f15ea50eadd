"""The messages of the control plane: JSON over HTTP between services, one frozen type a message.

May import ``srtm.errors`` and values of ``srtm.topics``. Begin with ``sync``: a broker and its distributor. All names
are imported from here.

Each type names its one maker and its one reader. Rates are in msg/s, bursts in messages; both are multiples of 1e-6
(``srtm.units``), which JSON numbers carry exactly. Versions only grow; a reader refuses a version
older than the one it has.
"""

from srtm.control.client_views import FITTING_ENDED, Assignment, Lookup, Problem, Producer, Trace, schema_of
from srtm.control.gdrl import GdrlAnswer, GdrlCredit, GdrlMessage, GdrlOffer
from srtm.control.histories import (
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
from srtm.control.links import LinkAnswer, LinkRequest
from srtm.control.measurements import MeasuredTrace, MeasurementAnswer, MeasurementReport, MeasurementRequest, Promise
from srtm.control.message import Control, check_broker_name
from srtm.control.mqtt_views import MqttLosses, MqttRetained, MqttSession, MqttSessions
from srtm.control.reports import (
    BrokerMachine,
    ChannelQueue,
    ContractCounts,
    ContractSubject,
    DrainProgress,
    LatencyMs,
    LinkLatency,
    MessagesLeft,
    Throttling,
    TopicLatency,
    TopicReport,
    UnassignedPublisher,
)
from srtm.control.sync import (
    BrokerContract,
    BrokerContracts,
    ContractNews,
    ContractTerms,
    DeadNotice,
    DesiredTopic,
    Exchange,
    Move,
    MqttPorts,
    Overdrawn,
    Share,
    SyncAnswer,
    SyncRequest,
    TopicVerdict,
)

__all__ = [
    "FITTING_ENDED",
    "Assignment",
    "BrokerContract",
    "BrokerContracts",
    "BrokerHistory",
    "BrokerMachine",
    "BrokerTraits",
    "ChannelQueue",
    "ContractCounts",
    "ContractNews",
    "ContractSubject",
    "ContractTerms",
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
    "LinkAnswer",
    "LinkLatency",
    "LinkRequest",
    "Lookup",
    "MeasuredTrace",
    "MeasurementAnswer",
    "MeasurementReport",
    "MeasurementRequest",
    "MessagesLeft",
    "Move",
    "MqttLosses",
    "MqttPorts",
    "MqttRetained",
    "MqttSession",
    "MqttSessions",
    "Overdrawn",
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
    "SyncAnswer",
    "SyncRequest",
    "Throttling",
    "TopicHistories",
    "TopicHistory",
    "TopicLatency",
    "TopicReport",
    "TopicTraits",
    "TopicVerdict",
    "Trace",
    "UnassignedPublisher",
    "check_broker_name",
    "schema_of",
]
