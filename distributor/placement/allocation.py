"""Allocation: which publisher goes to which broker, by the paper's steps 1 (concentration) and 2 (max-min). Pure.

``plan`` places a new topic, ``place_more`` a topic of which publishers came, went or changed. Step 1 is
``concentration``, step 2 is in ``quotas`` (section 4.2 of the main paper); correlation groups are spread there too
(section 4.3). Step 3 is ``distributor.fitting``. The baselines of the paper are here. Rates are msg/s. The load of a
topic is the sum of its publishers' rates (the paper's *rate*). Its token rate r is at least that.

``mcap`` 0 means "not stated": no limit is known, and such a broker takes any topic whole. The number of brokers k is at
most floor(burst), because a share needs one token.
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
from distributor.placement.reasons import counted, who_sends
from distributor.placement.rebalance import even_out
from srtm.text import figure

_BULK_EXCESS = 100  # times the largest rate: a broker that exceeds its quota by more gives the excess up in one step
_MAX_SINGLE = 10_000  # publishers without a broker that are placed one by one; more are placed together


@dataclass(frozen=True, kw_only=True)
class BrokerCapacity:
    """The capacity of one broker for one topic."""

    name: str
    mcap: float  # largest rate that meets the SLO, msg/s; 0: not stated, no limit
    allocated: float = 0.0  # msg/s of other topics

    @property
    def rcap(self) -> float:
        """Residual capacity (section 4.2), msg/s."""
        return max(0.0, self.mcap - self.allocated) if self.mcap else math.inf

    def at_most(self, limit: float) -> BrokerCapacity:
        """With room for at most ``limit`` msg/s."""
        if self.rcap <= limit:
            return self
        return replace(self, mcap=self.allocated + limit) if limit > 0 else replace(self, mcap=1.0, allocated=1.0)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The publishers to place, as columns with one entry a publisher, and the envelope of their topic."""

    rates: Floats  # > 0
    groups: Ints  # correlation group, ALONE for none
    rate: float  # r
    burst: float  # b
    batches: Ints | None = None  # messages that each sends at once; None: equal
    periodic: Bools | None = None  # else Poisson; None: equal

    def of(self, chosen: Ints) -> Demand:
        """The demand of these publishers only, under the same envelope."""
        return replace(
            self,
            rates=self.rates[chosen],
            groups=self.groups[chosen],
            batches=None if self.batches is None else self.batches[chosen],
            periodic=None if self.periodic is None else self.periodic[chosen],
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The result of an allocation.

    ``placement[i]`` is an index into ``brokers``, or NOWHERE. Every broker in it has at least one publisher.
    """

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
    """An allocation strategy.

    ``seed``: of the random order in which publishers are taken; ``srtm`` rotates remainders by it.
    """

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
    min_brokers = (
        concentration(whole_publishers(room, demand.rates), float(demand.rates.sum())) if concentrate else len(ranked)
    )
    groups = demand.groups if correlated else None
    placement, quotas = np.full(len(demand.rates), NOWHERE, dtype=np.int64), np.zeros(0)
    for k in range(min_brokers, len(ranked) + 1) if len(demand.rates) and ranked else ():
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
    """Place all publishers anew, as far as there is capacity. ``strategy``: a key of ``STRATEGIES``."""
    return STRATEGIES[strategy](demand, brokers, seed=seed)


def concentration(rcaps: Floats, rate: float) -> int:
    """The smallest k so that the first k of ``rcaps`` (largest first) cover ``rate``, else all (4.2, step 1)."""
    enough = np.cumsum(rcaps) >= rate - ROUNDING
    return int(np.argmax(enough)) + 1 if enough.any() else len(rcaps)


def place_more(demand: Demand, brokers: Sequence[BrokerCapacity], held: Sequence[str | None], strategy: str) -> Plan:
    """Place publishers that came, went or changed with the fewest moves found after which the same principles hold.

    ``held``: the broker of each, or None. ``allocated`` does not count this topic. A broker without room (``rcap`` 0)
    keeps the publishers that it has.
    """
    index = {broker.name: at for at, broker in enumerate(brokers)}
    at_start = np.array([NOWHERE if name is None else index[name] for name in held], dtype=np.int64)
    loads = _loads(at_start, demand.rates, len(brokers))
    rcaps = np.array([broker.rcap for broker in brokers])
    fixed = (rcaps <= 0) & (loads > 0)
    room = np.where(fixed, loads, rcaps)
    usable = whole_publishers(room, demand.rates)
    rate = float(demand.rates.sum() - loads[fixed].sum())
    max_brokers = max(0, math.floor(demand.burst) - int(np.count_nonzero(fixed)))
    candidates = _by_what_they_hold(brokers, loads, np.where(fixed, 0.0, room))
    # Brokers are chosen below: those that have little of the topic may be the large ones.
    max_brokers = min(max_brokers, len(candidates))
    min_brokers = max_brokers if strategy == "lb" else concentration(-np.sort(-usable[candidates]), rate)
    groups = demand.groups if strategy == "srtm" else None
    placement, quotas = at_start, np.where(fixed, loads, 0.0)
    for k in range(min(max(min_brokers, 1), max_brokers), max_brokers + 1):
        chosen = _choose(candidates, usable, k, rate)
        if k < max_brokers and _too_tight(usable[chosen], demand.rates[~np.isin(at_start, np.flatnonzero(fixed))]):
            continue
        base = np.array([brokers[at].allocated if strategy == "conc" else 0.0 for at in chosen.tolist()])
        quotas = np.where(fixed, loads, 0.0)
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
    """Take from every broker with far more than its quota the excess, in proportion from every group. In place.

    To move these publishers one by one would take long.
    """
    load = _loads(placement, rates, len(quotas))
    for broker in np.flatnonzero(load > quotas + _BULK_EXCESS * float(rates.max())).tolist():
        members = np.flatnonzero(placement == broker)
        if groups is not None:
            members = members[np.argsort(groups[members], kind="stable")]
        part = 1 - quotas[broker] / load[broker]
        placement[members[np.diff(np.floor(np.arange(len(members) + 1) * part)) > 0]] = NOWHERE


def _by_what_they_hold(brokers: Sequence[BrokerCapacity], load: Floats, room: Floats) -> Ints:
    """Indices of the brokers that have room; those with most of the topic come first."""

    def rank(at: int) -> tuple[float, float, float, str]:
        return -load[at], -room[at], brokers[at].allocated, brokers[at].name

    return np.array(sorted(np.flatnonzero(room > 0).tolist(), key=rank), dtype=np.int64)


def _choose(candidates: Ints, room: Floats, k: int, rate: float) -> Ints:
    """``k`` of the candidates that cover ``rate``, with as many of the first ones as possible."""
    chosen, others = candidates[:k].tolist(), candidates[k:].tolist()
    others.sort(key=lambda at: -room[at])
    for small, large in zip(sorted(chosen, key=lambda at: room[at]), others, strict=False):
        if room[chosen].sum() >= rate - ROUNDING or room[large] <= room[small]:
            break
        chosen[chosen.index(small)] = large
    return np.array(sorted(chosen), dtype=np.int64)


def _too_tight(room: Floats, rates: Floats) -> bool:
    """Whether many publishers of unequal rates leave no slack on the brokers: the search would be long and in vain."""
    spare = float(room.sum() - rates.sum())
    return len(rates) > _MAX_SINGLE and bool(rates.min() < rates.max()) and spare < len(room) * float(rates.max()) / 100


def _nearly_all(placement: Ints) -> bool:
    """Whether so few publishers are without a broker that they can be placed one by one."""
    return 0 < int((placement == NOWHERE).sum()) <= _MAX_SINGLE


def _deal_out(placement: Ints, rates: Floats, groups: Ints | None, quotas: Floats, room: Floats) -> None:
    """Place many new publishers at once over what is left of the quotas, as a topic of their own. In place."""
    coming = np.flatnonzero(placement == NOWHERE)
    if len(coming) > _MAX_SINGLE:
        load = _loads(placement, rates, len(quotas))
        left, free = np.clip(quotas - load, 0.0, None), np.clip(room - load, 0.0, None)
        kin = None if groups is None else groups[coming]
        placement[coming] = pack(rates[coming], kin, left, free, np.random.default_rng(1))


def _fit_in(placement: Ints, demand: Demand, quotas: Floats, room: Floats, *, correlated: bool) -> None:
    """Place publishers without a broker wherever a broker with a quota has room. In place."""
    chosen = np.flatnonzero(quotas > 0)
    if len(chosen) and (placement == NOWHERE).any():
        load = _loads(placement, demand.rates, len(quotas))
        _place_one_by_one(placement, load, demand, quotas, room, chosen, correlated=correlated)


def _place_one_by_one(
    placement: Ints, load: Floats, demand: Demand, quotas: Floats, room: Floats, chosen: Ints, *, correlated: bool
) -> None:
    """Place publishers, the largest first, on the broker below its quota that has least of their group. In place.

    Of several such brokers the emptiest is taken.
    """
    waiting = np.flatnonzero(placement == NOWHERE)
    max_rate = float((room - load)[chosen].max()) + ROUNDING
    waiting = waiting[demand.rates[waiting] <= max_rate]
    of_group = _group_loads(placement, demand, demand.groups[waiting], len(load)) if correlated else {}
    for publisher in waiting[np.argsort(-demand.rates[waiting], kind="stable")]:
        rate, group = demand.rates[publisher], int(demand.groups[publisher])
        fits = chosen[load[chosen] + rate <= room[chosen] + ROUNDING]
        if not len(fits):
            continue
        below_quota = fits[load[fits] < quotas[fits] - ROUNDING]
        candidates = below_quota if len(below_quota) else fits
        emptiness = (quotas - load)[candidates] / np.maximum(quotas[candidates], ROUNDING)
        group_load = of_group.get(group)
        of_kin = np.zeros(len(candidates)) if group_load is None else group_load[candidates]
        crowding = of_kin / np.maximum(quotas[candidates], ROUNDING)
        best = candidates[np.lexsort((-emptiness, crowding))[0]]
        placement[publisher] = best
        load[best] += rate
        if group_load is not None:
            group_load[best] += rate


def _group_loads(placement: Ints, demand: Demand, groups: Ints, brokers: int) -> dict[int, Floats]:
    """{group: its rate on each broker} of ``groups``."""
    member = np.isin(demand.groups, groups) & (demand.groups != ALONE)
    names, at = np.unique(demand.groups[member], return_inverse=True)
    placed = placement[member] != NOWHERE
    cell = at[placed] * brokers + placement[member][placed]
    table = np.bincount(cell, weights=demand.rates[member][placed], minlength=len(names) * brokers)
    return dict(zip(names.tolist(), table.reshape(len(names), brokers), strict=True))


def _loads(placement: Ints, rates: Floats, brokers: int) -> Floats:
    placed = placement != NOWHERE
    return np.bincount(placement[placed], weights=rates[placed], minlength=brokers).astype(np.float64)


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
        f"{used[at].name}: {counted(int(heads[at]), 'publisher')}, {figure(assigned[at], 6)} msg/s "
        f"(quota {figure(quotas[at], 6)}, free {figure(used[at].rcap, 6)})"
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
    return f"{who_sends(demand.rates)}: placed on {k} of {counted(len(offered), 'broker')}"


def _shortage(demand: Demand, offered: Sequence[BrokerCapacity], missing: float) -> list[str]:
    if not missing:
        return []
    free = sum(broker.rcap for broker in offered)
    limit = math.floor(demand.burst)
    have = "the only broker has" if len(offered) == 1 else f"the {len(offered)} brokers have"
    why = f"{have} {figure(free, 6)} msg/s free" if offered else "there is no broker yet"
    if limit < len(offered):
        why += f", and a burst of {figure(demand.burst, 6)} allows {limit} brokers (a share needs one token)"
    return [f"missing {figure(missing, 6)} msg/s of capacity: {why}"]


def _cost_of_balance(demand: Demand, brokers: int, assigned: Floats) -> list[str]:
    """How long a message would wait for a token under an even spread over all brokers: 1 / r_l (Eq. 1)."""
    if len(assigned) in (0, brokers):
        return []
    part = float(assigned.min() / assigned.sum())
    here, even = demand.rate * part, demand.rate / brokers
    return [
        f"spread evenly over all {brokers} brokers the smallest bucket would be {figure(even)} msg/s with "
        f"{figure(demand.burst / brokers)} tokens instead of {figure(here)} msg/s with {figure(demand.burst * part)}: "
        f"a message that lacks one token would wait {figure(1e3 / even)} ms there, not {figure(1e3 / here)} ms"
    ]
