"""Which publisher goes to which broker: ``plan`` for a topic, ``place_more`` once publishers come, go or change. Pure.

Concentration, max-min, correlation (design section 5; sections 4.2 and 4.3 of the main paper), and the baselines that
the paper compares with. Rates are msg/s. A topic's load is the sum of its publishers' rates (the paper's *rate*), not
its token rate r, which is at least that.

``mcap`` 0 means "not stated": no limit is known, so none is kept, and such a broker takes any topic whole. k, the
number of brokers, is at most floor(burst), because a share needs one token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from distributor.model.columns import ALONE, NOWHERE, ROUNDING, Bools, Floats, Ints
from distributor.placement.quotas import fill, pack, whole_publishers
from distributor.placement.rebalance import even_out

_MANY = 100  # times the largest rate above its quota: a broker gives that up at once
_LEFT = 10_000  # publishers without a broker that are looked at one by one; more are dealt out together


@dataclass(frozen=True, kw_only=True)
class BrokerCapacity:
    """A broker as allocation sees it."""

    name: str
    mcap: float  # largest rate that meets the SLO, msg/s; 0: not stated, no limit
    allocated: float = 0.0  # of other topics

    @property
    def rcap(self) -> float:
        """Residual capacity (section 4.2)."""
        return max(0.0, self.mcap - self.allocated) if self.mcap else math.inf

    def at_most(self, most: float) -> BrokerCapacity:
        """With room for ``most`` msg/s, if it had more."""
        if self.rcap <= most:
            return self
        return replace(self, mcap=self.allocated + most) if most > 0 else replace(self, mcap=1.0, allocated=1.0)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What is to be placed: columns, one entry a publisher, and the topic's envelope."""

    rates: Floats  # > 0
    groups: Ints  # correlation group, ALONE for none
    rate: float  # r
    burst: float  # b
    batches: Ints | None = None  # messages that each sends at once; None: all alike
    periodic: Bools | None = None  # else Poisson; None: all alike

    def of(self, chosen: Ints) -> Demand:
        """These publishers alone, under the same envelope."""
        return replace(
            self,
            rates=self.rates[chosen],
            groups=self.groups[chosen],
            batches=None if self.batches is None else self.batches[chosen],
            periodic=None if self.periodic is None else self.periodic[chosen],
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The outcome. ``placement[i]`` is an index into ``brokers`` or NOWHERE; every broker named has at least one
    publisher."""

    brokers: tuple[str, ...]
    placement: Ints
    quotas: Floats  # msg/s, one a broker
    assigned: Floats  # msg/s, one a broker
    missing: float  # msg/s of publishers for which no broker had room
    reasons: tuple[str, ...]

    @property
    def state(self) -> str:
        if not len(self.brokers) and len(self.placement):
            return "waiting"
        return "partial" if self.missing > 0 else "placed"


class Allocation(Protocol):
    """``seed``: of the random order in which publishers are taken; ``srtm`` rotates remainders by it."""

    def __call__(self, demand: Demand, brokers: Sequence[BrokerCapacity], *, seed: int = 1) -> Plan: ...


def _allocate(
    demand: Demand,
    brokers: Sequence[BrokerCapacity],
    *,
    concentrate: bool,
    level_total: bool = False,
    correlated: bool = False,
    seed: int = 1,
) -> Plan:
    ranked = sorted(brokers, key=lambda broker: (-broker.rcap, broker.allocated, broker.name))
    ranked = [broker for broker in ranked if broker.rcap > 0][: math.floor(demand.burst)]
    room = np.array([broker.rcap for broker in ranked])
    least = (
        concentration(whole_publishers(room, demand.rates), float(demand.rates.sum())) if concentrate else len(ranked)
    )
    groups = demand.groups if correlated else None
    placement, quotas = np.full(len(demand.rates), NOWHERE, dtype=np.int64), np.zeros(0)
    for k in range(least, len(ranked) + 1) if len(demand.rates) and ranked else ():
        usable = whole_publishers(room[:k], demand.rates)
        if k < len(ranked) and _too_tight(usable, demand.rates):
            continue
        base = np.array([broker.allocated if level_total else 0.0 for broker in ranked[:k]])
        quotas = fill(base, usable, float(demand.rates.sum()))
        placement = pack(demand.rates, groups, quotas, usable, np.random.default_rng(seed))
        if demand.rates.min() < demand.rates.max():
            placement = even_out(placement, demand.rates, groups, quotas, usable)
        if k == len(ranked) or _nearly_all(placement):
            _fit_in(placement, demand, quotas, usable, correlated=correlated)
        if (placement != NOWHERE).all():
            break
    return _outcome(demand, brokers, ranked[: len(quotas)], placement, quotas)


lb: Allocation = partial(_allocate, concentrate=False)
conc: Allocation = partial(_allocate, concentrate=True, level_total=True)
maxmin: Allocation = partial(_allocate, concentrate=True)
srtm: Allocation = partial(_allocate, concentrate=True, correlated=True)

# lb: all brokers, equal parts. conc: the fewest brokers, so that their total loads are equal. maxmin: the fewest
# brokers, equal parts of this topic. The three take publishers in a seeded random order. srtm: maxmin, and every
# correlation group spread in proportion.
STRATEGIES: dict[str, Allocation] = {"lb": lb, "conc": conc, "maxmin": maxmin, "srtm": srtm}


def plan(demand: Demand, brokers: Sequence[BrokerCapacity], strategy: str, seed: int = 1) -> Plan:
    """Place all publishers anew. ``strategy`` is a key of ``STRATEGIES``. Where capacity is short: as far as it
    goes, and ``missing`` says how much is not."""
    return STRATEGIES[strategy](demand, brokers, seed=seed)


def concentration(rcaps: Floats, rate: float) -> int:
    """The smallest k such that the first k of ``rcaps`` (sorted, largest first) cover ``rate``; all of them if none
    does (section 4.2, step 1)."""
    enough = np.cumsum(rcaps) >= rate - ROUNDING
    return int(np.argmax(enough)) + 1 if enough.any() else len(rcaps)


def place_more(demand: Demand, brokers: Sequence[BrokerCapacity], held: Sequence[str | None], strategy: str) -> Plan:
    """Publishers came, went or changed their rates: the fewest moves found after which the same principles hold.

    ``held``: where each is (a name that is in ``brokers``), or None. ``allocated`` does not count this topic. A broker
    without any room (``rcap`` 0) keeps those that it has.
    """
    index = {broker.name: at for at, broker in enumerate(brokers)}
    at_start = np.array([NOWHERE if name is None else index[name] for name in held], dtype=np.int64)
    load = _loads(at_start, demand.rates, len(brokers))
    rcaps = np.array([broker.rcap for broker in brokers])
    fixed = (rcaps <= 0) & (load > 0)
    room = np.where(fixed, load, rcaps)
    usable = whole_publishers(room, demand.rates)
    rate = float(demand.rates.sum() - load[fixed].sum())
    most = max(0, math.floor(demand.burst) - int(np.count_nonzero(fixed)))
    candidates = _by_what_they_hold(brokers, load, np.where(fixed, 0.0, room))
    most = min(
        most, len(candidates)
    )  # chosen below, not here: those that hold little of the topic may be the large ones
    least = most if strategy == "lb" else concentration(-np.sort(-usable[candidates]), rate)
    groups = demand.groups if strategy == "srtm" else None
    placement, quotas = at_start, np.where(fixed, load, 0.0)
    for k in range(min(max(least, 1), most), most + 1):
        chosen = _choose(candidates, usable, k, rate)
        if k < most and _too_tight(usable[chosen], demand.rates[~np.isin(at_start, np.flatnonzero(fixed))]):
            continue
        base = np.array([brokers[at].allocated if strategy == "conc" else 0.0 for at in chosen.tolist()])
        quotas = np.where(fixed, load, 0.0)
        quotas[chosen] = fill(base, room[chosen], max(0.0, rate))
        placement = np.where(np.isin(at_start, np.flatnonzero(quotas > 0)), at_start, NOWHERE)
        _take_back(placement, demand.rates, groups, quotas)
        _deal_out(placement, demand.rates, groups, quotas, room)
        _fit_in(placement, demand, quotas, room, correlated=groups is not None)
        placement = _even_out_but(fixed, placement, demand.rates, groups, quotas, room)
        _fit_in(placement, demand, quotas, room, correlated=groups is not None)
        if (placement != NOWHERE).all():
            break
    return _outcome(demand, brokers, brokers, placement, quotas)


def _even_out_but(
    fixed: Bools, placement: Ints, rates: Floats, groups: Ints | None, quotas: Floats, room: Floats
) -> Ints:
    """``even_out`` among the brokers that are not ``fixed``."""
    stays = (placement != NOWHERE) & fixed[placement]
    free = np.where(fixed, 0.0, quotas)
    others = np.where(stays, NOWHERE, placement)
    return np.where(stays, placement, even_out(others, rates, groups, free, np.where(free > 0, room, 0.0)))


def _take_back(placement: Ints, rates: Floats, groups: Ints | None, quotas: Floats) -> None:
    """In place: where a broker has far more than its quota, what is above it, in proportion from every group. Moving
    these one by one would take long."""
    load = _loads(placement, rates, len(quotas))
    for broker in np.flatnonzero(load > quotas + _MANY * float(rates.max())).tolist():
        members = np.flatnonzero(placement == broker)
        if groups is not None:
            members = members[np.argsort(groups[members], kind="stable")]
        part = 1 - quotas[broker] / load[broker]
        placement[members[np.diff(np.floor(np.arange(len(members) + 1) * part)) > 0]] = NOWHERE


def _by_what_they_hold(brokers: Sequence[BrokerCapacity], load: Floats, room: Floats) -> Ints:
    """Indices of the brokers that have room, first those that have most of the topic."""

    def rank(at: int) -> tuple[float, float, float, str]:
        return -load[at], -room[at], brokers[at].allocated, brokers[at].name

    return np.array(sorted(np.flatnonzero(room > 0).tolist(), key=rank), dtype=np.int64)


def _choose(candidates: Ints, room: Floats, k: int, rate: float) -> Ints:
    """``k`` of the candidates that cover ``rate``, as many of the first ones as can be."""
    chosen, others = candidates[:k].tolist(), candidates[k:].tolist()
    others.sort(key=lambda at: -room[at])
    for small, large in zip(sorted(chosen, key=lambda at: room[at]), others, strict=False):
        if room[chosen].sum() >= rate - ROUNDING or room[large] <= room[small]:
            break
        chosen[chosen.index(small)] = large
    return np.array(sorted(chosen), dtype=np.int64)


def _too_tight(room: Floats, rates: Floats) -> bool:
    """Whether a large fleet of unequal rates would have to fill every broker to the brim: a long search, in vain."""
    spare = float(room.sum() - rates.sum())
    return len(rates) > _LEFT and bool(rates.min() < rates.max()) and spare < len(room) * float(rates.max()) / 100


def _nearly_all(placement: Ints) -> bool:
    """Whether what is left is worth trying one by one."""
    return 0 < int((placement == NOWHERE).sum()) <= _LEFT


def _deal_out(placement: Ints, rates: Floats, groups: Ints | None, quotas: Floats, room: Floats) -> None:
    """Many newcomers at once, in place: as a topic of their own, over what is left of the quotas."""
    coming = np.flatnonzero(placement == NOWHERE)
    if len(coming) > _LEFT:
        load = _loads(placement, rates, len(quotas))
        left, free = np.clip(quotas - load, 0.0, None), np.clip(room - load, 0.0, None)
        kin = None if groups is None else groups[coming]
        placement[coming] = pack(rates[coming], kin, left, free, np.random.default_rng(1))


def _fit_in(placement: Ints, demand: Demand, quotas: Floats, room: Floats, *, correlated: bool) -> None:
    """Those without a broker, in place, wherever there is room on brokers that have a quota."""
    chosen = np.flatnonzero(quotas > 0)
    if len(chosen) and (placement == NOWHERE).any():
        load = _loads(placement, demand.rates, len(quotas))
        _place_one_by_one(placement, load, demand, quotas, room, chosen, correlated=correlated)


def _place_one_by_one(
    placement: Ints, load: Floats, demand: Demand, quotas: Floats, room: Floats, chosen: Ints, *, correlated: bool
) -> None:
    """Fill ``placement`` in place, largest first: among brokers below their quota the one with the least of the
    publisher's group, then the emptiest."""
    waiting = np.flatnonzero(placement == NOWHERE)
    most = float((room - load)[chosen].max()) + ROUNDING
    waiting = waiting[demand.rates[waiting] <= most]
    of_group = _group_loads(placement, demand, demand.groups[waiting], len(load)) if correlated else {}
    for publisher in waiting[np.argsort(-demand.rates[waiting], kind="stable")]:
        rate, group = demand.rates[publisher], int(demand.groups[publisher])
        fits = chosen[load[chosen] + rate <= room[chosen] + ROUNDING]
        if not len(fits):
            continue
        behind = fits[load[fits] < quotas[fits] - ROUNDING]
        candidates = behind if len(behind) else fits
        emptiness = (quotas - load)[candidates] / np.maximum(quotas[candidates], ROUNDING)
        kin = of_group.get(group)
        crowd = np.zeros(len(candidates)) if kin is None else kin[candidates] / np.maximum(quotas[candidates], ROUNDING)
        best = candidates[np.lexsort((-emptiness, crowd))[0]]
        placement[publisher] = best
        load[best] += rate
        if kin is not None:
            kin[best] += rate


def _group_loads(placement: Ints, demand: Demand, groups: Ints, brokers: int) -> dict[int, Floats]:
    """{group: its rate on each broker} for the groups named."""
    member = np.isin(demand.groups, groups) & (demand.groups != ALONE)
    names, at = np.unique(demand.groups[member], return_inverse=True)
    there = placement[member] != NOWHERE
    cell = at[there] * brokers + placement[member][there]
    table = np.bincount(cell, weights=demand.rates[member][there], minlength=len(names) * brokers)
    return dict(zip(names.tolist(), table.reshape(len(names), brokers), strict=True))


def _loads(placement: Ints, rates: Floats, brokers: int) -> Floats:
    there = placement != NOWHERE
    return np.bincount(placement[there], weights=rates[there], minlength=brokers).astype(np.float64)


def _outcome(
    demand: Demand, offered: Sequence[BrokerCapacity], used: Sequence[BrokerCapacity], placement: Ints, quotas: Floats
) -> Plan:
    assigned = _loads(placement, demand.rates, len(used))
    missing = float(demand.rates[placement == NOWHERE].sum())
    heads = np.bincount(placement[placement != NOWHERE], minlength=len(used))
    kept = np.flatnonzero(heads).tolist()
    renumbered = np.full(len(used) + 1, NOWHERE)  # the last entry is that of NOWHERE
    renumbered[kept] = np.arange(len(kept))
    reasons = [_why_so_many(demand, offered, len(kept)), *_shortage(demand, offered, missing)]
    reasons += [
        f"{used[at].name}: {heads[at]:,} publishers, {assigned[at]:,.6g} msg/s "
        f"(quota {quotas[at]:,.6g}, free {used[at].rcap:,.6g})"
        for at in kept
    ]
    reasons += _cost_of_balance(demand, len(offered), assigned[kept])
    names = tuple(used[at].name for at in kept)
    return Plan(
        brokers=names,
        placement=renumbered[placement],
        quotas=quotas[kept],
        assigned=assigned[kept],
        missing=missing,
        reasons=tuple(reasons),
    )


def _why_so_many(demand: Demand, offered: Sequence[BrokerCapacity], k: int) -> str:
    load = float(demand.rates.sum())
    return f"{len(demand.rates):,} publishers send {load:,.6g} msg/s: placed on {k} of {len(offered)} brokers"


def _shortage(demand: Demand, offered: Sequence[BrokerCapacity], missing: float) -> list[str]:
    if not missing:
        return []
    free = sum(broker.rcap for broker in offered)
    limit = math.floor(demand.burst)
    have = "the only broker has" if len(offered) == 1 else f"the {len(offered)} brokers have"
    why = f"{have} {free:,.6g} msg/s free" if offered else "there is no broker yet"
    if limit < len(offered):
        why += f", and a burst of {demand.burst:,.6g} allows {limit} brokers (a share needs one token)"
    return [f"missing {missing:,.6g} msg/s of capacity: {why}"]


def _cost_of_balance(demand: Demand, brokers: int, assigned: Floats) -> list[str]:
    """What an even spread over all brokers would do to the smallest bucket: a message that lacks a token waits 1 /
    r_l for it (Eq. 1)."""
    if len(assigned) in (0, brokers):
        return []
    part = float(assigned.min() / assigned.sum())
    here, even = demand.rate * part, demand.rate / brokers
    return [
        f"spread evenly over all {brokers} brokers the smallest bucket would be {even:,.6g} msg/s with "
        f"{demand.burst / brokers:,.4g} tokens instead of {here:,.6g} msg/s with {demand.burst * part:,.4g}: "
        f"a message that lacks one token would wait {1e3 / even:.3g} ms there, not {1e3 / here:.3g} ms"
    ]
