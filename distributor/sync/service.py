"""The conversation with brokers: takes their reports, answers with the desired state, tells publishers where to move.

Observations live here, one ``BrokerSession`` a broker; the authoritative state is ``distributor.registry``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

import msgspec
import trio

from distributor.model.change_log import Changes
from distributor.model.cluster import Topic
from distributor.registry import desired_state as desired
from distributor.registry.broker_updates import BrokerUpdate
from distributor.registry.registry import Registry
from distributor.sync.broker_checks import checked_broker
from distributor.sync.history_store import HistoryStore
from distributor.sync.layout_figures import LayoutFigures
from distributor.sync.misplaced_publishers import is_significant_change, needs_tokens
from distributor.sync.penalty import MeasuredPenalty
from distributor.sync.report_checks import BrokerReports, is_sound_link, merge_reports
from distributor.sync.session import BrokerSession, ChannelBasis
from distributor.sync.split_owner import SplitOwner
from distributor.verdict.kept import PromiseVerdict, promise_verdict
from srtm.control import (
    BrokerContracts,
    HistoryReport,
    LinkLatency,
    MeasurementRequest,
    Move,
    SyncAnswer,
    SyncRequest,
    TopicReport,
    TopicVerdict,
    UnassignedPublisher,
)
from srtm.protocol import is_ephemeral

_MOVE_REPEATS = 2  # one answer may cross with the broker's next request, which hangs up on it
_LATELY_BINS = 5  # of 100 ms, at the end of a history: who sent before may have left
_MOST_COUNTED = 10_000  # contracts that a broker reports
_MOST_LINKS = 10_000  # likewise
_MOST_VERDICTS = 1_000  # that a broker is told at once
_SUBSCRIBER_WAIT_S = 1.0  # for subscribers to connect to a broker that is new to the topic


class SyncService:
    """Answers the syncs of all brokers, and keeps what they say.

    ``histories`` holds the arrivals of topics, ``split_owner`` says who proposes shares, ``layouts`` what the layout
    loops do, ``penalties`` is {topic: its latest DRL penalty}, ``news`` is set and replaced after every sync.
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
        self._sessions: dict[str, BrokerSession] = {}  # {broker: session}
        self._channel_changes = Changes()  # managed topics of which a report named other channels than before

    async def sync(self, name: str, request: SyncRequest) -> SyncAnswer:
        """The desired state of broker ``name``, in full or as a delta to ``have_version``.

        Waits up to ``wait_s`` while the state is that of ``have_version`` and no publisher is to move. Raises BadInput,
        Conflict (a later incarnation is known), Unavailable (the store).
        """
        broker = checked_broker(name, request)
        before = self._reports(name)
        reports, basis = merge_reports(before, request), self._channel_basis()
        is_newer = reports is not None and reports is not before
        await self._registry.apply_update(
            BrokerUpdate(
                broker=broker,
                have_version=request.have_version,
                applied=request.applied,
                held=request.held,
                channels=self._changed_channels(name, reports, basis) if reports is not None and is_newer else {},
                cluster=request.cluster,
                peers=request.peers,
                names_peers=request.names_peers,
                peer_claims=request.peer_claims,
            )
        )
        session = self._session(name)
        token = session.latest_sync = object()
        wait_s = min(max(request.wait_s, 0.0), self._registry.config.longest_wait_s)
        self._registry.liveness.hear(name, wait_s)
        _take_facts(session, request, self._registry.contracts.by_key)
        self._add_unassigned(name, session, request.strangers)
        self._note_stayed(name, request.stayed)
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
        session, topics = self._session(name), self._registry.topics
        session.reports = reports
        session.ignored_reports += reports.ignored
        self._channel_changes.note(topic for topic in reports.rechanneled if topic in topics)
        self._wake_for_subscribers(before.topics if before is not None else {}, reports)
        if request.partial:  # it reports acknowledged topics only: the other counters are old
            return
        session.reported_s = trio.current_time()
        released = session.releases.observe(reports, trio.current_time())
        if released is not None:
            self._registry.headroom.observe(name, released.rates, released.span_s, topics)
        await self._account_for_misplaced(name, request.have_version, reports.topics)
        await self._share_where_messages_come(name, before.topics if before is not None else {}, reports.topics)
        if name in self._registry.draining and not request.accepting:
            await self._take_unneeded_shares(name, reports.topics)

    def forget(self, name: str) -> None:
        """Forget broker ``name``."""
        self._sessions.pop(name, None)
        self._registry.headroom.forget(name)
        self._registry.pins.forget_broker(name)

    def forget_topic(self, name: str) -> None:
        """Forget topic ``name``: it was removed, and another topic of that name starts anew."""
        self.penalties.pop(name, None)
        self._registry.pins.forget_topic(name)
        self.histories.forget_topic(name)
        self._channel_changes.forget(name)
        for session in self._sessions.values():
            session.ready_since_s.pop(name, None)

    # What brokers have said

    @property
    def sessions(self) -> Mapping[str, BrokerSession]:
        return self._sessions

    def session(self, name: str) -> BrokerSession:
        """The session of broker ``name``; an empty one if it has not synced with this process."""
        return self._sessions.get(name) or BrokerSession()

    @property
    def lab_service_ns(self) -> dict[str, int]:
        """{broker: its service time in the laboratory}; 0: not in the laboratory."""
        return {name: session.lab_service_ns for name, session in self._sessions.items()}

    @property
    def reports(self) -> dict[str, Mapping[str, TopicReport]]:
        """{broker: {topic: its latest report}}"""
        return {name: each.reports.topics for name, each in self._sessions.items() if each.reports is not None}

    def report(self, broker: str, topic: str) -> TopicReport | None:
        """The latest report of ``topic`` by ``broker``, which may have died since."""
        reports = self._reports(broker)
        return None if reports is None else reports.topics.get(topic)

    def heard(self, topic: str) -> dict[str, TopicReport]:
        """{broker: its latest report of ``topic``}, of brokers that are alive."""
        return {
            name: report
            for name in self._sessions
            if (report := self.report(name, topic)) is not None and self._registry.is_alive(name)
        }

    def heard_by_topic(self) -> dict[str, dict[str, TopicReport]]:
        """``heard`` of every topic that a broker reports: for a look at all of them."""
        found: dict[str, dict[str, TopicReport]] = {}
        for name, topics in self.reports.items():
            if self._registry.is_alive(name):
                for topic, report in topics.items():
                    found.setdefault(topic, {})[name] = report
        return found

    def links(self, topic: str) -> dict[str, list[LinkLatency]]:
        """{broker: how messages of ``topic`` came there over links}, of brokers that are alive."""
        return {
            name: known
            for name, session in self._sessions.items()
            if (links := session.links.get(topic))
            and self._registry.is_alive(name)
            and (known := self._of_known_brokers(links))
        }

    def links_by_topic(self) -> dict[str, dict[str, list[LinkLatency]]]:
        """``links`` of every topic that has some: for a look at all of them."""
        found: dict[str, dict[str, list[LinkLatency]]] = {}
        for name, session in self._sessions.items():
            if session.links and self._registry.is_alive(name):
                for topic, links in session.links.items():
                    if known := self._of_known_brokers(links):
                        found.setdefault(topic, {})[name] = known
        return found

    def _of_known_brokers(self, links: Mapping[str, LinkLatency]) -> list[LinkLatency]:
        return [link for origin, link in links.items() if origin in self._registry.brokers]

    def promise(self, topic: Topic) -> PromiseVerdict:
        """Whether the promise of ``topic`` is kept."""
        return promise_verdict(topic.spec.slo, self.heard(topic.name), self.links(topic.name))

    def living(self) -> dict[str, Mapping[str, TopicReport]]:
        """The latest reports of brokers that are not known to be dead."""
        brokers = self._registry.brokers
        return {name: topics for name, topics in self.reports.items() if name in brokers and not brokers[name].dead}

    def all_channels(self, topic: str) -> set[str]:
        """The channels of ``topic`` that living brokers reported last, ephemeral ones too."""
        return {
            channel for reports in self.living().values() if topic in reports for channel in reports[topic].channels
        }

    def _session(self, name: str) -> BrokerSession:
        return self._sessions.setdefault(name, BrokerSession())

    def _reports(self, name: str) -> BrokerReports | None:
        session = self._sessions.get(name)
        return None if session is None else session.reports

    # Channels: a topic has the same ones on all brokers

    def _channel_basis(self) -> ChannelBasis:
        living = frozenset(name for name, broker in self._registry.brokers.items() if not broker.dead)
        return ChannelBasis(
            topic_changes=self._registry.topic_changes.count,
            channel_changes=self._channel_changes.count,
            reporting=living & self.reports.keys(),
            living=living,
        )

    def _changed_channels(self, name: str, reports: BrokerReports, basis: ChannelBasis) -> dict[str, tuple[str, ...]]:
        """{topic: its channels}, for topics whose channels may have changed since the last request of ``name``."""
        last, topics = self.session(name).channel_basis, self._registry.topics
        if last is None or (last.reporting, last.living) != (basis.reporting, basis.living):
            names = [*reports.changed, *reports.topics]
        else:
            names = [*reports.rechanneled]
            # Changes by other brokers: of two requests at one time, neither sees the reports of the other.
            names += self._channel_changes.since(last.channel_changes)
            names += [
                topic for topic in self._registry.topic_changes.since(last.topic_changes) if topic in reports.topics
            ]
        known = {**self.living(), name: reports.topics}
        return {
            topic: self._channels(topics[topic], known)
            for topic in dict.fromkeys(names)
            if topic in topics and any(topic in by_topic for by_topic in known.values())
        }

    def _channels(self, topic: Topic, reports: Mapping[str, Mapping[str, TopicReport]]) -> tuple[str, ...]:
        """The channels that ``topic`` has on any broker. Stored channels count until every living broker with a part in
        the topic has reported."""
        reported = {
            channel
            for by_topic in reports.values()
            if topic.name in by_topic
            for channel in by_topic[topic.name].channels
            if not is_ephemeral(channel)
        }
        brokers = self._registry.brokers
        with_part = {
            name
            for name in {*topic.placement.brokers, *topic.leases.target}
            if name in brokers and not brokers[name].dead
        }
        return tuple(sorted(reported if with_part <= reports.keys() else reported.union(topic.channels)))

    # Shares that follow the traffic

    def _note_stayed(self, name: str, publishers: Sequence[UnassignedPublisher]) -> None:
        """Publishers that have not moved although they were told twice: they are pinned."""
        for publisher in publishers:
            topic = self._registry.managed_topic(publisher.topic)
            if topic is not None and publisher.publisher_id in topic.spec.publishers.positions:
                self._registry.pins.pin(topic.name, publisher.publisher_id, name)

    def _add_unassigned(self, name: str, session: BrokerSession, publishers: Sequence[UnassignedPublisher]) -> None:
        session.unassigned.update(dict.fromkeys(publishers, 0))
        for publisher in publishers:
            self._registry.pins.ask_again(publisher.topic, publisher.publisher_id, name)
            if (topic := self._registry.topics.get(publisher.topic)) is not None:
                session.misplaced.add(topic, publisher.publisher_id)

    def _wake_for_subscribers(self, before: Mapping[str, TopicReport], reports: BrokerReports) -> None:
        """Wake all waiting answers if subscribers came: a publisher may have waited for them before it moves."""
        is_other = any(
            (report := reports.topics.get(topic)) is not None
            and report.consumed
            and (topic not in before or before[topic].consumed != report.consumed)
            for topic in reports.changed
        )
        if is_other:
            for broker in self._sessions:
                self._registry.wake(broker)

    async def _account_for_misplaced(self, name: str, have_version: int, reports: Mapping[str, TopicReport]) -> None:
        """Let shares follow publishers that stay on a broker that they are not assigned to. Once they have left, and no
        message waits, shares are as assigned again."""
        session, registry = self._session(name), self._registry
        for topic in session.misplaced.affected(name, registry.managed()):
            report = reports.get(topic.name)
            if report is None:
                continue
            if have_version < topic.assignment_version or registry.draining & topic.leases.target.keys():
                continue
            if any(publisher.topic == topic.name for publisher in session.unassigned):
                continue  # some do not know yet where to move
            rates = session.misplaced.rates(name, topic, report.undeclared, trio.current_time())
            if rates is None or not is_significant_change(topic, name, rates):
                continue
            if needs_tokens(topic, rates):
                await registry.set_misplaced(topic.name, name, rates)
            elif not report.backlog:
                await registry.set_misplaced(topic.name, name, {})

    async def take_history(self, name: str, report: HistoryReport) -> None:
        """Take what broker ``name`` saw of its topics. A broker without a share gets a small one as soon as messages
        come there, so that the split loop can follow them. Raises NotFound, Conflict, Unavailable."""
        self.histories.check_sender(name, report)
        for history in report.topics:
            topic = self._registry.managed_topic(history.topic)
            came = any(history.arrivals[-_LATELY_BINS:]) or (history.change and history.change.arrivals > 0)
            if came and topic is not None and name not in topic.leases.target:
                await self._registry.add_small_share(topic.name, name)
        self.histories.take(name, report)  # afterwards: the split loop hears of both at once

    async def _share_where_messages_come(
        self, name: str, before: Mapping[str, TopicReport], reports: Mapping[str, TopicReport]
    ) -> None:
        """A broker without a share of a topic gets a small one where messages wait, or were refused since ``before``:
        under ``on_excess = "reject"`` none ever waits."""
        for report in reports.values():
            last = before.get(report.topic)
            was_refused = report.rejected > (last.rejected if last is not None else 0)
            if not (report.backlog or was_refused):
                continue
            topic = self._registry.managed_topic(report.topic)
            if topic is not None and name not in topic.leases.target:
                await self._registry.add_small_share(topic.name, name)

    async def _take_unneeded_shares(self, name: str, reports: Mapping[str, TopicReport]) -> None:
        """``name`` drains and takes no messages: where none wait for tokens, none ever will."""
        for topic in self._registry.managed():
            report = reports.get(topic.name)
            if name in topic.leases.target and not (report and report.backlog):
                await self._registry.take_back_share(topic.name, name)

    # Answers

    async def _answer(self, name: str, request: SyncRequest, wait_s: float, token: object) -> SyncAnswer:
        moves = await self._wait_for_news(name, request.have_version, wait_s, token)
        requested = self._requested_measurements(name)
        if self._is_latest(name, token):
            self._session(name).measurements = requested
        reports = self._reports(name)
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
        """The words on the promises of topics that have a share at ``name``."""
        here = (topic for topic in self._registry.managed() if name in topic.leases.target)
        found = {topic.name: self.promise(topic) for topic in islice(here, _MOST_VERDICTS)}
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
        session, now = self._session(name), self._registry.incarnations
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
                moves = self._due_moves(name)
                measurements_sent = self._requested_measurements(name) == self._session(name).measurements
                if moves or registry.desired_version(name) != have_version or not measurements_sent:
                    break
                await registry.changed(name).wait()
        return moves

    def _is_latest(self, name: str, token: object) -> bool:
        session = self._sessions.get(name)
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

    def _due_moves(self, name: str) -> list[Move]:
        """Moves of unassigned publishers on ``name`` whose own broker is ready for them.

        Publishers to which a move was sent often enough leave the list, and so do those that may stay.
        """
        moves = []
        unassigned = self._session(name).unassigned
        for publisher in list(unassigned):
            target = self._assigned_broker(publisher)
            if target is None or target == name:
                del unassigned[publisher]
            elif (move := self._move(publisher, target)) is not None:
                moves.append(move)
                unassigned[publisher] += 1
                if unassigned[publisher] == _MOVE_REPEATS:
                    del unassigned[publisher]
        return moves

    def _assigned_broker(self, publisher: UnassignedPublisher) -> str | None:
        topic = self._registry.topics.get(publisher.topic)
        return topic.placement.broker_of(publisher.publisher_id) if topic is not None else None

    def _move(self, publisher: UnassignedPublisher, target: str) -> Move | None:
        """None: ``target`` is not ready yet."""
        topic = self._registry.topics[publisher.topic]
        if not self._is_ready(topic, target):
            return None
        return Move(
            topic=publisher.topic,
            publisher_id=publisher.publisher_id,
            address=self._registry.brokers[target].tcp_address,
            version=topic.assignment_version,
            mqtt_address=self.session(target).mqtt_address,
            mqtt_ports=self.session(target).mqtt_ports,
        )

    def _is_ready(self, topic: Topic, target: str) -> bool:
        """Whether ``target`` has what publishers of ``topic`` need: its share is in force and as large as it can be for
        now (then it has the channels too), and every consumed channel has a consumer there. Consumers that do not come
        within ``_SUBSCRIBER_WAIT_S`` are not waited for."""
        live, ready_since_s = self._registry.live(), self._session(target).ready_since_s
        if not (topic.holding(target).share.is_usable and target in live):
            ready_since_s.pop(topic.name, None)
            return False
        if not all(held.is_acknowledged for name, held in topic.leases.holdings.items() if name in live):
            return False
        since_s = ready_since_s.setdefault(topic.name, trio.current_time())
        if trio.current_time() - since_s >= _SUBSCRIBER_WAIT_S:
            return True
        reports = [by_topic[topic.name] for by_topic in self.living().values() if topic.name in by_topic]
        here = self.report(target, topic.name)
        return {channel for report in reports for channel in report.consumed} <= set(here.consumed if here else ())


def _take_facts(session: BrokerSession, request: SyncRequest, contracts: Collection[tuple[str, str]]) -> None:
    session.drain = request.drain
    session.lab_service_ns = request.lab_service_time_ns
    session.throttling = request.throttling
    session.machine = request.machine
    session.connections = request.connections
    session.mqtt_sessions = request.mqtt_sessions
    if not request.reports_since:
        session.contract_counts.clear()
        session.links.clear()
    for counts in request.contract_counts[:_MOST_COUNTED]:
        session.contract_counts[counts.namespace, counts.subject] = counts.counts
    if len(session.contract_counts) > len(contracts):  # some are of contracts that are gone
        session.contract_counts = {key: each for key, each in session.contract_counts.items() if key in contracts}
    _take_links(session, request.links[:_MOST_LINKS])
    session.mqtt_address = request.mqtt_address
    session.mqtt_ports = request.mqtt_ports


def _take_links(session: BrokerSession, links: Sequence[LinkLatency]) -> None:
    """Of new ones as many as there is room for; those that are known always."""
    if not links:
        return
    room = _MOST_LINKS - sum(map(len, session.links.values()))
    for link in filter(is_sound_link, links):
        is_new = link.origin not in session.links.get(link.topic, {})
        if not is_new or room > 0:
            session.links.setdefault(link.topic, {})[link.origin] = link
            room -= is_new
