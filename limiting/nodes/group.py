"""One contract on all nodes: the state machine of its mode here, and what a check of a subject says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from limiting.replication.auto import Auto
from limiting.replication.exact import ASK_AGAIN, Asked, Exact
from limiting.replication.gossiped.counter import CounterNode
from limiting.replication.gossiped.gossip import Gossip, GossipNode, GossipOptions
from limiting.replication.gossiped.queue import QueueNode
from limiting.replication.levels import place_of
from limiting.replication.messages import Hello
from limiting.replication.node import Node
from limiting.replication.refill import NEVER_NS, Left, Refill, Subject, units_of
from limiting.replication.refill import Verdict as Said
from limiting.replication.replicated import OnPartition, Options, Replicated
from limiting.wire.cluster_key import ClusterKey
from srtm.contracts.contract import GOSSIPED, Contract, Mode
from srtm.contracts.policy import Bucket, Concurrency, Window
from srtm.contracts.verdict import PolicyVerdict, Verdict
from srtm.errors import BadInput
from srtm.token_bucket.bucket import TOKEN, UNITS_PER_MICRO

NODE_MODES: tuple[Mode, ...] = ("replicated", "exact", "auto", "counter", "queue")
KINDS_OF_REPLICATED = ("bucket", "window", "concurrency")
FRAME_NS = 5_000_000  # news of a hot subject waits so long: docs/results/hot-subject.md
DELAY_NS = 55_000_000  # of a frame and a wire of 50 ms: what makes a subject hot

Clocks = tuple[int, int]  # monotonic and wall, ns
_Kind = TypeVar("_Kind", Window, Concurrency)


def tag_of(contract: Contract, mode: Mode, key: ClusterKey) -> bytes:
    """What names a contract's group to peers: nodes whose policies are of other kinds do not hear each other."""
    kinds = [policy.kind for policy in contract.policies]
    told = str(len(kinds)) if set(kinds) == {"bucket"} else ",".join(kinds)
    return key.group(*contract.key, mode, told)


def check_grouped(contract: Contract, mode: Mode) -> None:
    """Raises BadInput for a contract that cannot be held by several nodes together."""
    kinds = KINDS_OF_REPLICATED if mode == "replicated" else ("bucket",)
    for number, policy in enumerate(contract.policies):
        if policy.kind not in kinds:
            one_of = " or ".join(f'"{kind}"' for kind in kinds)
            rule = f'must be {one_of} in mode "{mode}"; other kinds are counted on one node, in mode "local"'
            raise BadInput(f"policies[{number}].kind", policy.kind, rule)
        if policy.kind != "bucket" and contract.on_partition == "share":
            rule = f'must be "go on" with the {policy.kind} {policy.name}: parts of a partition share buckets only'
            raise BadInput("on_partition", "share", rule)
    if mode in GOSSIPED and len(contract.policies) > 1:
        raise BadInput("policies", len(contract.policies), f'must be one policy in mode "{mode}"')
    if not contract.starts_full and mode in GOSSIPED:
        raise BadInput("starts", "empty", f'must be "full" in mode "{mode}"')


class Group:
    """``tag`` names it to its peers. ``first``: nothing was taken before. ``waits``: the peers start with this node:
    until they are linked it lets nothing through, for 3 s at most. Instants: the node's own clocks."""

    def __init__(
        self,
        contract: Contract,
        mode: Mode,
        tag: bytes,
        own: int,
        peers: Mapping[int, bool],
        clocks: Clocks,
        epoch: int,
        *,
        first: bool,
        waits: bool,
        most_subjects: int,
    ) -> None:
        check_grouped(contract, mode)
        self.contract, self.mode, self.tag = contract, mode, tag
        self.counts = [[0, 0, 0] for _ in contract.policies]  # allowed, refused, cost
        self._most_subjects = most_subjects
        self._gossips = mode in GOSSIPED
        self._peers = set(peers)
        self._epochs: dict[int, int] = {}  # of peers, as their hellos told
        self.machine = _machine(contract, mode, own, peers, clocks, epoch)
        node = self._node
        if node is not None:
            node.bound(most_subjects)
            node.levels.starts_empty = not contract.starts_full
        self._begins = node is not None and first  # unused, once it may
        if isinstance(node, Exact) or not waits:  # ``exact`` waits for its peers by itself
            self._begin(clocks, at_once=True)
        if isinstance(self.machine, Exact):
            self.machine.cut = {peer for peer, connected in peers.items() if not connected}

    def _begin(self, clocks: Clocks, *, at_once: bool = False) -> None:
        """Where nothing was taken before, let through from now on, if all peers are there to hear of it."""
        node = self._node
        if self._begins and node is not None and (at_once or node.is_linked(self._at(clocks))):
            self._begins = False
            node.begin_unused(self._at(clocks))

    @property
    def due_ns(self) -> int:
        """When ``tick`` has something to send, by the clock of ``at``; besides it is called every second."""
        machine = self.machine.replicated if isinstance(self.machine, Auto) else self.machine
        return NEVER_NS if isinstance(machine, Exact) else machine.due_ns

    @property
    def _node(self) -> Node | None:
        machine = self.machine
        if isinstance(machine, Auto):
            return machine.replicated
        return machine if isinstance(machine, Node) else None

    def _at(self, clocks: Clocks) -> int:
        """The thesis's designs need clocks that agree; ours need none, but for windows."""
        if isinstance(self.machine, Replicated):
            self.machine.ahead_ns = clocks[1] - clocks[0]
        return clocks[1] if self._gossips else clocks[0]

    def at(self, clocks: Clocks) -> int:
        """The instant by which this group's machine counts, ns."""
        return self._at(clocks)

    # checks

    def place(self, subject: Subject) -> tuple[Subject, bool]:
        """The subject that the machine counts; True: beyond the bound, where new subjects share places."""
        machine = self.machine
        if not isinstance(machine, GossipNode):
            assert self._node is not None
            return subject, self._node.is_shared(subject)
        if len(machine.local) < self._most_subjects or subject in machine.local:
            return subject, False
        return place_of((subject, 0))[0], True

    @property
    def subjects(self) -> int:
        """How many subjects are in memory; of several policies each counts."""
        if isinstance(self.machine, GossipNode):
            return len(self.machine.local)
        assert self._node is not None
        return self._node.counts // len(self.contract.policies)

    def take(self, subject: Subject, cost: int, clocks: Clocks, name: int) -> Said | Asked | None:
        """Take ``cost`` tokens. Asked: the answer comes later. None: this node cannot decide now. ``name``: of the
        request, which no other one has."""
        if isinstance(self.machine, Replicated):
            return self._until_begun(self.machine.take(subject, cost, self._at(clocks), name), clocks)
        said = self.machine.take(subject, cost, self._at(clocks))
        return None if said is ASK_AGAIN else said if isinstance(said, Asked) else self._until_begun(said, clocks)

    def release(self, subject: Subject, name: int, clocks: Clocks) -> bool:
        """End an open request that this node let in. False: it is not open."""
        machine = self.machine
        return isinstance(machine, Replicated) and machine.release(subject, name, self._at(clocks))

    @property
    def opens(self) -> bool:
        """Requests under this contract are open until they are released."""
        return isinstance(self.machine, Replicated) and bool(self.machine.opens.rules)

    def looked(self, subject: Subject, cost: int, clocks: Clocks) -> Said:
        """What ``take`` would say, by what this node knows. It changes nothing."""
        units = units_of(cost)
        waits = [look.wait_ns(units) for look in self.machine.look(subject, self._at(clocks))]
        if all(wait == 0 for wait in waits):
            return Said(True)
        longest = None if None in waits else max(wait for wait in waits if wait is not None)
        return self._until_begun(Said(False, longest), clocks)

    def _until_begun(self, said: Said, clocks: Clocks) -> Said:
        """A node of a new cluster knows when it begins: what it counts as used up until then was never taken."""
        node = self._node
        if said.allowed or said.wait_ns is None or node is None or not self._begins:
            return said
        return Said(False, max(1, node.alone_ns - self._at(clocks)))

    def verdict(self, subject: Subject, cost: int, said: Said, clocks: Clocks, *, shared: bool, taken: bool) -> Verdict:
        """The verdict of a take, or of a look."""
        looks: list[Left] = [*self.machine.look(subject, self._at(clocks))]
        units = cost * TOKEN
        refusing = [not said.allowed and look.left < units for look in looks]
        if not said.allowed and not any(refusing):  # the owner of an exact subject keeps some for news on its way
            refusing[looks.index(min(looks, key=lambda look: look.left))] = True
        decides = not isinstance(self.machine, Exact) and not self._begins  # else an owner may know of a longer wait
        policies = tuple(
            PolicyVerdict(
                policy.name,
                not refuses,
                max(0, look.left) // TOKEN,
                (look.wait_ns(units) if decides else said.wait_ns) if refuses else 0,
                look.reset_ns(),
            )
            for policy, look, refuses in zip(self.contract.policies, looks, refusing, strict=True)
        )
        if taken:
            self._count(said.allowed, refusing, cost)
        shadowed = self.contract.shadow and not said.allowed
        allowed = said.allowed or shadowed
        return Verdict(allowed, self.contract, policies, said.wait_ns, None, shared, shadowed, self.mode)

    def _count(self, allowed: bool, refusing: list[bool], cost: int) -> None:
        for row, refuses in zip(self.counts, refusing, strict=True):
            row[0] += allowed
            row[1] += refuses
            row[2] += cost if allowed else 0

    def charge(self, subject: Subject, cost: int, clocks: Clocks, *, everywhere: bool = False) -> None:
        """Take ``cost`` tokens without a check, down to the policies' debts at most; below 0: give back, but in mode
        ``exact``. ``everywhere``: not only from this node's share of a hot subject.

        Raises BadInput in modes that cannot.
        """
        machine = self._charging()
        at_ns = self._at(clocks)
        if everywhere and isinstance(machine, Auto):
            looks, debit = machine.look_everywhere(subject, at_ns), machine.debit_everywhere
        else:
            looks, debit = machine.look(subject, at_ns), machine.debit
        most = [
            look.left + policy.max_debt_micro * UNITS_PER_MICRO if isinstance(policy, Bucket) else cost * TOKEN
            for look, policy in zip(looks, self.contract.policies, strict=True)
        ]
        debit(subject, [min(cost * TOKEN, max(0, each)) for each in most], at_ns)

    def reset(self, subject: Subject, clocks: Clocks) -> None:
        """Give back all that is taken, and end what is open. Raises BadInput in modes that cannot, Unavailable."""
        self._charging().reset(subject, self._at(clocks))

    def _charging(self) -> Replicated | Exact | Auto:
        if isinstance(self.machine, GossipNode):
            rule = 'must be "replicated", "exact", "auto" or "local": this mode takes by checks only'
            raise BadInput("mode", self.mode, rule)
        return self.machine

    def change(self, contract: Contract, clocks: Clocks) -> bool:
        """Decide by a changed contract. False: the group must be made anew."""
        kinds = [[policy.kind for policy in each.policies] for each in (contract, self.contract)]
        same = kinds[0] == kinds[1] and contract.on_partition == self.contract.on_partition
        if not same or self._gossips:
            return False
        check_grouped(contract, self.mode)
        refills = _refills(contract)
        if isinstance(self.machine, Auto):
            self.machine.change(refills, self._at(clocks))
        elif isinstance(self.machine, Replicated):
            self.machine.change(refills, self._at(clocks), _of(Window, contract), _of(Concurrency, contract))
        elif isinstance(self.machine, Node):
            self.machine.change(refills, self._at(clocks))
        if self._node is not None:
            self._node.levels.starts_empty = not contract.starts_full
        self.contract = contract
        return True

    # nodes

    def receive(self, frame: Any, clocks: Clocks) -> None:
        """Take in a peer's frame. Raises PeerError, BadInput for one that cannot be."""
        if isinstance(frame, Hello):
            self._greeted(frame, clocks)
        self.machine.receive(frame, self._at(clocks))
        self._begin(clocks)

    def _greeted(self, frame: Hello, clocks: Clocks) -> None:
        """A peer of a later epoch decides no more in its earlier one: ``exact`` must be told so."""
        known = self._epochs.get(frame.origin, 0)
        self._epochs[frame.origin] = max(known, frame.epoch)
        if isinstance(self.machine, Exact) and 0 < known < frame.epoch and frame.origin in self._peers:
            self.machine.remove_peer(frame.origin, self._at(clocks))
            self.machine.add_peer(frame.origin)

    def up(self, peer: int, clocks: Clocks) -> None:
        """A peer can be reached."""
        if peer not in self._peers:
            self._add(peer, clocks)
        if isinstance(self.machine, Exact):
            self.machine.cut.discard(peer)
        if self._node is not None:
            self._node.reached(peer, self._at(clocks))

    def down(self, peer: int) -> None:
        """A peer cannot be reached."""
        if isinstance(self.machine, Exact) and peer in self._peers:
            self.machine.cut.add(peer)

    def remove(self, peer: int, clocks: Clocks) -> None:
        """A peer is gone, and decides no more. It may come again."""
        if peer in self._peers and not isinstance(self.machine, GossipNode):
            self._peers.discard(peer)
            self.machine.remove_peer(peer, self._at(clocks))

    def _add(self, peer: int, clocks: Clocks) -> None:
        self._peers.add(peer)
        self._epochs.pop(peer, None)
        if isinstance(self.machine, Auto):
            self.machine.add_peer(peer, self._at(clocks))
        elif isinstance(self.machine, Node):
            self.machine.add_peer(peer)

    def tick(self, clocks: Clocks) -> None:
        """Send what is due, and repeat what was not answered."""
        self._begin(clocks)
        self.machine.tick(self._at(clocks))

    def forget(self, clocks: Clocks) -> None:
        """Forget subjects that have nothing used."""
        if self._node is not None:
            self._node.forget(self._at(clocks))

    def outbox(self) -> list[tuple[int, Any]]:
        """(peer, frame) to send, in order."""
        return list(self.machine.outbox())

    def answers(self) -> dict[int, Said]:
        """What owners said, by ticket."""
        return self.machine.answers() if isinstance(self.machine, Exact) else {}


def _machine(
    contract: Contract, mode: Mode, own: int, peers: Mapping[int, bool], clocks: Clocks, epoch: int
) -> Replicated | Exact | Auto | CounterNode | QueueNode:
    refills = _refills(contract)
    at_ns, wall_ns = clocks
    options = Options(frame_ns=FRAME_NS, on_partition=OnPartition(contract.on_partition))
    if mode == "replicated":
        return Replicated(
            own,
            peers,
            refills,
            at_ns,
            options,
            epoch=epoch,
            rejoins=True,
            windows=_of(Window, contract),
            opens=_of(Concurrency, contract),
            ahead_ns=wall_ns - at_ns,
        )
    if mode == "exact":
        return Exact(own, peers, refills, at_ns, epoch=epoch, rejoins=True)
    if mode == "auto":
        return Auto(own, peers, refills, at_ns, DELAY_NS, options, epoch=epoch, rejoins=True)
    gossip = GossipOptions(gossip=Gossip(contract.gossip), frequency_analysis=contract.frequency_analysis)
    return (CounterNode if mode == "counter" else QueueNode)(own, peers, refills[0], wall_ns, gossip)


def _refills(contract: Contract) -> list[Refill]:
    buckets = [policy for policy in contract.policies if isinstance(policy, Bucket)]
    return [Refill(rate_micro=bucket.rate_micro, burst_micro=bucket.burst_micro) for bucket in buckets]


def _of(kind: type[_Kind], contract: Contract) -> dict[int, _Kind]:
    """The policies of one kind, by number."""
    return {number: policy for number, policy in enumerate(contract.policies) if isinstance(policy, kind)}
