"""Which layout to try next, computed from what was recorded (design section 5, "beyond the paper"). Pure.

Arrivals do not depend on where publishers are, so one round tells of every layout: the access delay of each broker's
subset under its share, and its processing delay (``whatif``). Candidates are the plans for one broker, two, and so on,
under every split; the first that keeps the target is taken. The two delays take opposite sides, and this is how they
are told apart: where processing breaks the promise the first that fits has more brokers, where access does it has
fewer, or the other split. Nobody is shed to nowhere: every candidate places everybody, by max-min over all its brokers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distributor.allocation import BrokerCapacity, Demand, plan
from distributor.fitting_events import Layout, Missing, Task
from distributor.whatif import Latency, Trace, enough_burst_micro, predicted
from srtm.dispersion import traffic_of
from srtm.fitted_split import Shares, fitted_bucket
from srtm.publishers import Ints, Publishers
from srtm.splitting import MICRO, split_bucket

# (demand, placement, number of brokers) -> (r_l, b_l) of each, micro; sums exact
Split = Callable[[Demand, Ints, int], Shares]

_LONGEST_SETTLE_S = 10.0  # a bucket with no slack never fills
# Of the target: what is predicted closer to it could hardly be told from it by a measurement.
_CLEAR = 0.96


def proportional(demand: Demand, placement: Ints, brokers: int) -> Shares:
    """r_l and b_l in proportion to the rate assigned (section 5)."""
    there = placement >= 0
    assigned = np.bincount(placement[there], weights=demand.rates[there], minlength=brokers)
    return split_bucket(round(demand.rate * MICRO), round(demand.burst * MICRO), assigned.tolist())


def fitted(publishers: Publishers, percentile: float) -> Split:
    """For the same access delay at ``percentile`` on every broker (``srtm.fitted_split``)."""

    def split(demand: Demand, placement: Ints, brokers: int) -> Shares:
        traffic = traffic_of(publishers, placement, brokers)
        return fitted_bucket(round(demand.rate * MICRO), round(demand.burst * MICRO), traffic, percentile)

    return split


@dataclass(frozen=True, kw_only=True)
class Refuted:
    """A layout that was measured and found above the target."""

    layout: Layout
    latency: Mapping[str, Latency]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    layout: Layout
    latency: Mapping[str, Latency]  # predicted; of a refuted layout: measured

    @property
    def worst_ns(self) -> int:
        """A topic is judged per broker, and the worst decides."""
        return max((one.total_ns for one in self.latency.values()), default=0)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """``found``: the smallest layout that should keep the target. None: there is none, ``best`` comes closest, and
    ``missing`` is what it would take."""

    found: Candidate | None
    best: Candidate | None
    missing: Missing | None = None


def layout_for(task: Task, brokers: Sequence[BrokerCapacity], split: Split, quota: float = math.inf) -> Layout | None:
    """As few brokers as can be with at most about ``quota`` msg/s of the topic on each; None where the publishers do
    not fit."""
    demand = task.demand
    room = quota + float(demand.rates.max(initial=0.0))  # publishers are indivisible
    offered = [_with_room(broker, min(room, task.full.get(broker.name, math.inf))) for broker in brokers]
    made = plan(demand, offered, task.strategy)
    if made.missing or not made.brokers or len(made.brokers) * MICRO > round(demand.burst * MICRO):
        return None
    return Layout(
        brokers=made.brokers,
        placement=made.placement,
        shares_micro=tuple(split(demand, made.placement, len(made.brokers))),
    )


def settle_ns(demand: Demand, old: Layout, new: Layout) -> int:
    """Until the buckets of ``new`` have earned what they hold more than those of ``old``: a share that grows gets no
    tokens with it (design section 3), and until they are there messages wait that later would not. A topic's first
    buckets start full."""
    if not old.brokers:
        return 0
    held = dict(zip(old.brokers, (burst for _, burst in old.shares_micro), strict=True))
    longest_s = 0.0
    for at, (name, (rate_micro, burst_micro)) in enumerate(zip(new.brokers, new.shares_micro, strict=True)):
        slack = rate_micro / MICRO - float(demand.rates[new.placement == at].sum())
        more = max(0, burst_micro - held.get(name, 0)) / MICRO
        longest_s = max(longest_s, more / slack if slack > 0 else math.inf)
    return round(min(longest_s, _LONGEST_SETTLE_S) * 1e9)


def missing_by_rate(task: Task, brokers: Sequence[BrokerCapacity]) -> Missing:
    """Where the publishers do not even fit by their rates."""
    short = float(task.demand.rates.sum()) - sum(min(one.rcap, task.full.get(one.name, math.inf)) for one in brokers)
    typical = max((one.mcap for one in brokers), default=0.0)
    return Missing(brokers=max(1, math.ceil(short / typical)) if typical else 1)


def _with_room(broker: BrokerCapacity, most: float) -> BrokerCapacity:
    if broker.rcap <= most:
        return broker
    return replace(broker, mcap=broker.allocated + most) if most > 0 else replace(broker, mcap=1.0, allocated=1.0)


def search(
    task: Task,
    brokers: Sequence[BrokerCapacity],
    traces: Sequence[Trace],
    refuted: Sequence[Refuted],
    splits: Sequence[Split] = (proportional,),
) -> Outcome:
    """``traces``: of the rounds so far, all publishers in each. ``splits``: the preferred one first."""
    model = _Model(task, traces, refuted)
    tried = [model.judged(layout) for layout in _layouts(task, brokers, splits, range(1, len(brokers) + 1))]
    open_to_try = [one for one in tried if not model.is_refuted(one.layout)]
    found = next((one for one in open_to_try if model.keeps(one, _CLEAR)), None)
    if found is not None:
        return Outcome(found=found, best=found)
    close = next((one for one in open_to_try if model.keeps(one, 1.0)), None)
    best = close or min(tried, key=lambda one: one.worst_ns, default=None)
    if best is None:
        return Outcome(found=None, best=None, missing=missing_by_rate(task, brokers))
    return Outcome(found=close, best=best, missing=None if close else _missing(task, brokers, splits, model))


def _layouts(
    task: Task, brokers: Sequence[BrokerCapacity], splits: Sequence[Split], ks: Iterable[int]
) -> Iterator[Layout]:
    """Distinct ones, the smallest first."""
    load = float(task.demand.rates.sum())
    seen: set[tuple[object, ...]] = set()
    for k in ks:
        for split in splits:
            layout = layout_for(task, brokers, split, load / k)
            if layout is not None and _key(layout) not in seen:
                seen.add(_key(layout))
                yield layout


def _key(layout: Layout) -> tuple[object, ...]:
    return layout.brokers, layout.shares_micro, np.bincount(layout.placement + 1).tobytes()


def _missing(task: Task, brokers: Sequence[BrokerCapacity], splits: Sequence[Split], model: _Model) -> Missing:
    """More brokers, if the model says that they would do; else a larger burst."""
    more = [BrokerCapacity(name=f"\x7f{at}", mcap=0.0) for at in range(math.floor(task.demand.burst) - len(brokers))]
    known = [replace(broker, name=f" {broker.name}") for broker in brokers]  # no name of the added ones can be theirs
    for k in range(len(brokers) + 1, min(4 * len(brokers) + 8, len(brokers) + len(more)) + 1):
        for layout in _layouts(task, [*known, *more[: k - len(brokers)]], splits, [k]):
            judged = model.judged(layout)
            if model.keeps(judged, _CLEAR):
                return Missing(brokers=k - len(brokers))
            if min(one.access_ns for one in judged.latency.values()) > task.target_ns:
                break
    return Missing(burst=model.enough_burst())


class _Model:
    """Predictions for one topic, corrected by what was measured against them."""

    def __init__(self, task: Task, traces: Sequence[Trace], refuted: Sequence[Refuted]) -> None:
        self._task = task
        self._traces = [trace for trace in traces if len(trace)]
        self._refuted = {_key(one.layout): one for one in refuted}
        self._too_fast = max([1.0, *(self._optimism(one) for one in refuted)])

    def _optimism(self, refuted: Refuted) -> float:
        """How many times longer processing took than predicted."""
        expected = self._predicted(refuted.layout)
        return max(
            (
                one.processing_ns / expected[name].processing_ns
                for name, one in refuted.latency.items()
                if name in expected and expected[name].processing_ns > 0
            ),
            default=1.0,
        )

    def _predicted(self, layout: Layout) -> dict[str, Latency]:
        found = predicted(self._traces, layout.placement, layout.shares_micro, self._task.percentile)
        return dict(zip(layout.brokers, found, strict=True))

    def is_refuted(self, layout: Layout) -> bool:
        return _key(layout) in self._refuted

    def judged(self, layout: Layout) -> Candidate:
        measured = self._refuted.get(_key(layout))
        if measured is not None:
            return Candidate(layout=layout, latency=measured.latency)
        corrected = {
            name: replace(one, total_ns=one.total_ns + round((self._too_fast - 1) * one.processing_ns))
            for name, one in self._predicted(layout).items()
        }
        return Candidate(layout=layout, latency=corrected)

    def keeps(self, candidate: Candidate, part: float) -> bool:
        return candidate.worst_ns <= part * self._task.target_ns

    def enough_burst(self) -> float:
        """b, messages; 0 if the topic's own is enough for one bucket."""
        rate_micro = round(self._task.demand.rate * MICRO)
        enough = enough_burst_micro(self._traces, rate_micro, self._task.percentile, self._task.target_ns) / MICRO
        return enough if enough > self._task.demand.burst else 0.0
