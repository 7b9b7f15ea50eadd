"""A member of a cluster: its conversations with the distributors, and what they share. The syncs say what is wanted of
it; measurements, histories and the exchange of tokens go their own ways, so that none waits for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from broker.config import BrokerConfig
from broker.history.uploader import HistoryUploader
from broker.leases.gdrl_agent import GdrlAgent
from broker.leases.lease_holder import LeaseHolder
from broker.sync.drain import Drain
from broker.sync.loop import Synchronizer
from broker.sync.measurement_report import Recorder
from broker.sync.measurements import Measurements
from srtm.control import MeasurementRequest, SyncRequest, Throttling
from srtm.log import Log
from srtm.net.failover import Distributors, connected

if TYPE_CHECKING:
    from srtm._native import Engine


class Membership:
    """``about``: how this broker presents itself. ``start`` it once."""

    def __init__(
        self,
        config: BrokerConfig,
        about: SyncRequest,
        engine: Engine,
        holder: LeaseHolder,
        drain: Drain,
        agent: GdrlAgent,
        throttling: Callable[[], Throttling],
        log: Log,
    ) -> None:
        self._config = config
        self._engine = engine
        self._holder = holder
        self._agent = agent
        self._log = log
        self._followed = self._exchanged = 0  # changes of topics in force that were passed on
        self._measurements = Measurements(
            config.name,
            about.incarnation,
            about.lab_service_time_ns,
            lambda: holder.applied,
            self._record,
            self._distributors,
            log,
        )
        self.histories = HistoryUploader(config.name, about.incarnation, engine, self._distributors(), log)
        self.synchronizer = Synchronizer(
            config.name,
            about,
            engine,
            holder,
            self._distributors(),
            Path(config.data_path),
            log,
            drain,
            self.carry_out,
            throttling,
            self.histories.report_all_again,
        )

    def start(self, nursery: trio.Nursery) -> None:
        for conversation in (self.synchronizer, self._measurements, self.histories, self._agent):
            nursery.start_soon(conversation.run)

    def carry_out(self, measurements: Sequence[MeasurementRequest]) -> None:
        """What an answer asks for, besides the state that it names."""
        self._measurements.want(measurements)
        if self._followed != self._holder.changes_followed:
            self._followed = self._holder.changes_followed
            self.histories.follow(self._holder.followed, self._holder.followed_seldom)
        if self._exchanged != self._holder.changes:
            self._exchanged = self._holder.changes
            self._agent.follow()

    def _record(self, topic: str, target_ns: int) -> Recorder:
        from srtm._native import Measurement

        return Measurement(self._engine, topic, target_ns)

    def _distributors(self) -> Distributors:
        """With connections of their own, for one task."""
        config = self._config
        return connected(config.distributors, self._log, token=config.token, ca_file=config.ca_file)
