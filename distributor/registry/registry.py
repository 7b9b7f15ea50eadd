"""The registry: one face for the parts that read and change the cluster state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self, TypeVar

from distributor.config import DistributorConfig
from distributor.registry.broker_requests import BrokerRequests
from distributor.registry.contract_requests import ContractRequests
from distributor.registry.control_loops import ControlLoops
from distributor.registry.maintenance import Maintenance
from distributor.registry.room import Room
from distributor.registry.state import ClusterState
from distributor.registry.topic_requests import TopicRequests
from distributor.storage.store import Store

T = TypeVar("T")


class _Method(Generic[T]):
    """A method of one part of a registry, as a method of the registry."""

    def __init__(self, of: Callable[[Registry], T]) -> None:
        self._of = of

    def __get__(self, registry: Registry, _owner: type[Registry]) -> T:
        return self._of(registry)


class _Value(_Method[T]):
    """A value of one part of a registry, to be read from the registry."""

    def __set__(self, _registry: Registry, _value: T) -> None:
        raise AttributeError("is shown here only: set it where it is")


class Registry:
    """Read it at any time; change it by the methods below. ``run`` its maintenance beside it."""

    state: ClusterState
    room: Room
    maintenance: Maintenance
    topic_requests: TopicRequests
    contract_requests: ContractRequests
    broker_requests: BrokerRequests
    control_loops: ControlLoops

    # Cluster state
    config = _Value(lambda registry: registry.state.config)
    audit = _Value(lambda registry: registry.state.audit)
    leads = _Value(lambda registry: registry.state.leads)
    leader_url = _Value(lambda registry: registry.state.leader_url)
    identity = _Value(lambda registry: registry.state.identity)
    version = _Value(lambda registry: registry.state.version)
    incarnations = _Value(lambda registry: registry.state.incarnations)
    addresses = _Value(lambda registry: registry.state.addresses)
    addresses_version = _Value(lambda registry: registry.state.addresses_version)
    brokers = _Value(lambda registry: registry.state.brokers)
    topics = _Value(lambda registry: registry.state.topics)
    topic_changes = _Value(lambda registry: registry.state.table.changes)
    pending_removals = _Value(lambda registry: registry.state.table.pending_removals)
    decisions = _Value(lambda registry: registry.state.decisions)
    capacities = _Value(lambda registry: registry.state.capacities)
    caps = _Value(lambda registry: registry.state.caps)
    draining = _Value(lambda registry: registry.state.draining)
    fittings = _Value(lambda registry: registry.state.fittings)
    pins = _Value(lambda registry: registry.state.pins)
    being_fitted = _Value(lambda registry: registry.state.being_fitted)
    liveness = _Value(lambda registry: registry.state.liveness)
    loads = _Value(lambda registry: registry.state.loads)
    headroom = _Value(lambda registry: registry.state.headroom)
    share_changes = _Value(lambda registry: registry.state.share_log.changes)
    share_change_counts = _Value(lambda registry: registry.state.share_log.counts)
    topic = _Method(lambda registry: registry.state.topic)
    managed_topic = _Method(lambda registry: registry.state.managed_topic)
    managed = _Method(lambda registry: registry.state.managed)
    broker = _Method(lambda registry: registry.state.broker)
    broker_state = _Method(lambda registry: registry.state.broker_state)
    is_alive = _Method(lambda registry: registry.state.is_alive)
    live = _Method(lambda registry: registry.state.live)
    takes_more = _Method(lambda registry: registry.state.takes_more)
    died_lately = _Method(lambda registry: registry.state.died_lately)
    wait_settled = _Method(lambda registry: registry.state.wait_settled)
    # What brokers are told
    desired_version = _Method(lambda registry: registry.state.desired_version)
    differences = _Value(lambda registry: registry.state.desired.differences)
    changed = _Method(lambda registry: registry.state.desired.changed)
    wake = _Method(lambda registry: registry.state.desired.wake)
    # Room on brokers
    offered = _Method(lambda registry: registry.room.offered)
    overfull = _Method(lambda registry: registry.room.overfull)
    max_rate = _Method(lambda registry: registry.room.max_rate)
    leaves_room = _Method(lambda registry: registry.room.leaves_room)
    # Changes that operators ask for
    submit = _Method(lambda registry: registry.topic_requests.submit)
    dry_run = _Method(lambda registry: registry.topic_requests.dry_run)
    split_after = _Method(lambda registry: registry.topic_requests.split_after)
    change_publishers = _Method(lambda registry: registry.topic_requests.change_publishers)
    set_options = _Method(lambda registry: registry.topic_requests.set_options)
    remove = _Method(lambda registry: registry.topic_requests.remove)
    # Contracts
    contracts = _Value(lambda registry: registry.state.contracts)
    put_contracts = _Method(lambda registry: registry.contract_requests.put)
    put_contract = _Method(lambda registry: registry.contract_requests.put_one)
    remove_contract = _Method(lambda registry: registry.contract_requests.remove)
    # Changes of brokers
    apply_update = _Method(lambda registry: registry.broker_requests.apply_update)
    declare_dead = _Method(lambda registry: registry.broker_requests.declare_dead)
    drain = _Method(lambda registry: registry.broker_requests.drain)
    undrain = _Method(lambda registry: registry.broker_requests.undrain)
    set_capacity = _Method(lambda registry: registry.broker_requests.set_capacity)
    forget_capacities = _Method(lambda registry: registry.broker_requests.forget_capacities)
    forget = _Method(lambda registry: registry.broker_requests.forget)
    # Changes by control loops
    adapt = _Method(lambda registry: registry.control_loops.adapt)
    arrange = _Method(lambda registry: registry.control_loops.arrange)
    note_fitting = _Method(lambda registry: registry.control_loops.note_fitting)
    leave_pinned = _Method(lambda registry: registry.control_loops.leave_pinned)
    note = _Method(lambda registry: registry.control_loops.note)
    add_small_share = _Method(lambda registry: registry.control_loops.add_small_share)
    take_back_share = _Method(lambda registry: registry.control_loops.take_back_share)
    set_misplaced = _Method(lambda registry: registry.control_loops.set_misplaced)

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.room = Room(state)
        self.maintenance = Maintenance(state, self.room)
        self.topic_requests = TopicRequests(state, self.room)
        self.contract_requests = ContractRequests(state)
        self.broker_requests = BrokerRequests(state, self.room, self.maintenance)
        self.control_loops = ControlLoops(state, self.room)

    @classmethod
    async def load(cls, store: Store, config: DistributorConfig) -> Self:
        """A registry of what is stored. Raises Unavailable."""
        state = ClusterState(store, config)
        await state.load()
        return cls(state)

    async def run(self) -> None:
        """Until cancelled: see ``Maintenance``."""
        await self.maintenance.run()
