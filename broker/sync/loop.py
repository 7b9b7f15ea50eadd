"""The sync loop: sends reports and acknowledgements to the distributor, puts the desired state in force.

The loop is level-triggered. A sync is sent every second; the distributor holds its answer back until something changes.
A sync is sent at once if something here cannot wait: an unassigned publisher, a topic without tokens, a new topic or
channel, an acknowledgement. Reports and desired state are deltas where both sides know to what.

If a sync fails, shares stay in force as they are (the engine ends timed leases by itself) and the next distributor is
asked: the leader, if a standby names it. What has to outlive the process is on disk before it is in force.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from broker import snapshot
from broker.leases.contract_holder import ContractHolder
from broker.leases.lease_holder import LeaseHolder, held_over
from broker.runtime.acceptance import Acceptance
from broker.stats.mqtt_losses import full_by_topic
from broker.sync.contract_counts import CountReports
from broker.sync.differences import Differences
from broker.sync.drain import Drain
from broker.sync.link_reports import LinkReports
from broker.sync.reports import Reports
from broker.sync.state_file import SyncState, save_state
from broker.sync.told_publishers import ToldPublishers
from broker.sync.unassigned_publishers import UnassignedPublishers
from srtm.concurrency.backoff import Backoff
from srtm.concurrency.outage import Outage
from srtm.control import (
    DeadNotice,
    MeasurementRequest,
    Move,
    SyncAnswer,
    SyncRequest,
    Throttling,
    UnassignedPublisher,
)
from srtm.errors import NotLeader, PeerError, SrtmError, Unavailable
from srtm.log import Log
from srtm.net.decode_errors import UNREADABLE
from srtm.net.failover import LONGEST_PAUSE_S, Disowned, Distributor, Distributors, refused
from srtm.net.problem_json import refusal

if TYPE_CHECKING:
    from srtm._native import Engine

PERIOD_S = 1.0
_VERDICTS_S = 10.0  # between questions for the words on promises: as often as MQTT clients are told
_ANSWER_GRACE_S = 3.0  # beyond wait_s: a distributor may be busy planning, and nothing here depends on a quick answer
_ANSWER_GRACE_FRACTION = 0.25  # of the shortest lease: in time to ask another distributor before it ends
_MAX_SINGLE_TOPICS = 20  # up to so many topics are read from the engine one by one
_REFUSE_AFTER_S = 2.0  # a draining broker refuses publishers after this time: those that can move have left


@dataclass(frozen=True, kw_only=True)
class LocalBroker:
    """The parts of this broker that its syncs read and change."""

    name: str
    about: SyncRequest  # the fields of a request that never change
    directory: Path  # of the state file
    engine: Engine
    holder: LeaseHolder
    contracts: ContractHolder
    drain: Drain
    throttling: Callable[[], Throttling]
    acceptance: Acceptance
    log: Log
    wants_addresses: bool = False  # of the other brokers, for links; replicated contracts want them too
    redirects_mqtt: bool = True  # clients of MQTT that follow are told to move
    note_disowned: Callable[[str | None], object] = lambda _reason: None  # another broker has this name; None: no more


class SyncListener(Protocol):
    """Is told what concerns other conversations with the distributor."""

    def follow(self, measurements: Sequence[MeasurementRequest]) -> None:
        """An answer is in force. ``measurements`` are to run."""

    def meet(self, addresses: Mapping[str, str]) -> None:
        """The cluster has brokers at other addresses than before, {broker: HTTP address}."""

    def send_again(self) -> None:
        """The present leader lacks what it was sent before."""


class Synchronizer:
    """Run ``run`` once; the other methods may be called any time."""

    def __init__(self, broker: LocalBroker, distributors: Distributors, listener: SyncListener) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._holder = broker.holder
        self._drain = broker.drain
        self._log = broker.log
        self._distributors = distributors
        self._listener = listener
        self._target = f"/v1/brokers/{broker.name}/sync"
        self._running = trio.CancelScope()
        self._ended = trio.Event()
        self._waiting = trio.CancelScope()  # around what ``wake`` may cut short
        self._outage = Outage()
        self._urgent = True  # the next sync asks for an answer at once
        self._reports = Reports()
        self._counts = CountReports()
        self._links = LinkReports()
        self._full: Differences[str, dict[str, int]] = Differences(nothing={})  # {topic: as ``MqttLosses.full``}
        self._by_key = (self._counts, self._links, self._full)
        self._reports_due_s = 0.0  # trio time
        self._reports_wanted = True  # before they are due
        self._unassigned = UnassignedPublishers()
        self._told = ToldPublishers()
        self._connections: int | None = None  # when all topics were read last
        self._mqtt_sessions: int | None = None  # likewise
        self._stayed: list[UnassignedPublisher] = []  # in the request that is under way, or lost
        self._applied: list[str] = []  # topics that the latest answer changed
        self._changed: dict[str, None] = {}  # topics that came, went or have other channels, oldest first
        self._measurements: list[MeasurementRequest] = []  # of the latest answer
        self._saved = SyncState()  # what is in the state file
        self._names_peers = True  # the next sync says which brokers the cluster had
        self._verdicts_due_s = 0.0  # trio time
        self._have_addresses = 0  # ``SyncAnswer.addresses_version`` of the latest answer
        self._sent_ns = 0  # CLOCK_BOOTTIME of the latest request
        self.is_settled = False  # the latest answer changed nothing: what is in force here is acknowledged
        self.last_sync_s: float | None = None  # trio time of the latest answer

    def remember(self, state: SyncState) -> None:
        """At the start: the cluster that an earlier incarnation was a member of."""
        self._saved = msgspec.structs.replace(state, version=0, topics=[])  # no topic here is in force

    def wake(self) -> None:
        """Sync at once, with reports."""
        self._urgent = self._reports_wanted = True
        self._waiting.cancel()

    def note_topic(self, topic: str) -> None:
        """``topic`` or a channel of it came or went: whoever looks it up is to know at once."""
        if topic not in self._changed and self._reports.differ(topic, snapshot.take_raw(self._engine, topic).topics):
            self._changed[topic] = None
            self._urgent = True
            self._waiting.cancel()

    def note_unassigned(self, topic: str, publisher_id: str) -> None:
        if self._unassigned.add(topic, publisher_id):
            self.wake()

    async def run(self) -> None:
        """Until cancelled; then the connections are closed."""
        try:
            with self._running:
                await self._run()
        finally:
            await self._distributors.aclose()
            self._ended.set()

    async def leave(self) -> None:
        """Stop syncing, and tell the distributor that this incarnation ends, so that nobody waits for it."""
        self._running.cancel()
        await self._ended.wait()
        trouble: SrtmError | None = None
        for distributor in self._distributors:
            try:
                await self._send_dead_notice(distributor)
            except SrtmError as error:
                trouble = trouble or error
            else:
                return
        self._log.warning("the distributor was not told that this broker ends", reason=trouble)

    async def _send_dead_notice(self, distributor: Distributor) -> None:
        notice = msgspec.json.encode(DeadNotice(incarnation=self._broker.about.incarnation, reason="drained"))
        target = f"/v1/brokers/{self._broker.name}/dead"
        try:
            status, body = await distributor.request("POST", target, notice, timeout_s=_ANSWER_GRACE_S)
        finally:
            await distributor.aclose()
        if status >= 300:
            raise refusal(distributor.base_url, status, body)

    async def _run(self) -> None:
        backoff = Backoff(first_s=0.1, longest_s=LONGEST_PAUSE_S)
        failures = 0
        while True:
            try:
                await self._sync()
            except (Unavailable, PeerError) as error:
                self._log_trouble(error)
                if isinstance(error, Disowned):
                    self._broker.note_disowned(f"{self._disowned}: see the log")  # which names incarnations
                    self._give_up()
                await self._distributors.choose_next(error.leader if isinstance(error, NotLeader) else None)
                self._urgent = self._reports_wanted = self._names_peers = True
                failures += 1
                if failures % len(self._distributors) == 0:  # every distributor was tried
                    await trio.sleep(backoff.next_s())
            else:
                failures = 0
                self._broker.note_disowned(None)
                backoff.reset()
                self._log_trouble(None)

    async def _sync(self) -> None:
        urgent, self._urgent = self._urgent, False  # raised again meanwhile: another sync follows
        unassigned = self._unassigned.unsent()
        if urgent:
            answer: SyncAnswer | None = await self._ask(unassigned, can_wait=False)
        else:
            answer = await self._ask_and_wait(unassigned)
        if answer is None:
            self._names_peers = True  # the lost answer may have told of other brokers
            return
        self._names_peers = False
        self._unassigned.note_sent(unassigned)
        await self._apply(answer)

    async def _ask_and_wait(self, unassigned: list[UnassignedPublisher]) -> SyncAnswer | None:
        """None: ``wake`` cut it short. The lost answer costs nothing: the next one has all of it again."""
        answer = None
        with trio.CancelScope() as self._waiting:
            answer = await self._ask(unassigned, can_wait=True)
            has_news = not answer.unchanged or answer.moves or answer.measurements != self._measurements
            if not (has_news or self._urgent):
                await trio.sleep_until(self._reports_due_s)  # a distributor that does not hold answers back
        return answer

    async def _ask(self, unassigned: list[UnassignedPublisher], *, can_wait: bool) -> SyncAnswer:
        now_s = trio.current_time()
        reports_all = self._must_report_all(now_s)
        if reports_all:
            self._reports_wanted, self._reports_due_s = False, now_s + PERIOD_S
        wait_s = self._reports_due_s - now_s if can_wait else 0.0
        self._note_stayed(now_s)
        request = self._request(unassigned, wait_s, reports_all=reports_all)
        distributor = self._distributors.first
        status, body = await distributor.request(
            "POST", self._target, msgspec.json.encode(request), timeout_s=wait_s + self._grace_s()
        )
        answer = read_answer(distributor.base_url, status, body)
        self._stayed = []
        for reports in self._by_key:
            reports.answered()
        if not self._reports.answered(answer.reported):
            for reports in self._by_key:
                reports.send_again()
            self._urgent = self._reports_wanted = True
            self._unassigned.send_again()
            self._listener.send_again()
        return answer

    @property
    def _wants_addresses(self) -> bool:
        return self._broker.wants_addresses or self._broker.contracts.replicates.is_set()

    def _note_stayed(self, now_s: float) -> None:
        """Publishers that were told to move, and have a connection here yet."""
        due = self._told.due(now_s)
        if due:
            here = {
                UnassignedPublisher(topic=published.topic, publisher_id=client.client_id)
                for client in snapshot.take(self._engine, clients=True).producers
                for published in client.pub_counts
            }
            self._stayed += due & here

    def _must_report_all(self, now_s: float) -> bool:
        """Whether to read all topics from the engine, which costs by their number: once a period, when ``wake`` was
        called, and during a drain, which ends by what the reports say."""
        wanted = self._reports_wanted or len(self._applied) > _MAX_SINGLE_TOPICS or not self._reports.are_known
        return wanted or self._drain.has_begun or now_s >= self._reports_due_s

    def _request(self, unassigned: list[UnassignedPublisher], wait_s: float, *, reports_all: bool) -> SyncRequest:
        applied = self._holder.applied
        self._sent_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        request = msgspec.structs.replace(
            self._broker.about,
            # Read before the reports: what these say of waiting messages is then final.
            accepting=not self._drain.refuses,
            drain=self._drain.latest if self._drain.has_begun else None,
            have_version=self._holder.version,
            remembered=self._holder.remembered,
            applied=applied,
            held=self._holder.held,
            strangers=unassigned,
            stayed=self._stayed,
            throttling=self._broker.throttling(),
            wait_s=wait_s,
            partial=not reports_all,
            takes_differences=True,
            cluster=self._saved.cluster,
            peers=self._saved.peers if self._names_peers else None,
            peer_claims=self._saved.peer_claims if self._names_peers else {},
            names_peers=True,
            contracts=self._broker.contracts.version,
            takes_contract_differences=True,
            have_addresses=self._have_addresses if self._wants_addresses else None,
        )
        if reports_all:
            mqtt = self._note_all_topics(applied)
            request = msgspec.structs.replace(request, wants_verdicts=self._wants_verdicts(mqtt))
        else:
            for topic in [*self._applied, *self._take_changed()]:
                self._reports.note_one(topic, snapshot.take_raw(self._engine, topic).topics, applied)
        self._applied = []
        return msgspec.structs.replace(
            self._reports.add_to(request),
            connections=self._connections,
            mqtt_sessions=self._mqtt_sessions,
            contract_counts=list(self._counts.unsent.values()),
            links=list(self._links.unsent.values()),
            mqtt_full=self._full.unsent,
        )

    def _note_all_topics(self, applied: Mapping[str, int]) -> snapshot.Mqtt | None:
        """Read all that is reported from the engine. Returns what it says of MQTT."""
        seen = snapshot.take_raw(self._engine)
        self._connections = seen.connections
        self._mqtt_sessions = None if seen.mqtt is None else seen.mqtt.sessions
        if not self._broker.contracts.is_empty:
            self._counts.note_contracts(snapshot.take_contracts(self._engine))
        self._links.note_ways(seen.links)
        self._full.note(full_by_topic(seen.mqtt_topics))
        self._reports.note(seen.topics, applied)
        self._changed.clear()
        return seen.mqtt

    def _wants_verdicts(self, mqtt: snapshot.Mqtt | None) -> bool:
        now_s = trio.current_time()
        if mqtt is None or not mqtt.tells_topics or now_s < self._verdicts_due_s:
            return False
        self._verdicts_due_s = now_s + _VERDICTS_S
        return True

    def _take_changed(self) -> list[str]:
        """The first of the changed topics. If there are more, the next sync follows at once: thousands of new topics
        must not have all topics read again for each few."""
        taken = list(islice(self._changed, _MAX_SINGLE_TOPICS))
        for topic in taken:
            del self._changed[topic]
        self._urgent |= bool(self._changed)
        return taken

    def _grace_s(self) -> float:
        lease_s = self._holder.shortest_lease_s
        return _ANSWER_GRACE_S if lease_s is None else min(_ANSWER_GRACE_S, lease_s * _ANSWER_GRACE_FRACTION)

    async def _apply(self, answer: SyncAnswer) -> None:
        self._holder.check(answer)
        self.is_settled = answer.unchanged
        if answer.draining:
            where = f"ask the distributor ({self._distributors.first.base_url}) where to publish"
            self._drain.begin(f"broker {self._broker.name} is draining: {where}", refuse_after_s=_REFUSE_AFTER_S)
        is_first = self.last_sync_s is None
        is_change = not answer.unchanged or is_first  # the first answer is one even if there is no topic
        if is_change or answer.brokers is not None or answer.contracts is not None:
            await self._save(answer)
        if answer.contracts is not None:  # before the topics that name them
            self._broker.contracts.apply(answer.contracts)
        self._broker.contracts.has_joined = True
        self._holder.apply(answer, self._sent_ns)
        self._unassigned.follow(answer)
        self._told.follow(answer)
        if is_first and not self._drain.refuses:
            self._broker.acceptance.take_all()
        self._order_moves(answer.moves)
        if answer.addresses is not None:
            self._have_addresses = answer.addresses_version
            self._broker.contracts.meet(answer.addresses)
            self._listener.meet(answer.addresses)
        if answer.verdicts is not None:
            verdicts = [(topic, told.verdict, told.latency_ms) for topic, told in answer.verdicts.items()]
            self._engine.set_verdicts(verdicts)
        self._measurements = answer.measurements
        self._listener.follow(answer.measurements)
        self.last_sync_s = trio.current_time()
        if is_change:
            self._log.info("desired state in force", version=answer.version, topics=len(answer.topics))
            self._applied = [topic.topic for topic in answer.topics]
            # The next sync follows at once: a share elsewhere may wait for this acknowledgement. A broker that drains
            # has to end soon: it asks for an answer at once to that sync, too.
            self._urgent |= self._drain.has_begun

    def _order_moves(self, moves: Sequence[Move]) -> None:
        """Have the engine tell publishers where they belong."""
        for move in moves:
            ports = move.mqtt_ports
            mqtt = (move.mqtt_address, ports.tls, ports.ws, ports.wss)
            if not self._broker.redirects_mqtt:
                mqtt = ("", "", "", "")
            self._engine.move_publisher(move.topic, move.publisher_id, move.address, mqtt, move.version)
            self._told.note(move, trio.current_time())

    @property
    def _disowned(self) -> str:
        return f"the distributor knows another broker {self._broker.name}"

    def _give_up(self) -> None:
        """Drop all tokens: they may be in force elsewhere. Refuse publishers, so that they ask for their broker."""
        self._holder.give_up()
        self._broker.acceptance.refuse(self._disowned)
        self._listener.follow([])
        self.last_sync_s = None

    async def _save(self, answer: SyncAnswer) -> None:
        """Write the state file, unless nothing in it changes: most answers change shares, which it leaves out.

        Raises Unavailable if the disk refuses. The answer is then not put in force, and is asked for again.
        """
        state = self._state_after(answer)
        if self._holder.version and state == msgspec.structs.replace(self._saved, version=answer.version):
            return
        try:
            await trio.to_thread.run_sync(save_state, self._broker.directory, state)
        except OSError as error:
            where = self._broker.directory
            raise Unavailable(f"the desired state cannot be written to {where}: {error}") from None
        self._saved = state

    def _state_after(self, answer: SyncAnswer) -> SyncState:
        """What is to be on disk once ``answer`` is in force."""
        before = self._saved
        topics = before.topics
        if not answer.unchanged or not before.has_synced:
            kept = {topic.topic: topic for topic in topics if answer.since and topic.topic not in answer.removed}
            kept.update((topic.topic, held_over(topic)) for topic in answer.topics)
            topics = list(kept.values())
        return SyncState(
            has_synced=True,
            version=answer.version,
            topics=topics,
            cluster=answer.cluster or before.cluster,
            peers=before.peers if answer.brokers is None else answer.brokers,
            peer_claims=before.peer_claims if answer.brokers is None else answer.broker_claims,
            contracts=self._broker.contracts.all_with(answer.contracts) if answer.contracts else before.contracts,
        )

    def _log_trouble(self, error: SrtmError | None) -> None:
        """Log each reason once, not once a second."""
        if error is not None and self._outage.is_news(str(error)):
            self._log.warning("no sync; shares stay as they are", reason=error)
        if error is None and self._outage.ends():
            self._log.info("in sync again", distributor=self._distributors.first.base_url)


def read_answer(url: str, status: int, body: bytes) -> SyncAnswer:
    """Decode the answer to a sync.

    Raises NotLeader (a standby), Unavailable (out of order for now), Disowned (another process is the broker of this
    name), PeerError (the distributor refuses the request, or its answer cannot be read).
    """
    if status != 200:
        raise refused(url, "sync", status, body)
    try:
        return msgspec.json.decode(body, type=SyncAnswer)
    except UNREADABLE as error:
        raise PeerError(f"{url}: sync answer: {error}") from None
