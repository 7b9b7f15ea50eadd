"""What the adaptor knows of all topics: takes in histories as the distributor tells them, says what to propose. Pure.

Nothing here must survive: a new adaptor is told the last ten seconds. Silence says nothing: after the word that traffic
is steady it is as it was, else a report was late or lost, and to take that for an end of the traffic would take tokens
from a broker that is only busy. That nothing comes a broker tells.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adaptor.observations import BIN_S, Bin, Change, Envelope, Member
from adaptor.policy import Policy
from srtm.control import HistoryAnswer, ProposedShare, RateChange, ShareProposal, TopicHistories, TopicHistory
from srtm.errors import BadInput
from srtm.topics.adaptation import ADAPTED, Adaptation, Mode
from srtm.units import from_micro

BIN_NS = round(BIN_S * 1e9)
_KEPT = 100  # bins of a broker, for a policy that begins later
_OLD_BINS = 100  # a gap as long, of which nothing is known: what was before says nothing
_SET_BACK_NS = 2_000_000_000  # reports that end so much before those that came first are of a clock that was set back


@dataclass
class _Broker:
    """What one broker said of one topic."""

    end_ns: int  # wall clock there: up to which bins are known
    bins: deque[Bin] = field(default_factory=lambda: deque(maxlen=_KEPT))
    is_steady: bool = False  # as told last


@dataclass
class _Topic:
    policy: Policy
    histories: TopicHistories  # last
    brokers: dict[str, _Broker] = field(default_factory=dict)


class TopicStates:
    """``ignored``: {broker: reports of it that made no sense}, since the start."""

    def __init__(self) -> None:
        self.ignored: Counter[str] = Counter()
        self._topics: dict[str, _Topic] = {}
        self._due_s: dict[str, float] = {}  # {topic: when proposals may be due without news}

    def take(self, answer: HistoryAnswer, at_s: float) -> list[ShareProposal]:
        """Proposals for topics that ``answer``, come at ``at_s`` (any clock that does not go back), calls for."""
        for name in answer.gone:
            self._forget(name)
        for histories in answer.topics:
            mode = next((adapted for adapted in ADAPTED if adapted == histories.mode), None)
            if mode is None:
                self._forget(histories.topic)
                continue
            topic = self._topic(histories, mode)
            _forget_departed(topic)
            _note_clocks(topic, histories)
            for report in histories.reports:
                self._note(topic, histories, report.broker, report.history)
        concerned = {histories.topic for histories in answer.topics} | self._due(at_s)
        proposals = []
        for name in sorted(concerned & self._topics.keys()):
            topic = self._topics[name]
            if len(topic.histories.shares) < 2:
                continue
            proposals.append(self._propose(topic.policy, topic.histories, at_s))
            self._note_due(name, topic.policy)
        return [proposal for proposal in proposals if proposal is not None]

    def disconnected(self) -> None:
        """Nothing could be heard until now: silence was not the brokers'."""
        for topic in self._topics.values():
            topic.policy.disconnected()

    def note_answers(self, taken: Mapping[str, bool], at_s: float) -> None:
        """{topic: whether what was proposed for it last is in force}."""
        for name, is_taken in taken.items():
            if (topic := self._topics.get(name)) is not None:
                topic.policy.note_answer(at_s, taken=is_taken)
                self._note_due(name, topic.policy)

    @property
    def due_s(self) -> float:
        """When proposals may be due without news; inf: never."""
        return min(self._due_s.values(), default=math.inf)

    def _due(self, at_s: float) -> set[str]:
        return {name for name, due_s in self._due_s.items() if due_s <= at_s}

    def _note_due(self, name: str, policy: Policy) -> None:
        if policy.due_s is None:
            self._due_s.pop(name, None)
        else:
            self._due_s[name] = policy.due_s

    def _forget(self, name: str) -> None:
        """All that is known of that topic."""
        self._topics.pop(name, None)
        self._due_s.pop(name, None)

    def _topic(self, histories: TopicHistories, mode: Mode) -> _Topic:
        traits = histories.traits
        settings = Adaptation(
            window_s=traits.window_s, interval_s=traits.interval_s, floor=traits.floor, dead_band=traits.dead_band
        )
        known = self._topics.get(histories.topic)
        if known is None:
            known = self._topics[histories.topic] = _Topic(Policy(mode, settings), histories)
        elif (known.policy.mode, known.policy.settings) != (mode, settings):
            known.policy = Policy(mode, settings)
            for name, broker in known.brokers.items():
                known.policy.observe(name, list(broker.bins), _dispersion(histories, name))
        known.histories = histories
        return known

    def _note(self, topic: _Topic, histories: TopicHistories, name: str, history: TopicHistory) -> None:
        bins = bins_of(history)
        if bins is None:
            self.ignored[name] += 1
            return
        broker = topic.brokers.setdefault(name, _Broker(history.first_ns))
        gap = (history.first_ns - broker.end_ns) // BIN_NS
        if gap > _OLD_BINS and not broker.is_steady:
            broker.bins.clear()
            topic.policy.forget(name)
        elif gap < 0:  # told before
            bins = bins[-gap:]
        broker.end_ns, broker.is_steady = max(broker.end_ns, history.end_ns), history.steady
        _observe(topic, histories, name, broker, bins)
        if history.change is not None:
            topic.policy.note_change(name, change_of(history.change, broker.end_ns))

    def _propose(self, policy: Policy, histories: TopicHistories, at_s: float) -> ShareProposal | None:
        members = _members(histories)
        envelope = Envelope(
            rate_micro=round(histories.rate * 1e6),
            burst_micro=round(histories.burst * 1e6),
            percentile=histories.traits.percentile,
        )
        try:
            shares = policy.propose(at_s, envelope, members)
        except BadInput:  # more brokers than tokens: the distributor sees to who gets one
            return None
        if shares is None:
            return None
        rates = ", ".join(f"{member.name} {policy.rate(member.name):,.0f}" for member in members)
        return ShareProposal(
            topic=histories.topic,
            mode=histories.mode,
            version=histories.version,
            shares={
                member.name: ProposedShare(rate=from_micro(rate), burst=from_micro(burst))
                for member, (rate, burst) in zip(members, shares, strict=True)
            },
            reason=f"msg/s: {rates}",
        )


def _observe(topic: _Topic, histories: TopicHistories, name: str, broker: _Broker, bins: Sequence[Bin]) -> None:
    broker.bins.extend(bins)
    topic.policy.observe(name, bins, _dispersion(histories, name))


def bins_of(history: TopicHistory) -> list[Bin] | None:
    """None: it makes no sense here (other bins than ours, columns of different lengths). That counts can be what they
    say ``distributor.sync.history_store`` has seen to."""
    columns = (history.arrivals, history.waiting, history.unfinished)
    if history.bin_ns != BIN_NS or len({len(column) for column in columns}) != 1:
        return None
    return list(map(Bin._make, zip(*columns, strict=True)))


def change_of(change: RateChange, known_until_ns: int) -> Change:
    """``known_until_ns``: end of the last bin that was told."""
    known = (known_until_ns - change.since_ns) // BIN_NS
    mixed = min(max(0, -known), _KEPT)
    return Change(change.arrivals, change.span_ns / 1e9, change.waiting, mixed, min(max(0, known), _KEPT))


def _forget_departed(topic: _Topic) -> None:
    for name in topic.brokers.keys() - topic.histories.shares.keys():
        del topic.brokers[name]
        topic.policy.forget(name)


def _note_clocks(topic: _Topic, histories: TopicHistories) -> None:
    """A broker's clock that was set back: its bins follow on those before all the same."""
    for name, broker in topic.brokers.items():
        reports = [report.history for report in histories.reports if report.broker == name and report.history.arrivals]
        if reports and max(report.end_ns for report in reports) < broker.end_ns - _SET_BACK_NS:
            broker.end_ns = reports[0].first_ns


def _members(histories: TopicHistories) -> list[Member]:
    members = []
    for name, share in sorted(histories.shares.items()):
        known = histories.traits.brokers.get(name)
        members.append(
            Member(
                name=name,
                share=(round(share.rate * 1e6), round(share.burst * 1e6)),
                capacity=known.capacity if known is not None and known.capacity else float("inf"),
                batch=known.batch if known is not None else 1,
                dispersion=_dispersion(histories, name),
                declared=known.rate if known is not None else 0.0,
            )
        )
    return members


def _dispersion(histories: TopicHistories, name: str) -> float:
    known = histories.traits.brokers.get(name)
    return known.dispersion if known is not None else 1.0
