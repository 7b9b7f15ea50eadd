"""Which publisher goes to which broker: ``plan`` for a topic, ``place_more`` for publishers that join it later. Pure.

Concentration, max-min, correlation (design section 5; sections 4.2 and 4.3 of the main paper), and the baselines that
the paper compares with. Rates are msg/s. A topic's load is the sum of its publishers' rates (the paper's *rate*), not
its token rate r, which is at least that.

``mcap`` 0 means "not stated": no limit is known, so none is kept, and such a broker takes any topic whole. k, the
number of brokers, is at most floor(burst), because a share needs one token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from distributor.spreading import ALONE, NOWHERE, Floats, Ints, fill, pack, whole_publishers

_ROUNDING = 1e-6  # msg/s: the unit of rates; less than that is not a difference


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


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What is to be placed: columns, one entry a publisher, and the topic's envelope."""

    rates: Floats  # > 0
    groups: Ints  # correlation group, ALONE for none
    rate: float  # r
    burst: float  # b


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
        base = np.array([broker.allocated if level_total else 0.0 for broker in ranked[:k]])
        quotas = fill(base, usable, float(demand.rates.sum()))
        placement = pack(demand.rates, groups, quotas, usable, np.random.default_rng(seed))
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
    enough = np.cumsum(rcaps) >= rate - _ROUNDING
    return int(np.argmax(enough)) + 1 if enough.any() else len(rcaps)


def place_more(demand: Demand, brokers: Sequence[BrokerCapacity], held: Sequence[str | None], strategy: str) -> Plan:
    """Keep the publishers that have a broker in ``held`` (a name that is in ``brokers``) where they are and place
    the others.

    ``allocated`` does not count this topic. The brokers that it has are used first, more only where those are full
    (``lb``: all).
    """
    index = {broker.name: at for at, broker in enumerate(brokers)}
    placement = np.array([NOWHERE if name is None else index[name] for name in held], dtype=np.int64)
    load = _loads(placement, demand.rates, len(brokers))
    room = np.array([broker.rcap for broker in brokers])
    chosen = _brokers_to_use(demand, brokers, load, strategy)
    quotas = np.zeros(len(brokers))
    quotas[chosen] = fill(np.zeros(len(chosen)), np.maximum(room, load)[chosen], float(demand.rates.sum()))
    correlated = strategy == "srtm"
    _place_one_by_one(placement, load, demand, quotas, room, chosen, correlated=correlated)
    return _outcome(demand, brokers, brokers, placement, quotas)


def _brokers_to_use(demand: Demand, brokers: Sequence[BrokerCapacity], load: Floats, strategy: str) -> Ints:
    """Indices: the brokers that hold publishers of the topic already, then the roomiest, until the topic's load
    fits."""
    order = sorted(
        range(len(brokers)), key=lambda at: (load[at] == 0, -brokers[at].rcap, brokers[at].allocated, brokers[at].name)
    )
    current = int(np.count_nonzero(load))
    usable = [at for at in order if load[at] > 0 or brokers[at].rcap > 0][: max(current, math.floor(demand.burst))]
    if strategy == "lb":
        return np.array(usable, dtype=np.int64)
    room = np.array([brokers[at].rcap for at in usable])
    needed = concentration(whole_publishers(room, demand.rates), float(demand.rates.sum()))
    return np.array(usable[: max(current, needed)], dtype=np.int64)


def _place_one_by_one(
    placement: Ints, load: Floats, demand: Demand, quotas: Floats, room: Floats, chosen: Ints, *, correlated: bool
) -> None:
    """Fill ``placement`` in place, largest first: among brokers below their quota the one with the least of the
    publisher's group, then the emptiest."""
    waiting = np.flatnonzero(placement == NOWHERE)
    of_group = _group_loads(placement, demand, demand.groups[waiting], len(load)) if correlated else {}
    for publisher in waiting[np.argsort(-demand.rates[waiting], kind="stable")]:
        rate, group = demand.rates[publisher], int(demand.groups[publisher])
        fits = chosen[load[chosen] + rate <= room[chosen] + _ROUNDING]
        if not len(fits):
            continue
        behind = fits[load[fits] < quotas[fits] - _ROUNDING]
        candidates = behind if len(behind) else fits
        emptiness = (quotas - load)[candidates] / np.maximum(quotas[candidates], _ROUNDING)
        kin = of_group.get(group)
        crowd = (
            np.zeros(len(candidates)) if kin is None else kin[candidates] / np.maximum(quotas[candidates], _ROUNDING)
        )
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
    why = f"the {len(offered)} brokers have {free:,.6g} msg/s free" if offered else "there is no broker yet"
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
