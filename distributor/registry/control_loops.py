"""What the control loops change: the adaptor's shares, the layouts of the layout loop, and shares for publishers
that the placement does not know."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from distributor.model.cluster import FittingRecord, Placement, Topic
from distributor.model.full_brokers import NO_CAPS, CapacityCaps
from distributor.model.share_log import ShareChange
from distributor.model.state_change import StateChange
from distributor.placement import proposals
from distributor.placement.planner import TopicPlan
from distributor.placement.reasons import reasons_after_fitting_step, reasons_after_move, share_lines
from distributor.placement.share_targets import (
    has_token_for,
    kept_extra_brokers,
    misplaced_without,
    with_declared_split,
)
from distributor.registry.room import Room
from distributor.registry.state import ClusterState
from distributor.registry.topic_change import TopicChange, apply_topic_change
from srtm.control import ProposalResult, ProposalResults, ShareProposal
from srtm.errors import Conflict, SrtmError
from srtm.text import figure, plural


class ControlLoops:
    """Changes shares and layouts of topics that operators have submitted."""

    def __init__(self, state: ClusterState, room: Room) -> None:
        self._state = state
        self._room = room

    # The adaptor

    async def adapt(self, given: Sequence[ShareProposal]) -> ProposalResults:
        """Set the targets that the adaptor proposes. What is stale or makes no sense is refused, the rest taken."""
        state = self._state
        async with state.writing:
            live = state.live()
            results: list[ProposalResult] = []
            changed: dict[str, Topic] = {}
            taken: dict[str, ShareProposal] = {}
            for proposal in given:
                try:
                    topic = changed.get(proposal.topic) or self._state.topic(proposal.topic)
                    changed[topic.name] = self._proposed(topic, proposal, live)
                except SrtmError as error:
                    results.append(ProposalResult(topic=proposal.topic, taken=False, problem=str(error)))
                    continue
                results.append(ProposalResult(topic=proposal.topic, taken=True))
                taken[topic.name] = proposal
            if changed:
                await state.commit(StateChange(topics=list(changed.values())))
                for name, proposal in taken.items():
                    shares, wall_ns = changed[name].leases.target, state.wall_ns()
                    change = ShareChange(wall_ns=wall_ns, mode=proposal.mode, reason=proposal.reason, shares=shares)
                    state.share_log.note_proposal(name, change)
        return ProposalResults(results=results)

    def _proposed(self, topic: Topic, proposal: ShareProposal, live: Collection[str]) -> Topic:
        """Raises Conflict, BadInput."""
        target = proposals.checked_target(topic, proposal, self._room.max_rate)
        leases = topic.leases.with_target(topic.leases.envelope, target)
        return replace(topic, leases=leases.advanced(live, self._state.version + 1))

    # The layout loop

    async def arrange(
        self, name: str, assignment_version: int, placement: Placement, reason: str, caps: CapacityCaps = NO_CAPS
    ) -> Topic:
        """Place a topic that is being fitted. ``caps``: what the fitting measured; they outlast its own moves.

        Raises NotFound; Conflict if the topic was placed anew meanwhile, or if a broker takes no publishers, or has no
        room, any more.
        """
        async with self._state.placing:
            topic = self._state.topic(name)
            self._check_arrangement(topic, assignment_version, placement)
            limits = self._room.limits(topic.spec, placement, self._state.caps.merged(caps))
            lines = reasons_after_fitting_step(topic.reasons, placement, topic.placement, limits)
            plan = TopicPlan(topic.burst, placement, lines)
            change = TopicChange(spec=topic.spec, plan=plan, reason=reason, by_fitting=True, caps=caps)
            return await apply_topic_change(self._state, self._room, change)

    def _check_arrangement(self, topic: Topic, assignment_version: int, placement: Placement) -> None:
        if topic.assignment_version != assignment_version:
            raise Conflict("assignment_version", assignment_version, f"is {topic.assignment_version} by now")
        # A broker that is evicted now would keep the publishers that came after.
        refusing = {*placement.brokers} - {*topic.placement.brokers} - self._state.takes_more()
        if refusing:
            raise Conflict("broker", ", ".join(sorted(refusing)), "takes no publishers now")
        overfull = self._room.overfull(topic, placement, ignore_caps=True)
        if overfull:
            raise Conflict("broker", ", ".join(overfull), "has no room for so many of its publishers now")

    async def note_fitting(self, record: FittingRecord, *, decision: str = "", caps: CapacityCaps = NO_CAPS) -> None:
        """Store how a fitting goes, and the ``caps`` that it measured. A topic that was removed has no fitting."""
        async with self._state.writing:
            topic = self._state.managed_topic(record.topic)
            if topic is None:
                return
            topics = [topic] if decision else []
            await self._state.commit(StateChange(topics=topics, decision=decision, caps=caps, fitting=record))

    async def leave_pinned(self, name: str) -> None:
        """Place publishers of topic ``name`` that do not move when told where they are, whatever room there is.

        Their traffic stays where it is, so shares that were adapted to it stay too.
        """
        async with self._state.placing, self._state.writing:
            topic = self._state.managed_topic(name)
            to = self._state.pins.elsewhere(topic) if topic is not None else {}
            if topic is None or not to:
                return
            placement = topic.placement.moved(to)
            if len({*placement.brokers, *topic.extra_brokers}) > topic.burst:  # a share needs one token
                return
            stay = f"they stay at {', '.join(sorted(set(to.values())))}"
            lines = reasons_after_move(topic.reasons, placement, topic.placement)
            misplaced, version = misplaced_without(topic, to), self._state.version + 1
            extra = kept_extra_brokers(topic, placement, topic.leases.envelope, "", misplaced)
            why = "\n".join([f"{len(to):,} {plural(len(to), 'publisher')} did not move when told: {stay}", *lines])
            at_home = replace(topic, placement=placement, reasons=tuple(lines), assignment_version=version)
            await self._split_again(replace(at_home, misplaced=misplaced), why, extra_brokers=extra, keep_adapted=True)

    async def note(self, name: str, text: str) -> None:
        """Add an entry to the decision log of topic ``name``, if it exists."""
        async with self._state.writing:
            topic = self._state.managed_topic(name)
            if topic is not None:
                await self._state.commit(StateChange(topics=[topic], decision=text))

    # Publishers that the placement does not know

    async def add_small_share(self, name: str, broker: str) -> None:
        """Give ``broker``, where messages of topic ``name`` come and which has no share, a small one.

        Changes nothing if there is no token for it.
        """
        async with self._state.writing:
            topic = self._state.topics[name]
            if topic.removed or broker in topic.leases.target or not has_token_for(topic, broker):
                return
            why = f"{broker}: messages come there although no publisher is assigned; it gets a small share"
            await self._split_again(topic, why, extra_brokers=[*topic.extra_brokers, broker])

    async def take_back_share(self, name: str, broker: str) -> None:
        """``broker`` drains and has no more use for its tokens of topic ``name``.

        The others get them once it has acknowledged that.
        """
        async with self._state.writing:
            topic = self._state.topics[name]
            if topic.removed or broker in topic.placement.brokers or broker not in topic.leases.target:
                return
            why = f"{broker} is drained of this topic: its share goes to the others"
            others = [extra for extra in topic.extra_brokers if extra != broker]
            await self._split_again(topic, why, extra_brokers=others)

    async def set_misplaced(self, name: str, broker: str, homes: Mapping[str, float]) -> None:
        """So much load of misplaced publishers of topic ``name`` arrives at ``broker``: shares follow it.

        ``homes``: {broker that they belong to: msg/s}; empty: they have gone.
        """
        async with self._state.writing:
            topic = self._state.topics[name]
            misplaced = {**topic.misplaced, broker: homes} if homes else {**topic.misplaced}
            if not homes:
                misplaced.pop(broker, None)
            is_known = misplaced == topic.misplaced
            if topic.removed or is_known or (homes and not has_token_for(topic, broker)):
                return
            why = f"{broker}: {figure(sum(homes.values()), 6)} msg/s of publishers that belong elsewhere count there"
            why = why if homes else f"{broker}: those who moved away have gone"
            extra = [one for one in topic.extra_brokers if one not in misplaced]
            await self._split_again(replace(topic, misplaced=misplaced), why, extra_brokers=extra, keep_adapted=True)

    async def _split_again(
        self, topic: Topic, why: str, *, extra_brokers: Sequence[str], keep_adapted: bool = False
    ) -> None:
        """Set the declared split of ``topic`` as its target. Under ``writing``.

        ``keep_adapted``: shares that were adapted stay, if the same brokers have one.
        """
        limits = self._room.limits_now(topic)
        target = with_declared_split(topic, self._state.dead_brokers(), limits, extra_brokers).leases.target
        target = proposals.keep_adapted(topic, target) if keep_adapted else dict(target)
        leases = proposals.pooled_if_due(topic.spec, topic.leases.with_target(topic.leases.envelope, target))
        leases = leases.advanced(self._state.live(), self._state.version + 1)
        decision = "\n".join([why, *share_lines(target)])
        await self._state.commit(StateChange(topics=[replace(topic, leases=leases)], decision=decision))
