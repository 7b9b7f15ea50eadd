"""The authoritative cluster state: values, questions about them, and one way to change them.

Values are immutable. ``commit`` stores a change and then shows it; a method that raises has changed nothing.

Two locks. ``writing`` is held for the time of a commit. ``placing`` is held while a placement is planned, which may
take seconds in a worker thread. Only its holder changes specs and placements, so a plan still holds when it is
committed. Leases and brokers may have changed meanwhile: read them again under ``writing``. Take ``placing`` first.

One version counts everything: specs, placements, shares and desired states. It only grows, and is stored. Each leader
begins somewhere behind what it found, by chance. So a broker that was told a version in between knows of changes that
the store has lost; and what two leaders tell that found the same has other versions.
"""

from __future__ import annotations

import itertools
import secrets
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

import msgspec
import trio

from distributor.config import DistributorConfig
from distributor.model.broker_lifecycle import BrokerEvent, BrokerState, next_state
from distributor.model.broker_load import BrokerLoad
from distributor.model.cluster import Broker, Decision, FittingRecord, Topic
from distributor.model.full_brokers import NO_CAPS, CapacityCaps
from distributor.model.pins import Pins
from distributor.model.share_log import ShareLog
from distributor.model.state_change import StateChange
from distributor.placement.headroom import Headroom
from distributor.registry.broker_updates import caps_after
from distributor.registry.deltas import DesiredVersions
from distributor.registry.desired_state import changes_desired_state
from distributor.registry.liveness import Liveness
from distributor.registry.topic_table import TopicTable
from distributor.storage import cluster_rows
from distributor.storage.audit_log import AuditLog
from distributor.storage.cluster_rows import Stored
from distributor.storage.store import Store
from srtm.contracts.versioned import Contracts
from srtm.errors import NotFound
from srtm.topics.capacity import Capacity

REMOVED_KEPT_S = 86_400.0  # a broker that comes back within a day is told to purge what was removed
_MAX_SKIPPED = 1 << 30  # versions; a cluster makes far fewer changes between two leaders


class ClusterState:
    """See the module."""

    def __init__(self, store: Store, config: DistributorConfig, *, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self.config = config
        self.wall_ns = wall_ns
        self.writing = trio.Lock()
        self.placing = trio.Lock()
        self.leads = True  # a standby shows what is stored, and hears no broker
        self.leader_url: str | None = None  # known to standbys
        # Stored
        self.identity = 0  # of the store
        self.version = 0
        self.skips: dict[int, int] = {}  # {version that a leader found in the store: the one with which it began}
        self._skipped_from: list[int] = []  # its keys, in order
        self._new_skips: dict[int, int] = {}  # that are not stored yet
        self.brokers: dict[str, Broker] = {}
        self.table = TopicTable()
        self.decisions: dict[str, list[Decision]] = {}  # {topic: its log, oldest first}
        self.capacities: dict[str, tuple[Capacity, ...]] = {}  # {broker: one for each promise and traffic class}
        self.draining: set[str] = set()  # brokers that are taken out of service
        self.fittings: dict[str, FittingRecord] = {}  # {topic: its latest}
        self.caps = NO_CAPS
        self.contracts = Contracts()
        # Observed
        self.liveness = Liveness(config.liveness_s)
        self.desired = DesiredVersions()
        self.share_log = ShareLog()
        self.pins = Pins()
        self.being_fitted: set[str] = set()  # topics for whose publishers only their fitting looks for a place
        self.saw_older_store = False  # a broker was told more than was stored
        self.incarnations: dict[str, str] = {}  # {broker: incarnation} that are not dead; a new one when it changes
        self.addresses: dict[str, str] = {}  # {broker: its HTTP address}, of those; a new one when it changes
        self.addresses_version = 0  # differs for other addresses
        self._acknowledged: set[str] = set()  # topics of which brokers have acknowledged more than is stored
        self._store = store
        self.audit = AuditLog(store, wall_ns)

    async def load(self) -> None:
        """Read everything from the store. Raises Unavailable."""
        self.reset(await cluster_rows.load(self._store))

    def reset(self, stored: Stored) -> None:
        """Replace everything by ``stored``."""
        self.identity, self.brokers = stored.identity, dict(stored.brokers)
        self.version = stored.version + (1 + secrets.randbelow(_MAX_SKIPPED) if stored.version else 0)
        self._new_skips = {stored.version: self.version} if stored.version else {}
        self.skips = {**stored.skips, **self._new_skips}
        self._skipped_from = sorted(self.skips)
        self.saw_older_store = False
        self._note_brokers()
        self.table.reset(stored.topics)
        self.decisions = dict(stored.decisions)
        self.capacities = dict(stored.capacities)
        self.draining = set(stored.draining)
        self.fittings, self.caps, self.contracts = dict(stored.fittings), stored.caps, stored.contracts
        self.liveness = Liveness(self.config.liveness_s)
        self.desired.reset(stored.brokers, stored.version)
        self._acknowledged = set()

    def is_lost(self, version: int) -> bool:
        """Whether a broker can have been told a version by another copy of the store only: every leader begins with a
        later version than it found, by chance."""
        at = bisect_left(self._skipped_from, version) - 1
        return at >= 0 and version <= self.skips[self._skipped_from[at]]

    # Topics

    @property
    def topics(self) -> dict[str, Topic]:
        """{name: topic}, removed ones too."""
        return self.table.topics

    @property
    def loads(self) -> Mapping[str, BrokerLoad]:
        """{broker: its load from all topics}, of the brokers that have publishers."""
        return self.table.loads

    @property
    def headroom(self) -> Headroom:
        """The load of every broker, topic by topic."""
        return self.table.headroom

    def topic(self, name: str) -> Topic:
        """Raises NotFound, also if it was removed."""
        topic = self.managed_topic(name)
        if topic is None:
            raise NotFound("topic", name)
        return topic

    def managed_topic(self, name: str) -> Topic | None:
        """None: there is none, or it was removed."""
        topic = self.topics.get(name)
        return None if topic is None or topic.removed else topic

    def managed(self) -> list[Topic]:
        """Topics that are not removed."""
        return self.table.managed()

    def forgettable(self) -> list[str]:
        """Removed topics of which no broker can hold a share, and that were removed long ago: any broker that comes
        back has been told, and a bucket of their name would be full again."""
        now_ns = self.wall_ns()
        return [
            name
            for name, topic in self.topics.items()
            if topic.removed
            and name not in self.table.pending_removals
            and now_ns - self._removed_at_ns(name) > 1e9 * _kept_removed_s(topic)
        ]

    def _removed_at_ns(self, name: str) -> int:
        entries = self.decisions.get(name)
        return entries[-1].wall_ns if entries else 0

    def placed_on(self, broker: str) -> list[Topic]:
        """Topics with publishers on ``broker``."""
        return [topic for topic in self.managed() if broker in topic.placement.brokers]

    # Brokers

    def broker(self, name: str) -> Broker:
        """Raises NotFound."""
        if name not in self.brokers:
            raise NotFound("broker", name)
        return self.brokers[name]

    def broker_state(self, name: str) -> BrokerState:
        """Where ``name`` is in its life."""
        if name not in self.brokers:
            return BrokerState.UNKNOWN
        if self.brokers[name].dead:
            return BrokerState.DEAD
        if name in self.draining:
            return BrokerState.DRAINING
        if self.liveness.is_heard(name):
            return BrokerState.LIVE
        return BrokerState.SILENT if self.liveness.all_heard([name]) else BrokerState.EXPECTED

    def state_after(self, name: str, event: BrokerEvent) -> BrokerState | None:
        """None: ``event`` is not allowed in the present state of broker ``name``."""
        return next_state(self.broker_state(name), event)

    def is_alive(self, name: str) -> bool:
        """Whether ``name`` syncs, and was not proven dead since."""
        return name in self.brokers and not self.brokers[name].dead and self.liveness.is_heard(name)

    def live(self) -> set[str]:
        """Brokers that are alive, draining ones too."""
        return {name for name in self.brokers if self.is_alive(name)}

    def dead_brokers(self) -> set[str]:
        """Brokers that are proven dead, and have not come back."""
        return {name for name, broker in self.brokers.items() if broker.dead}

    def is_draining(self, name: str) -> bool:
        """Whether ``name`` is taken out of service, or was when it died."""
        return name in self.draining

    def typical_mcap(self) -> float:
        """Msg/s that the next broker may be expected to state; 0: no broker states any."""
        return max((broker.mcap for broker in self.brokers.values()), default=0.0)

    def takes_more(self) -> set[str]:
        """Brokers that may be given publishers."""
        return {
            name
            for name, broker in self.brokers.items()
            if broker.accepting and self.broker_state(name) is BrokerState.LIVE
        }

    def died_lately(self, topic: Topic) -> list[str]:
        """Dead brokers that still have publishers of ``topic``, for the grace period."""
        brokers = self.brokers
        return sorted(name for name in topic.placement.brokers if name in brokers and brokers[name].dead)

    def is_gone(self, name: str, topic: Topic) -> bool:
        """Whether nothing of ``topic`` can be in force at ``name``: it is dead, or its lease is over. Under
        ``writing``."""
        is_dead = name not in self.brokers or self.brokers[name].dead
        return is_dead or name in topic.leases.expired(self.silent_ms)

    def silent_ms(self, name: str) -> float:
        """Milliseconds since the last sync of ``name``."""
        return self.liveness.silent_s(name) * 1000

    def is_settled(self) -> bool:
        """Whether it is known which brokers live.

        Right after a start none has synced. A plan made then would put a topic onto no broker.
        """
        return self.liveness.all_heard(self._expected())

    async def wait_settled(self) -> None:
        """Until ``is_settled``."""
        await self.liveness.wait_all_heard(self._expected)

    def _expected(self) -> set[str]:
        return self.brokers.keys() - self.dead_brokers()

    def desired_version(self, broker: str) -> int:
        """The version of the state that ``broker`` is to have."""
        return self.desired.version(broker, self.version)

    # Changes

    async def commit(self, change: StateChange) -> None:
        """Store ``change``, then show it. Under ``writing``. Raises Unavailable.

        Everything in ``change`` that has a new version has ``self.version + 1``.
        """
        version = self.version + 1
        log = self._log_entries(change)
        caps = self._caps_after(change)
        rows = cluster_rows.changes(change, version, self.topics, log)
        contracts = cluster_rows.contract_changes(self.contracts, change.contracts or self.contracts)
        skips = cluster_rows.skip_changes(self.skips) if self._new_skips else ()
        await self._store.apply(
            itertools.chain(rows, cluster_rows.cap_changes(self.caps, caps), contracts, skips)
        )  # durable first
        self._new_skips = {}
        self.version, self.caps = version, caps
        self._publish(change, log)  # then visible

    def show_acknowledged(self, topics: Sequence[Topic]) -> None:
        """Show ``topics``, of which brokers have acknowledged more; ``store_acknowledged`` stores it.

        An acknowledgement only lowers bounds, and brokers repeat it with every sync. A leader that never saw it has
        bounds that are too high, which is safe. Tokens that it frees are issued by a commit, which stores it too. Under
        ``writing``.
        """
        self._acknowledged.update(topic.name for topic in topics)
        self.table.replace(topics)
        for name in self.brokers if topics else ():
            self.desired.wake(name)

    async def store_acknowledged(self) -> None:
        """Store what ``show_acknowledged`` has shown since the last commit of the same topics. Raises Unavailable."""
        async with self.writing:
            if self._acknowledged:
                await self.commit(StateChange(topics=[self.topics[name] for name in sorted(self._acknowledged)]))

    def _log_entries(self, change: StateChange) -> dict[str, Decision]:
        if not change.decision:
            return {}
        lines, wall_ns = tuple(change.decision.split("\n")), self.wall_ns()
        return {
            topic.name: Decision(number=self._last_decision(topic.name) + 1, wall_ns=wall_ns, lines=lines)
            for topic in change.topics
        }

    def _last_decision(self, topic: str) -> int:
        entries = self.decisions.get(topic)
        return entries[-1].number if entries else 0

    def _caps_after(self, change: StateChange) -> CapacityCaps:
        caps = caps_after(self.caps, self.topics, change.topics)
        caps = caps.without(change.forgotten_broker) if change.forgotten_broker else caps
        return caps.merged(change.caps)

    def _publish(self, change: StateChange, log: Mapping[str, Decision]) -> None:
        old_topics, headroom_changes = self.topics, self.headroom.changes.count
        self._publish_brokers(change)
        self.table.replace(change.topics)
        if change.forgotten_topics:
            self.table.forget(change.forgotten_topics)
            self.desired.differences.forget_topics(change.forgotten_topics)
            for name in change.forgotten_topics:
                self.decisions.pop(name, None)
        self._acknowledged.difference_update(topic.name for topic in change.topics)
        self.contracts = change.contracts or self.contracts
        if change.fitting is not None:
            self.fittings[change.fitting.topic] = change.fitting
        self._publish_logs(change, log, old_topics)
        self._announce(change, old_topics, set(self.headroom.changes.since(headroom_changes)))

    def _publish_brokers(self, change: StateChange) -> None:
        known = self.brokers
        other_mcap = [one.name for one in change.brokers if one.name in known and known[one.name].mcap != one.mcap]
        self.headroom.changes.note([*other_mcap, *change.capacities])
        self.brokers.update({broker.name: broker for broker in change.brokers})
        self.brokers.pop(change.forgotten_broker, None)
        if change.brokers or change.forgotten_broker:
            self._note_brokers()
        self.desired.forget(change.forgotten_broker)
        capacities = {**self.capacities, **change.capacities}
        self.capacities = {name: figures for name, figures in capacities.items() if figures}
        draining = self.draining | change.draining.keys()
        self.draining = {name for name in draining if change.draining.get(name, True)}

    def _note_brokers(self) -> None:
        """Every sync compares these: they are made anew only if they are others."""
        living = {name: broker for name, broker in sorted(self.brokers.items()) if not broker.dead}
        now = {name: broker.incarnation for name, broker in living.items()}
        if now != self.incarnations:
            self.incarnations = now
        addresses = {name: broker.http_address for name, broker in living.items() if broker.http_address}
        if addresses != self.addresses:
            self.addresses, self.addresses_version = addresses, zlib.crc32(msgspec.json.encode(addresses))

    def _publish_logs(self, change: StateChange, log: Mapping[str, Decision], old_topics: Mapping[str, Topic]) -> None:
        for name, entry in log.items():
            self.decisions[name] = [*self.decisions.get(name, []), entry][-cluster_rows.DECISIONS_KEPT :]
        for topic in change.topics:
            if change.decision:
                self.share_log.note_decision(old_topics.get(topic.name), topic, change.decision, self.wall_ns())
            if topic.removed:
                self.fittings.pop(topic.name, None)

    def _announce(self, change: StateChange, old_topics: Mapping[str, Topic], other_load: set[str]) -> None:
        """Note for every broker what it is to be told. ``other_load``: brokers with another load or capacity."""
        for name in self.brokers:
            topics = [
                topic.name for topic in change.topics if changes_desired_state(old_topics.get(topic.name), topic, name)
            ]
            topics += self.table.pooled_on(name) if name in other_load else []  # they go by what it can process
            is_order = name in change.draining or change.contracts is not None
            if is_order or topics:
                self.desired.note(name, topics, self.version)
            is_new = self.desired.add(name, self.version)
            if is_order or change.topics or is_new:
                self.desired.wake(name)


def _kept_removed_s(topic: Topic) -> float:
    """How long a removed topic is remembered, in seconds: also until a bucket of its envelope would be full again."""
    burst, rate = topic.spec.burst, topic.spec.rate
    return REMOVED_KEPT_S if isinstance(burst, str) else max(REMOVED_KEPT_S, burst / rate)
