"""The conversation with brokers: takes their reports, answers with the desired state, tells publishers where to move.

What brokers say is in ``sessions``; the authoritative state is ``distributor.registry``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import msgspec
import trio

from distributor.registry import desired_state as desired
from distributor.registry.broker_updates import BrokerUpdate
from distributor.registry.registry import Registry
from distributor.sync.broker_checks import checked_broker
from distributor.sync.channels import Channels
from distributor.sync.figures import LayoutFigures, MeasuredPenalty
from distributor.sync.history_store import HistoryStore
from distributor.sync.publisher_moves import PublisherMoves
from distributor.sync.report_checks import BrokerReports, merge_reports
from distributor.sync.sessions import Sessions
from distributor.sync.split_owner import SplitOwner
from distributor.sync.traffic_shares import TrafficShares
from srtm.control import (
    BrokerContracts,
    HistoryReport,
    MeasurementRequest,
    Move,
    SyncAnswer,
    SyncRequest,
    TopicReport,
    TopicVerdict,
)

_MOST_VERDICTS = 1_000  # that a broker is told at once


class SyncService:
    """Answers the syncs of all brokers, and keeps what they say.

    ``sessions`` is what they said, ``histories`` holds the arrivals of topics, ``split_owner`` says who proposes
    shares, ``layouts`` what the layout loops do, ``penalties`` is {topic: its latest DRL penalty}, ``news`` is set and
    replaced after every sync.
    """

    def __init__(
        self, registry: Registry, measurements: Callable[[str], list[MeasurementRequest]] = lambda _broker: []
    ) -> None:
        """``measurements`` gives those that a broker is to run."""
        self._registry = registry
        self._requested_measurements = measurements
        self.histories = HistoryStore(registry)
        self.split_owner = SplitOwner()
        self.layouts = LayoutFigures()
        self.penalties: dict[str, MeasuredPenalty] = {}
        self._told_contracts = desired.ToldContracts()
        self.news = trio.Event()
        self.sessions = Sessions(registry)
        self._channels = Channels(registry, self.sessions)
        self._shares = TrafficShares(registry, self.sessions)
        self._moves = PublisherMoves(registry, self.sessions)

    async def sync(self, name: str, request: SyncRequest) -> SyncAnswer:
        """The desired state of broker ``name``, in full or as a delta to ``have_version``.

        Waits up to ``wait_s`` while the state is that of ``have_version`` and no publisher is to move. Raises BadInput,
        Conflict (a later incarnation is known), Unavailable (the store).
        """
        broker = checked_broker(name, request)
        before = self.sessions.reports_of(name)
        reports, basis = merge_reports(before, request), self._channels.basis()
        is_newer = reports is not None and reports is not before
        await self._registry.apply_update(
            BrokerUpdate(
                broker=broker,
                have_version=request.have_version,
                applied=request.applied,
                held=request.held,
                channels=self._channels.changed(name, reports, basis) if reports is not None and is_newer else {},
                cluster=request.cluster,
                peers=request.peers,
                names_peers=request.names_peers,
                peer_claims=request.peer_claims,
            )
        )
        session = self.sessions.begun(name)
        token = session.latest_sync = object()
        wait_s = min(max(request.wait_s, 0.0), self._registry.config.longest_wait_s)
        self._registry.liveness.hear(name, wait_s)
        self.sessions.take_facts(name, request, self._registry.contracts.by_key)
        self._moves.add_unassigned(name, request.strangers)
        self._moves.note_stayed(name, request.stayed)
        if session.reports is not before:  # another request of this broker came while the registry stored this one
            before, reports = session.reports, merge_reports(session.reports, request)
        if reports is None:
            wait_s = 0.0  # the broker has to send all reports
        elif reports is not before:
            session.channel_basis = basis
            await self._take_reports(name, request, before, reports)
        self.news.set()
        self.news = trio.Event()
        return await self._answer(name, request, wait_s, token)

    async def _take_reports(
        self, name: str, request: SyncRequest, before: BrokerReports | None, reports: BrokerReports
    ) -> None:
        session, topics = self.sessions.begun(name), self._registry.topics
        self.sessions.take_reports(name, reports)
        session.ignored_reports += reports.ignored
        self._channels.note(reports.rechanneled)
        self._wake_for_subscribers(before.topics if before is not None else {}, reports)
        if request.partial:  # it reports acknowledged topics only: the other counters are old
            return
        session.reported_s = trio.current_time()
        released = session.releases.observe(reports, trio.current_time())
        if released is not None:
            self._registry.headroom.observe(name, released.rates, released.span_s, topics)
        await self._shares.account_for_misplaced(name, request.have_version, reports.topics)
        await self._shares.share_where_messages_come(name, before.topics if before is not None else {}, reports.topics)
        if name in self._registry.draining and not request.accepting:
            await self._shares.take_unneeded(name, reports.topics)

    def forget(self, name: str) -> None:
        """Forget broker ``name``."""
        self.sessions.forget(name)
        self._registry.headroom.forget(name)
        self._registry.pins.forget_broker(name)

    def forget_topic(self, name: str) -> None:
        """Forget topic ``name``: it was removed, and another topic of that name starts anew."""
        self.penalties.pop(name, None)
        self._registry.pins.forget_topic(name)
        self.histories.forget_topic(name)
        self._channels.changes.forget(name)
        for session in self.sessions.by_broker.values():
            session.ready_since_s.pop(name, None)
            session.misplaced.forget(name)

    def _wake_for_subscribers(self, before: Mapping[str, TopicReport], reports: BrokerReports) -> None:
        """Wake all waiting answers if subscribers came: a publisher may have waited for them before it moves."""
        is_other = any(
            (report := reports.topics.get(topic)) is not None
            and report.consumed
            and (topic not in before or before[topic].consumed != report.consumed)
            for topic in reports.changed
        )
        if is_other:
            for broker in self.sessions.by_broker:
                self._registry.wake(broker)

    async def take_history(self, name: str, report: HistoryReport) -> None:
        """Take what broker ``name`` saw of its topics. A broker without a share gets a small one as soon as messages
        come there, so that the split loop can follow them. Raises NotFound, Conflict, Unavailable."""
        self.histories.check_sender(name, report)
        await self._shares.follow_history(name, report)
        self.histories.take(name, report)  # afterwards: the split loop hears of both at once

    # Answers

    async def _answer(self, name: str, request: SyncRequest, wait_s: float, token: object) -> SyncAnswer:
        moves = await self._wait_for_news(name, request.have_version, wait_s, token)
        requested = self._requested_measurements(name)
        if self._is_latest(name, token):
            self.sessions.begun(name).measurements = requested
        reports = self.sessions.reports_of(name)
        is_known = reports is not None and reports.incarnation == request.incarnation
        brokers = self._news_of_brokers(name, request)
        return msgspec.structs.replace(
            self._desired_state(name, request, moves),
            measurements=requested,
            reported=reports.number if reports is not None and is_known else 0,
            cluster=self._registry.identity,
            brokers=brokers,
            broker_claims=self._claims(brokers or {}),
            contracts=self._news_of_contracts(request),
            verdicts=self._verdicts(name) if request.wants_verdicts else None,
            **self._news_of_addresses(request),
        )

    def _verdicts(self, name: str) -> dict[str, TopicVerdict]:
        """The words on the promises of topics that have a share at ``name``, and that it reports."""
        reports = self.sessions.reports_of(name)
        known = map(self._registry.managed_topic, reports.topics if reports is not None else ())
        here = (topic for topic in known if topic is not None and name in topic.leases.target)
        found = {topic.name: self.sessions.promise(topic) for topic in islice(here, _MOST_VERDICTS)}
        return {
            topic: TopicVerdict(verdict=promise.verdict, latency_ms=promise.decides.latency_ms)
            for topic, promise in found.items()
        }

    def _news_of_contracts(self, request: SyncRequest) -> BrokerContracts | None:
        """Contracts that the broker has not, or all to one that takes no differences; None: it has all, or knows
        none."""
        now = self._registry.contracts
        self._told_contracts.follow(now)
        if request.contracts is None or request.contracts == now.version:
            return None
        return self._told_contracts.news(request.contracts if request.takes_contract_differences else 0)

    def _news_of_addresses(self, request: SyncRequest) -> dict[str, object]:
        """Where brokers are that live, unless the broker knows or does not ask."""
        if request.have_addresses is None:
            return {}
        version = self._registry.addresses_version
        news = {} if version == request.have_addresses else {"addresses": self._registry.addresses}
        return {"addresses_version": version, **news}

    def _news_of_brokers(self, name: str, request: SyncRequest) -> dict[str, str] | None:
        """The brokers of the cluster, unless ``name`` was told the same before."""
        session, now = self.sessions.begun(name), self._registry.incarnations
        told = request.peers if request.peers is not None else session.told_brokers
        session.told_brokers = now
        return None if told is now or told == now else now

    def _claims(self, names: Iterable[str]) -> dict[str, list[str]]:
        claims = {name: self._registry.broker(name).claims for name in names}
        return {name: list(stated) for name, stated in claims.items() if stated}

    async def _wait_for_news(self, name: str, have_version: int, wait_s: float, token: object) -> list[Move]:
        """Wait until the desired state, moves or measurements are new to the broker. Returns the moves.

        A later sync of the broker ends the wait: the answer to this one is lost and must not take moves with it.
        """
        registry = self._registry
        moves: list[Move] = []
        with trio.move_on_after(wait_s):
            while self._is_latest(name, token):
                moves = self._moves.due(name)
                measurements_sent = self._requested_measurements(name) == self.sessions.begun(name).measurements
                if moves or registry.desired_version(name) != have_version or not measurements_sent:
                    break
                await registry.changed(name).wait()
        return moves

    def _is_latest(self, name: str, token: object) -> bool:
        session = self.sessions.by_broker.get(name)
        return session is not None and session.latest_sync is token

    def _desired_state(self, name: str, request: SyncRequest, moves: list[Move]) -> SyncAnswer:
        registry, have_version = self._registry, request.have_version
        version = registry.desired_version(name)
        draining = name in registry.draining
        if version == have_version:
            return SyncAnswer(version=version, unchanged=True, moves=moves, draining=draining)
        changed = registry.differences.since(name, request.incarnation, have_version)
        since = have_version if request.takes_differences and changed is not None else 0
        answer = desired.answer(
            version,
            have_version,
            name,
            [registry.topics[topic] for topic in changed or ()] if since else registry.topics.values(),
            moves,
            registry.brokers,
            registry.max_rate,
            draining=draining,
            since=since,
            remembered=request.remembered,
        )
        registry.differences.hand_out(name, request.incarnation, version)
        return answer

    # Moves
