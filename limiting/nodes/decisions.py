"""Decides for every contract: by the limiter of this process, by a group where several nodes hold it, or by a store.

Groups tell each other by a mesh of links. On one node, without a mesh, every contract is ``local``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import trio

from limiting.checks import Checked, check, each_cost
from limiting.nodes.corrections import Corrections
from limiting.nodes.due_groups import DueGroups
from limiting.nodes.group import NODE_MODES, Clocks, Group, check_grouped, tag_of
from limiting.nodes.members import Members, read_members
from limiting.nodes.mesh import Connect, Mesh
from limiting.nodes.owner_answers import OwnerAnswers
from limiting.replication.exact import Asked
from limiting.replication.messages import Corrected, Correction, Release
from limiting.replication.node import SECOND_NS
from limiting.replication.node_grants import Grant
from limiting.replication.refill import NEVER_NS
from limiting.replication.refill import Verdict as Said
from limiting.store.rules import rules_of
from limiting.store.shared import SharedStore
from limiting.watching import Bans, Heaviest, Watched, heaviest_of_all
from limiting.wire.cluster_key import ClusterKey, number_of
from limiting.wire.codec import decode, encode
from srtm.contracts.contract import GOSSIPED, Contract, Mode, contract_for
from srtm.contracts.policy import persists
from srtm.contracts.subject_plans import Plans
from srtm.contracts.verdict import Verdict
from srtm.errors import BadInput, NotFound, Unavailable
from srtm.limiting.limiter import MOST_COST, Heavy, Limiter, PolicyCounts, checked_cost, checked_subject, system_clocks
from srtm.log import Log

TAG_BYTES = 8
DECIDED_WITHIN_S = 1.0  # where the owner of an ``exact`` subject must be asked
_AGAIN_S = 0.02  # after a node that could not decide
_FORGET_EVERY_S = 10


class Nodes(NamedTuple):
    """The nodes that hold contracts together. ``first``: nothing was taken before: the first start of all nodes."""

    members: Members
    key: ClusterKey
    mode: Mode = "replicated"  # of contracts that name none
    first: bool = False


class NodeState(NamedTuple):
    """Another node, as this one sees it."""

    name: str
    address: str
    connected: bool
    removed: bool


class Decisions:
    """All contracts in force. ``connect``: opens a stream to a node by its name. ``store``: decides in mode ``store``.

    ``mode``: of contracts that name none, on one node.
    """

    def __init__(
        self,
        limiter: Limiter,
        nodes: Nodes | None = None,
        connect: Connect | None = None,
        *,
        store: SharedStore | None = None,
        mode: Mode = "local",
        clocks: Callable[[], Clocks] = system_clocks,
        most_subjects: int = 1_000_000,
        plans: Plans | None = None,
    ) -> None:
        self.limiter = limiter
        self._plans = plans or Plans()
        self.watched = Watched()
        self._heaviest = Heaviest()  # of what is not decided by the limiter, which has its own
        self.bans = Bans()
        self._store = store
        self._mode = mode if nodes is None else nodes.mode
        self._nodes = nodes
        self._clocks = clocks
        self._most_subjects = most_subjects
        self._log = Log("limit")
        self.mesh = None
        if nodes is not None and connect is not None:
            self.mesh = Mesh(nodes.members, nodes.key, connect, self, self._log)
        self._contracts: dict[tuple[str, str], Contract] = {}
        self._groups: dict[tuple[str, str], Group] = {}
        self._tags: dict[bytes, Group] = {}
        self._exact: set[tuple[str, str]] = set()  # contracts whose checks may wait for another node
        self._removed: set[str] = set()
        self._runs = False  # a contract that is put while it runs is new: nothing was taken here before
        self._names = nodes.members.numbers if nodes is not None else {}
        self._corrections = None
        if nodes is not None:
            own = nodes.members.own
            self._corrections = Corrections(
                own, self._names, nodes.key, clocks, self._charge_granted, self._end_granted, self._send
            )
        self._epoch = clocks()[1] // 1_000_000
        self._due = DueGroups()
        self._answers = OwnerAnswers()

    # contracts

    def mode_of(self, contract: Contract) -> Mode:
        """How a contract is decided: as it says, else as the service is told."""
        return contract.mode or self._mode

    def check_served(self, contract: Contract) -> None:
        """Raises BadInput for a contract that this service cannot decide by."""
        mode = self.mode_of(contract)
        for policy in filter(persists, contract.policies):
            if mode != "local" or not self.limiter.keeps:
                rule = 'needs the mode "local" and a directory (--data): peers and stores remember the others'
                raise BadInput(f"policies.{policy.name}.persist", True, rule)
        if mode == "local":
            return
        if mode == "store":
            if self._store is None:
                raise BadInput("mode", mode, "needs a store: this service has none (--store)")
            rules_of(contract)
            return
        if self._nodes is None:
            raise BadInput("mode", mode, 'must be "local": this service has no peers (--node, --peers)')
        if mode not in NODE_MODES:
            raise BadInput("mode", mode, f"must be local, store, {', '.join(NODE_MODES)}")
        check_grouped(contract, mode)

    def put(self, contract: Contract) -> None:
        """Put a contract in force, in the place of the one of its pattern. Raises BadInput."""
        self.check_served(contract)
        mode = self.mode_of(contract)
        known = self._groups.get(contract.key)
        before = self._contracts.get(contract.key)
        if before is not None and self.mode_of(before) == "store" != mode:
            self._stored.remove(contract.key)
            del self._contracts[contract.key]
        if mode == "local":
            self.limiter.put(contract)
            self._drop(contract.key)
        elif mode == "store":
            self._stored.put(contract)
            self._drop(contract.key)
        elif known is None or known.mode != mode or not known.change(contract, self._clocks()):
            self._make(contract, mode)
        self._contracts[contract.key] = contract

    def _make(self, contract: Contract, mode: Mode) -> None:
        assert self._nodes is not None
        if contract.key in self._contracts and contract.key not in self._groups:
            self.limiter.remove(*contract.key)
        self._drop(contract.key)
        tag = tag_of(contract, mode, self._nodes.key)
        self._epoch = max(self._epoch + 1, self._clocks()[1] // 1_000_000)
        peers = {number: self._is_up(name) for number, name in self._names.items() if name not in self._removed}
        group = Group(
            contract,
            mode,
            tag,
            number_of(self._nodes.members.own),
            peers,
            self._clocks(),
            self._epoch,
            first=self._nodes.first or self._runs,
            waits=not self._runs,
            most_subjects=self._most_subjects,
        )
        self._groups[contract.key] = self._tags[tag] = group
        if mode == "exact":
            self._exact.add(contract.key)
        self._flush(group)

    def _is_up(self, name: str) -> bool:
        return self.mesh is not None and self.mesh.is_up(name)

    def _drop(self, key: tuple[str, str]) -> None:
        group = self._groups.pop(key, None)
        if group is not None:
            del self._tags[group.tag]
            self._exact.discard(key)
            self._due.drop(group.tag)

    def remove(self, namespace: str, pattern: str) -> None:
        """Remove a contract and its subjects. Raises NotFound."""
        key = namespace, pattern
        if self._store is not None and self._store.remove(key):
            self._contracts.pop(key)
            return
        if key not in self._groups:
            self.limiter.remove(namespace, pattern)
        self._drop(key)
        self._contracts.pop(key, None)

    def counts(self, contract: Contract) -> tuple[PolicyCounts, ...]:
        """What was asked of each policy of a contract in force, at this node. Raises NotFound."""
        if self.mode_of(contract) == "store":
            return self._stored.counts(contract)
        group = self._groups.get(contract.key)
        if group is None:
            return self.limiter.counts(contract)
        rows = zip(contract.policies, group.counts, strict=True)
        return tuple(PolicyCounts(policy.name, *row) for policy, row in rows)

    def subjects(self) -> dict[str, int]:
        """How many subjects are in memory, by namespace."""
        found = self.limiter.subjects()
        for (namespace, _), group in self._groups.items():
            found[namespace] = found.get(namespace, 0) + group.subjects
        return found

    # checks

    @property
    def _stored(self) -> SharedStore:
        assert self._store is not None
        return self._store

    def _stored_contract(self, namespace: str, subject: str) -> Contract | None:
        """The contract of a subject that the store holds. None: it does not."""
        if self._store is None:
            return None
        checked_subject(subject)
        contract = contract_for(self._contracts, namespace, subject)
        return contract if contract is not None and self.mode_of(contract) == "store" else None

    def _group_of(self, namespace: str, subject: str) -> Group | None:
        """The group of a subject's contract. None: the limiter decides."""
        if not self._groups:
            return None
        checked_subject(subject)
        contract = contract_for(self._contracts, namespace, subject)
        return None if contract is None else self._groups.get(contract.key)

    def is_limited(self, namespace: str, subject: str) -> bool:
        """Whether a contract is for a subject."""
        return contract_for(self._contracts, namespace, subject) is not None

    @property
    def may_wait(self) -> bool:
        """Whether a check may wait for another node, or for the store."""
        return bool(self._exact) or (self._store is not None and not self._store.is_empty)

    @property
    def are_local(self) -> bool:
        """Whether the limiter decides every check, and nobody else is to be told of them."""
        return not self._groups and not self.watched and (self._store is None or self._store.is_empty)

    async def check(
        self, namespace: str, subjects: Sequence[str], cost: int | Sequence[int], *, peek: bool = False
    ) -> Checked:
        """Take ``cost``, the same or one for each, from all subjects, or from none.

        Raises BadInput, NotFound, Unavailable.

        Where every subject is decided here, no other task runs in between.
        """
        subjects = [self._plans.named(namespace, subject) for subject in subjects]
        checked = await self._check(namespace, subjects, cost, peek=peek)
        for subject, verdict in () if peek else checked.verdicts:
            if verdict.mode != "local":
                self._heaviest.note((namespace, subject))
        if self.watched and not peek:
            for subject, tokens in each_cost(subjects, cost):
                self.watched.note((namespace, subject), self.second, allowed=checked.allowed, cost=tokens)
        return checked

    def heaviest(self, namespace: str, most: int) -> list[Heavy]:
        """The ``most`` most checked subjects of a namespace at this node, by a sample, the heaviest first."""
        here, others = self.limiter.heaviest(namespace, most), self._heaviest.of(namespace, most)
        return [Heavy(*row) for row in heaviest_of_all(here, others, most)]

    @property
    def second(self) -> int:
        """The second of now, for ``watched``."""
        return self._clocks()[0] // SECOND_NS

    async def _check(
        self, namespace: str, subjects: Sequence[str], cost: int | Sequence[int], *, peek: bool
    ) -> Checked:
        stored = [self._stored_contract(namespace, subject) for subject in subjects]
        costs = each_cost(subjects, cost)
        groups = [self._group_of(namespace, subject) for subject in subjects]
        if not any(stored) and not any(groups):
            return check(self.limiter, namespace, subjects, cost, peek=peek)
        if len(subjects) > 1 and not peek:
            _refuse_decided_apart(subjects, stored, groups)
        if len(subjects) == 1 and stored[0] is not None:
            verdict = await self._stored.check(stored[0], subjects[0], checked_cost(costs[0][1]), peek=peek)
            return _checked([(subjects[0], verdict)])
        if len(subjects) > 1 or peek:
            looked = [(subject, await self.peek(namespace, subject, tokens)) for subject, tokens in costs]
            if peek or not all(verdict.allowed for _, verdict in looked):
                return _checked(looked)
        taken = [
            (subject, await self._take(group, namespace, subject, tokens))
            for (subject, tokens), group in zip(costs, groups, strict=True)
        ]
        return _checked(taken)

    async def peek(self, namespace: str, subject: str, cost: int = 1) -> Verdict:
        """Say what ``check`` would say, by what this node knows, or the store. Raises BadInput, NotFound."""
        subject = self._plans.named(namespace, subject)
        stored = self._stored_contract(namespace, subject)
        if stored is not None:
            return await self._stored.check(stored, subject, checked_cost(cost), peek=True)
        group = self._group_of(namespace, subject)
        if group is None:
            return self.limiter.peek(namespace, subject, cost)
        place, shared = self._place(group, namespace, subject)
        said = group.looked(place, checked_cost(cost), self._clocks())
        return group.verdict(place, cost, said, self._clocks(), shared=shared, taken=False)

    def _place(self, group: Group, namespace: str, subject: str) -> tuple[bytes, bool]:
        assert self._nodes is not None
        return group.place(self._nodes.key.subject(namespace, subject))

    async def _take(self, group: Group | None, namespace: str, subject: str, cost: int) -> Verdict:
        if group is None:
            return self.limiter.check(namespace, subject, cost)
        place, shared = self._place(group, namespace, subject)
        checked_cost(cost)
        assert self._corrections is not None
        grant = self._corrections.made(group.tag, place, cost)
        said = group.take(place, cost, self._clocks(), grant.at_us)
        self._flush(group)
        if not isinstance(said, Said):
            said = await self._decided(group, place, grant, said)
        verdict = group.verdict(place, cost, said, self._clocks(), shared=shared, taken=True)
        if not said.allowed or group.mode in GOSSIPED:  # those cannot be corrected
            return verdict
        return verdict._replace(grant=self._corrections.sealed(grant))

    async def _decided(self, group: Group, place: bytes, grant: Grant, said: Said | Asked | None) -> Said:
        """Wait for the owner's answer, and ask again where there is none. Raises Unavailable."""
        with trio.move_on_after(DECIDED_WITHIN_S):
            while True:
                if isinstance(said, Asked):
                    said = await self._answers.wait(group.tag, said.ticket)
                if isinstance(said, Said):
                    return said
                await trio.sleep(_AGAIN_S)
                said = group.take(place, grant.cost, self._clocks(), grant.at_us)
                self._flush(group)
        away = [state.name for state in self.states() if not state.connected and not state.removed]
        why = f"cannot reach {', '.join(away)}" if away else "had no answer from the subject's owner"
        raise Unavailable(f'mode "exact" decides nothing here now: this node {why}', 1.0)

    async def correct(self, grant: bytes, cost: int) -> None:
        """Replace the cost of a check by what it came to. Raises BadInput, NotFound, Unavailable."""
        checked_cost(cost)
        granted = None if self._corrections is None else self._corrections.read(grant)
        if granted is not None and self._corrections is not None:
            self._granting(granted)
            await self._corrections.correct(grant, granted, cost)
        elif self._store is None or not await self._store.correct(grant, cost):
            self.limiter.correct(grant, cost)

    def _charge_granted(self, grant: Grant, more: int) -> None:
        group = self._tags[grant.group]
        group.charge(grant.subject, more, self._clocks())
        self._flush(group)

    def _granting(self, grant: Grant) -> Group:
        """The group whose check gave a grant. Raises NotFound."""
        group = self._tags.get(grant.group)
        if group is None:
            raise NotFound("contract", "of this grant")
        return group

    def _end_granted(self, grant: Grant) -> bool:
        group = self._tags[grant.group]
        ended = group.release(grant.subject, grant.at_us, self._clocks())
        self._flush(group)
        return ended

    async def release(self, grant: bytes) -> None:
        """End an open request of policies of kind ``concurrency``. Raises BadInput, NotFound, Unavailable."""
        granted = None if self._corrections is None else self._corrections.read(grant)
        if granted is not None and self._corrections is not None:
            if not self._granting(granted).opens:
                rule = "is of no policy of kind concurrency: there is nothing to release"
                raise BadInput("grant", "(not shown)", rule)
            await self._corrections.release(grant, granted)
        elif self._store is None or not await self._store.release(grant):
            self.limiter.release(grant)

    async def charge(self, namespace: str, subject: str, cost: int) -> None:
        """Charge a subject without a check; below 0: give back. Raises BadInput, NotFound, Unavailable."""
        await self._charge(namespace, self._plans.named(namespace, subject), cost)

    async def ban(self, namespace: str, subject: str) -> None:
        """Charge a subject all that can be: time pays it, or ``reset``. Raises BadInput, NotFound, Unavailable."""
        subject = self._plans.named(namespace, subject)
        await self._charge(namespace, subject, MOST_COST)
        self.bans.ban((namespace, subject), self._clocks()[1] // SECOND_NS)

    async def watch(self, namespace: str, subject: str) -> None:
        """Watch a subject from now on. Raises BadInput, NotFound, Unavailable."""
        subject = self._plans.named(namespace, subject)
        await self.peek(namespace, subject)  # refuses what can be none
        self.watched.watch((namespace, subject))

    def unwatch(self, namespace: str, subject: str) -> None:
        """Watch a subject no more. Raises NotFound."""
        self.watched.unwatch((namespace, self._plans.named(namespace, subject)))

    async def banned(self, namespace: str, most: int) -> list[tuple[str, int, Verdict]]:
        """The ``most`` latest subjects whose bans hold, since when (wall clock, s), and what their contracts say."""
        found: list[tuple[str, int, Verdict]] = []
        for subject, at_s in self.bans.of(namespace):
            if len(found) == most:
                break
            try:
                verdict = await self.peek(namespace, subject)
            except NotFound:
                self.bans.lift((namespace, subject))
                continue
            except Unavailable:
                continue  # the store is away, and nobody can say
            if verdict.allowed and not verdict.shadowed:
                self.bans.lift((namespace, subject))
            else:
                found.append((subject, at_s, verdict))
        return found

    async def _charge(self, namespace: str, subject: str, cost: int) -> None:
        stored = self._stored_contract(namespace, subject)
        if stored is not None:
            await self._stored.charge(stored, subject, cost)
            return
        group = self._group_of(namespace, subject)
        if group is None:
            self.limiter.charge(namespace, subject, cost)
            return
        group.charge(self._place(group, namespace, subject)[0], cost, self._clocks(), everywhere=True)
        self._flush(group)

    async def reset(self, namespace: str, subject: str) -> None:
        """Make a subject a new one, with nothing used. Raises BadInput, Unavailable."""
        subject = self._plans.named(namespace, subject)
        stored, group = self._stored_contract(namespace, subject), self._group_of(namespace, subject)
        if stored is not None:
            await self._stored.reset(stored, subject)
        elif group is None:
            self.limiter.reset(namespace, subject)
        else:
            group.reset(self._place(group, namespace, subject)[0], self._clocks())
            self._flush(group)
        self.bans.lift((namespace, subject))

    # other nodes

    def states(self) -> list[NodeState]:
        """The other nodes, by name."""
        if self._nodes is None:
            return []
        addresses = self._nodes.members.addresses
        names = sorted(self._names.values())
        return [NodeState(each, addresses[each], self._is_up(each), each in self._removed) for each in names]

    def remove_node(self, name: str) -> None:
        """Go on without a node that decides no more. It comes back when it connects. Raises NotFound, BadInput."""
        if name not in self._names.values():
            raise NotFound("node", name)
        if self._is_up(name):
            raise BadInput("node", name, "must have stopped: it is connected, and would decide on its own")
        self._removed.add(name)
        for group in self._groups.values():
            group.remove(number_of(name), self._clocks())
            self._flush(group)

    def meet(self, nodes: Mapping[str, str]) -> None:
        """Take where nodes are: addresses of all by name. One that is new counts once it connects.

        Raises BadInput for a list that cannot be one of nodes.
        """
        if self._nodes is None or self.mesh is None:
            return
        own, known = self._nodes.members.own, self._nodes.members.addresses
        after = {**known, **nodes}
        if after == known:
            return
        read_members(own, ",".join(f"{name}={address}" for name, address in after.items()))
        for name in after.keys() - known.keys():
            self._names[number_of(name)] = name
            self._removed.add(name)
            self._log.info("node_found", node=name, address=after[name])
        for name, address in after.items():
            if name != own:
                self.mesh.meet(name, address)

    def up(self, name: str) -> None:
        """A link to a node is open."""
        self._removed.discard(name)
        for group in self._groups.values():
            group.up(number_of(name), self._clocks())
            self._flush(group)

    def down(self, name: str) -> None:
        """A link to a node is gone."""
        self._log.warning("node_down", node=name)
        for group in self._groups.values():
            group.down(number_of(name))

    def message(self, name: str, message: bytes) -> None:
        """Take in a peer's message. Raises PeerError, BadInput for one that cannot be."""
        group = self._tags.get(message[:TAG_BYTES])
        if group is None:
            return  # of a contract that is not here yet: the peer repeats it
        frame = decode(message[TAG_BYTES:], number_of(name))
        if self._corrections is not None and isinstance(frame, Correction | Release | Corrected):
            self._corrections.heard(group.tag, frame)
            return
        group.receive(frame, self._clocks())
        self._flush(group)

    def _send(self, peer: int, tag: bytes, frame: object) -> bool:
        """Send a frame to a node, if it can be reached."""
        if self.mesh is None or not self.mesh.is_up(self._names[peer]):
            return False
        self.mesh.send(self._names[peer], tag + encode(frame))
        return True

    def _flush(self, group: Group) -> None:
        """Send what the group has to say, hand over answers, and wake its tick."""
        for peer, frame in group.outbox():
            self._send(peer, group.tag, frame)
        self._answers.hand_over(group.tag, group.answers())
        if group.due_ns < NEVER_NS:
            self._due.note(group.tag, group.due_ns - group.at(self._clocks()) + self._clocks()[0])
        else:
            self._due.drop(group.tag)

    async def run(self) -> None:
        """Keep the links, and tell what is due, until cancelled."""
        self._runs = True
        async with trio.open_nursery() as nursery:
            if self._store is not None:
                nursery.start_soon(self._store.run)
            if self.mesh is not None:
                nursery.start_soon(self.mesh.run)
                nursery.start_soon(self._tick)
            await trio.sleep_forever()

    async def _tick(self) -> None:
        """Groups that have news tell it when it is due; all are asked once a second."""
        all_due, seconds = self._clocks()[0], 0
        while True:
            now = self._clocks()[0]
            is_all = now >= all_due
            if is_all:
                all_due, seconds = now + SECOND_NS, seconds + 1
                groups = list(self._groups.values())
            else:
                groups = [self._tags[tag] for tag in self._due.at(now)]
            for group in groups:
                group.tick(self._clocks())
                if is_all and seconds % _FORGET_EVERY_S == 0:
                    group.forget(self._clocks())
                self._flush(group)
            await self._due.wait(all_due, self._clocks()[0])


def _refuse_decided_apart(
    subjects: Sequence[str], stored: Sequence[Contract | None], groups: Sequence[Group | None]
) -> None:
    """Raises BadInput for subjects that cannot be checked together, all or none."""
    if any(stored):
        raise BadInput("subjects", list(subjects), 'must be one where the mode is "store": it decides each apart')
    if any(group is not None and group.mode == "exact" for group in groups):
        raise BadInput("subjects", list(subjects), 'must be one where the mode is "exact": owners decide apart')


def _checked(verdicts: list[tuple[str, Verdict]]) -> Checked:
    return Checked(all(verdict.allowed for _, verdict in verdicts), verdicts)
