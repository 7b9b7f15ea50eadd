"""Which layout to try next, computed from what was recorded. Pure.

Arrivals do not depend on where publishers are, so one round tells of every layout: the access delay of each broker's
subset under its share, and its processing delay (``prediction.replay``). Candidates are the plans for one broker, two,
and so on; the first that keeps the target is taken. The two delays take opposite sides, and this is how they are told
apart: where processing breaks the promise the first that fits has more brokers, where access does it has fewer. Nobody
is shed to nowhere: every candidate places everybody, by max-min over all its brokers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distributor.fitting.events import Layout, Missing, Split, Task
from distributor.fitting.layout_model import CLEAR, Candidate, Model, Recording, Refuted, key
from distributor.fitting.moves import with_pinned
from distributor.placement.allocation import BrokerCapacity, Demand, plan
from srtm.token_bucket.dispersion import traffic_of
from srtm.token_bucket.exact_split import split_bucket
from srtm.token_bucket.fitted_split import Shares, fitted_bucket
from srtm.topics.publishers import Ints, Publishers
from srtm.units import MICRO

_LEAST_NS = 1_000_000_000
_LEAST_PERIODIC_NS = 10_000_000_000  # the longest period that is measured whole: groups meet again after one
_LONGEST_SETTLE_S = 10.0  # a bucket with no slack never fills


def proportional(demand: Demand, placement: Ints, brokers: int) -> Shares:
    """r_l and b_l in proportion to the rate assigned (section 5)."""
    there = placement >= 0
    assigned = np.bincount(placement[there], weights=demand.rates[there], minlength=brokers)
    return split_bucket(round(demand.rate * MICRO), round(demand.burst * MICRO), assigned.tolist())


def fitted(publishers: Publishers, percentile: float) -> Split:
    """For the same access delay at ``percentile`` on every broker (``srtm.token_bucket.fitted_split``)."""

    def split(demand: Demand, placement: Ints, brokers: int) -> Shares:
        traffic = traffic_of(publishers, placement, brokers)
        return fitted_bucket(round(demand.rate * MICRO), round(demand.burst * MICRO), traffic, percentile)

    return split


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """``found``: the layout to try next, the smallest that should keep the target. None: there is none, and ``missing``
    is what it would take."""

    found: Candidate | None
    missing: Missing | None = None


def layout_for(task: Task, brokers: Sequence[BrokerCapacity], split: Split, quota: float = math.inf) -> Layout | None:
    """As few brokers as can be with at most about ``quota`` msg/s of the topic on each; None where the publishers do
    not fit."""
    demand = task.demand
    room = quota + float(demand.rates.max(initial=0.0))  # publishers are indivisible
    offered = [broker.at_most(min(room, task.full.get(broker.name, math.inf))) for broker in brokers]
    made = plan(demand, offered, task.strategy)
    if made.missing or not made.brokers or len(made.brokers) * MICRO > round(demand.burst * MICRO):
        return None
    layout = Layout(
        brokers=made.brokers,
        placement=made.placement,
        shares_micro=tuple(split(demand, made.placement, len(made.brokers))),
    )
    return with_pinned(layout, task, split)


def settle_ns(demand: Demand, old: Layout, new: Layout) -> int:
    """Until the buckets of ``new`` have earned what they hold more than those of ``old``: a share that grows gets no
    tokens with it, and until they are there messages wait that later would not. A topic's first
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


def least_measuring_ns(demand: Demand) -> int:
    """Long enough for whoever fires at a fixed interval to meet all the others once."""
    if demand.batches is None or demand.periodic is None or not demand.periodic.any():
        return _LEAST_NS
    longest_s = float((demand.batches / demand.rates)[demand.periodic].max())
    return min(max(_LEAST_NS, math.ceil(longest_s * 1e9)), _LEAST_PERIODIC_NS)


def missing_by_rate(task: Task, brokers: Sequence[BrokerCapacity], used: int = 0) -> Missing:
    """Where the publishers do not even fit by their rates. ``used``: brokers that have a share besides."""
    room = [min(one.rcap, task.full.get(one.name, math.inf)) for one in brokers]
    typical = max((one.mcap for one in brokers), default=0.0)
    largest = float(task.demand.rates.max(initial=0.0))
    if typical and largest > typical:
        return Missing(mcap=largest)
    short = float(task.demand.rates.sum()) - sum(room)
    more = max(1, math.ceil(short / typical)) if typical else 1
    shares = used + sum(one > 0 for one in room) + more
    return Missing(burst=float(shares)) if shares > task.demand.burst else Missing(brokers=more)


def search(
    task: Task,
    brokers: Sequence[BrokerCapacity],
    recordings: Sequence[Recording],
    refuted: Sequence[Refuted],
    split: Split = proportional,
) -> SearchResult:
    """``recordings``: the rounds so far."""
    model = Model(task, recordings, refuted)
    tried: dict[object, Candidate] = {}

    def first_clear(ks: Iterable[int]) -> Candidate | None:
        for layout in _layouts(task, brokers, split, ks, model):
            if key(layout) not in tried:
                candidate = tried[key(layout)] = model.judged(layout)
                if model.keeps(candidate, CLEAR) and not model.is_refuted(layout):
                    return candidate
        return None

    before = 0
    for k in _sizes(len(brokers)):
        found = first_clear([k])
        if found is not None:
            found = first_clear(range(before + 1, k)) or found
            return SearchResult(found=found)
        before = k
    if not tried:
        return SearchResult(found=None, missing=missing_by_rate(task, brokers))
    close = next((one for one in tried.values() if model.keeps(one) and not model.is_refuted(one.layout)), None)
    if close is not None:
        return SearchResult(found=close)
    best = min(tried.values(), key=lambda one: one.worst_ns)
    if not (model.is_refuted(best.layout) or model.knows(best.layout.brokers) or _waits(best, task.target_ns)):
        return SearchResult(found=best)  # they may be faster than those that were measured
    return SearchResult(found=None, missing=_missing(task, brokers, split, model))


def _layouts(
    task: Task, brokers: Sequence[BrokerCapacity], split: Split, ks: Iterable[int], model: Model
) -> Iterator[Layout]:
    """The smallest first: on k brokers in equal parts, and on the k best with as much on each as it can keep."""
    load = float(task.demand.rates.sum())
    for k in ks:
        even = layout_for(task, brokers, split, load / k)
        if even is not None:
            yield even
        kept = {broker.name: model.keepable(broker.name) for broker in brokers}
        fastest = sorted(brokers, key=lambda broker: -min(broker.rcap, kept[broker.name]))
        limited = replace(task, full={name: min(rate, task.full.get(name, rate)) for name, rate in kept.items()})
        layout = layout_for(limited, fastest[:k], split)
        if layout is not None:
            yield layout


def _sizes(most: int) -> Iterator[int]:
    """Every k at first, then in steps of an eighth: where one is found, those passed over are looked at."""
    k = 1
    while k < most:
        yield k
        k += max(1, k // 8)
    if most:
        yield most


def _missing(task: Task, brokers: Sequence[BrokerCapacity], split: Split, model: Model) -> Missing:
    """More brokers, if the model says that they would do; else a larger burst."""
    most = min(4 * len(brokers) + 8, math.floor(task.demand.burst))
    more = [BrokerCapacity(name=f"\x7f{at}", mcap=0.0) for at in range(most - len(brokers))]  # names of no broker
    for k in range(len(brokers) + 1, most + 1):
        judged = [
            model.judged(layout) for layout in _layouts(task, [*brokers, *more[: k - len(brokers)]], split, [k], model)
        ]
        if any(model.keeps(one, CLEAR) for one in judged):
            return Missing(brokers=k - len(brokers))
        if judged and all(_is_lost_in_access(one, task.target_ns) for one in judged):
            break
    return Missing(burst=model.enough_burst())


def _waits(candidate: Candidate, target_ns: int) -> bool:
    """On some broker for tokens, which no faster server shortens."""
    return max(one.access_ns for one in candidate.latency.values()) > target_ns


def _is_lost_in_access(candidate: Candidate, target_ns: int) -> bool:
    """Everywhere: more brokers only make that worse."""
    return min(one.access_ns for one in candidate.latency.values()) > target_ns
