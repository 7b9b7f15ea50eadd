"""What the adaptor knows of all topics: takes in histories as the distributor tells them, says what to propose. Pure.

Nothing here must survive: a new adaptor is told the last ten seconds. A broker leaves bins out after it said that
nothing came, so silence after an idle bin counts as idle bins. Any other silence says nothing: after the word that
traffic is steady it is as it was, else a report was late or lost, and to take that for an end of the traffic would take
tokens from a broker that is only busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from adaptor.observed import BIN_S, Bin, Envelope, Member
from adaptor.policy import Policy
from srtm.adaptation import Adaptation, Mode
from srtm.control import HistoryAnswer, ProposedShare, ShareProposal, TopicHistories, TopicHistory
from srtm.errors import BadInput
from srtm.splitting import from_micro

ADAPTED: dict[str, Mode] = {"proportional": "proportional", "fitted": "fitted", "central": "central"}
BIN_NS = round(BIN_S * 1e9)
_KEPT = 100  # bins of a broker, for a policy that begins later
_SILENCE_S = 2.0  # brokers report about once a second


@dataclass
class _Broker:
    """What one broker said of one topic."""

    heard_s: float
    end_ns: int = 0  # wall clock there: up to which bins are known
    bins: deque[Bin] = field(default_factory=lambda: deque(maxlen=_KEPT))
    is_steady: bool = False  # as told last

    @property
    def is_idle(self) -> bool:
        """Nothing came in the last bin that was told, and nothing waited; what is not told is more of that."""
        return bool(self.bins) and self.bins[-1].demand == 0 and not self.is_steady


@dataclass
class _Topic:
    policy: Policy
    brokers: dict[str, _Broker] = field(default_factory=dict)


class Book:
    """``ignored``: reports that made no sense, since the start."""

    def __init__(self) -> None:
        self.ignored = 0
        self._topics: dict[str, _Topic] = {}

    def take(self, answer: HistoryAnswer, at_s: float) -> list[ShareProposal]:
        """Proposals for topics that ``answer``, come at ``at_s`` (any clock that does not go back), calls for."""
        found = []
        for told in answer.topics:
            mode = ADAPTED.get(told.mode)
            if mode is None or len(told.shares) < 2:
                self._topics.pop(told.topic, None)
                continue
            topic = self._topic(told, mode)
            for report in told.reports:
                self._note(topic, told, report.broker, report.history, at_s)
            self._note_silence(topic, told, at_s)
            proposal = self._propose(topic.policy, told, at_s)
            if proposal is not None:
                found.append(proposal)
        return found

    def _topic(self, told: TopicHistories, mode: Mode) -> _Topic:
        traits = told.traits
        settings = Adaptation(
            window_s=traits.window_s, interval_s=traits.interval_s, floor=traits.floor, dead_band=traits.dead_band
        )
        known = self._topics.get(told.topic)
        if known is None:
            known = self._topics[told.topic] = _Topic(Policy(mode, settings))
        elif (known.policy.mode, known.policy.settings) != (mode, settings):
            known.policy = Policy(mode, settings)
            for name, broker in known.brokers.items():
                known.policy.observe(name, list(broker.bins), _dispersion(told, name))
        return known

    def _note(self, topic: _Topic, told: TopicHistories, name: str, history: TopicHistory, at_s: float) -> None:
        bins = bins_of(history)
        if bins is None:
            self.ignored += 1
            return
        broker = topic.brokers.setdefault(name, _Broker(at_s, history.first_ns))
        broker.heard_s = at_s
        gap = (history.first_ns - broker.end_ns) // BIN_NS
        if gap > 0 and broker.is_idle:
            bins = [Bin(0)] * min(gap, _KEPT) + bins
        elif gap < 0:  # told before
            bins = bins[-gap:]
        broker.end_ns, broker.is_steady = max(broker.end_ns, history.end_ns), history.steady
        self._observe(topic, told, name, broker, bins)

    def _note_silence(self, topic: _Topic, told: TopicHistories, at_s: float) -> None:
        for name, broker in topic.brokers.items():
            silent = int((at_s - broker.heard_s) / BIN_S)
            if at_s - broker.heard_s > _SILENCE_S and broker.is_idle:
                broker.heard_s += silent * BIN_S
                broker.end_ns += silent * BIN_NS
                self._observe(topic, told, name, broker, [Bin(0)] * min(silent, _KEPT))

    def _observe(self, topic: _Topic, told: TopicHistories, name: str, broker: _Broker, bins: Sequence[Bin]) -> None:
        broker.bins.extend(bins)
        topic.policy.observe(name, bins, _dispersion(told, name))

    def _propose(self, policy: Policy, told: TopicHistories, at_s: float) -> ShareProposal | None:
        members = _members(told)
        envelope = Envelope(
            rate_micro=round(told.rate * 1e6), burst_micro=round(told.burst * 1e6), percentile=told.traits.percentile
        )
        try:
            shares = policy.propose(at_s, envelope, members)
        except BadInput:  # more brokers than tokens: the distributor sees to who gets one
            return None
        if shares is None:
            return None
        rates = ", ".join(f"{one.name} {policy.rate(one.name):,.0f}" for one in members)
        return ShareProposal(
            topic=told.topic,
            mode=told.mode,
            version=told.version,
            shares={
                member.name: ProposedShare(rate=from_micro(rate), burst=from_micro(burst))
                for member, (rate, burst) in zip(members, shares, strict=True)
            },
            reason=f"msg/s: {rates}",
        )


def bins_of(history: TopicHistory) -> list[Bin] | None:
    """None: it makes no sense (other bins than ours, columns of different lengths, less than nothing)."""
    columns = (history.arrivals, history.waiting, history.unfinished)
    if history.bin_ns != BIN_NS or len({len(column) for column in columns}) != 1:
        return None
    if any(not 0 <= value < float("inf") for column in columns for value in column):  # false for NaN too
        return None
    return [Bin(*row) for row in zip(*columns, strict=True)]


def _members(told: TopicHistories) -> list[Member]:
    members = []
    for name, share in sorted(told.shares.items()):
        known = told.traits.brokers.get(name)
        members.append(
            Member(
                name=name,
                share=(round(share.rate * 1e6), round(share.burst * 1e6)),
                capacity=known.capacity if known is not None and known.capacity else float("inf"),
                batch=known.batch if known is not None else 1,
                dispersion=_dispersion(told, name),
                declared=known.rate if known is not None else 0.0,
            )
        )
    return members


def _dispersion(told: TopicHistories, name: str) -> float:
    known = told.traits.brokers.get(name)
    return known.dispersion if known is not None else 1.0
