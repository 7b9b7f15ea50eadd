"""The conversations of a member of a cluster with its distributors. Syncs carry the desired state; measurements,
histories and token exchange have connections of their own, so that none waits for another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from broker.config import BrokerConfig
from broker.history.uploader import HistoryUploader
from broker.leases.contract_agent import ContractAgent
from broker.leases.gdrl_agent import GdrlAgent
from broker.links.consuming_brokers import ConsumingBrokers
from broker.links.keeper import LinkKeeper
from broker.sync.loop import LocalBroker, Synchronizer
from broker.sync.measurement_report import Recorder
from broker.sync.measurements import Measurements
from srtm.control import MeasurementRequest
from srtm.net.failover import Distributors, connected

if TYPE_CHECKING:
    from broker.leases.lease_holder import LeaseHolder


class Membership:
    """``start`` it once."""

    def __init__(
        self,
        config: BrokerConfig,
        broker: LocalBroker,
        agent: GdrlAgent,
        contract_agent: ContractAgent,
        consuming: ConsumingBrokers,
        keeper: LinkKeeper | None,
    ) -> None:
        self._config = config
        self._broker = broker
        self._agent = agent
        self._consuming = consuming
        self._keeper = keeper  # None: no MQTT subscribers here
        self._contract_agent = contract_agent
        self._followed = self._exchanged = 0  # changes of the topics in force that were passed on
        about, log = broker.about, broker.log
        self._measurements = Measurements(
            config.name,
            about.incarnation,
            about.lab_service_time_ns,
            lambda: broker.holder.applied,
            self._record,
            self._distributors,
            log,
        )
        self.histories = HistoryUploader(config.name, about.incarnation, broker.engine, self._distributors(), log)
        self.synchronizer = Synchronizer(broker, self._distributors(), self)

    def start(self, nursery: trio.Nursery) -> None:
        for conversation in (
            self.synchronizer,
            self._measurements,
            self.histories,
            self._agent,
            self._contract_agent,
        ):
            nursery.start_soon(conversation.run)
        if self._keeper is not None:
            nursery.start_soon(self._keeper.run)

    def follow(self, measurements: Sequence[MeasurementRequest]) -> None:
        """Carry out what an answer asks for, besides the state that is in force."""
        holder: LeaseHolder = self._broker.holder
        self._measurements.want(measurements)
        if self._followed != holder.changes_followed:
            self._followed = holder.changes_followed
            self.histories.follow(holder.followed, holder.followed_seldom)
        if self._exchanged != holder.changes:
            self._exchanged = holder.changes
            self._agent.follow()
            self._consuming.recheck()
            self.histories.note_shares(holder.applied)

    def meet(self, addresses: Mapping[str, str]) -> None:
        if self._keeper is not None:
            self._keeper.follow(addresses)

    def send_again(self) -> None:
        """The present leader lacks the histories that were sent before."""
        self.histories.report_all_again()

    def _record(self, topic: str, target_ns: int) -> Recorder:
        from srtm._native import Measurement

        return Measurement(self._broker.engine, topic, target_ns)

    def _distributors(self) -> Distributors:
        """With connections of their own, for one task."""
        config = self._config
        return connected(config.distributors, self._broker.log, token=config.token, ca_file=config.ca_file)
