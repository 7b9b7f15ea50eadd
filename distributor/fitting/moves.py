"""From one layout to the next with few moves, and not all at once. Pure.

Members of one correlation group with one rate, batch and process are interchangeable: which of them is where makes no
difference to any broker. So a new layout says only how many of each kind a broker gets, and whoever can stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distributor.fitting.events import Layout, Split, Task
from distributor.model.columns import NOWHERE, Ints
from distributor.placement.allocation import Demand


def with_fewest_moves(old: Layout, new: Layout, demand: Demand) -> Layout:
    """``new`` with members of a kind exchanged, so that as few as can be change their broker."""
    brokers = len(new.brokers)
    kind = _kinds(demand)
    cell = kind * (brokers + 1) + new.placement + 1  # its first column is that of NOWHERE
    room = np.bincount(cell, minlength=(kind.max(initial=0) + 1) * (brokers + 1))
    wish = kind * (brokers + 1) + _now(old, new.brokers) + 1
    stays = _turn_among(wish) < room[wish]
    room -= np.bincount(wish[stays], minlength=len(room))
    placed = np.where(stays, wish, 0)
    movers = np.flatnonzero(~stays)
    # Both in order of kind, so that everybody gets a place of his own kind.
    placed[movers[np.argsort(kind[movers], kind="stable")]] = np.repeat(np.arange(len(room)), room)
    return replace(new, placement=placed % (brokers + 1) - 1)


def let_in(old: Layout, new: Layout, part: float, demand: Demand, split: Split) -> Layout:
    """On the way to ``new``: of those that come to a broker only ``part``, evenly through the file; the others stay
    where they are. Shares are those of who is where at this step. A broker of ``old`` for which the burst has no token
    is given up at once: whoever is there waits."""
    if part == 1:
        return new
    left = [name for name in old.brokers if name not in new.brokers]
    brokers = (*new.brokers, *left[: max(0, math.floor(demand.burst) - len(new.brokers))])
    now = _now(old, brokers)
    placement = now.copy()
    for at in range(len(new.brokers)):
        coming = np.flatnonzero((new.placement == at) & (now != at))
        first = np.linspace(0, len(coming) - 1, math.ceil(part * len(coming))).round().astype(np.int64)
        placement[coming[first]] = at
    return with_shares(brokers, placement, demand, split)


def moved(old: Layout, new: Layout) -> int:
    """Publishers that have another broker."""
    return int(np.count_nonzero(_now(old, new.brokers) != new.placement))


def receiving(old: Layout, new: Layout) -> set[str]:
    """Brokers that get publishers whom they do not have."""
    now = _now(old, new.brokers)
    coming = new.placement[(new.placement != now) & (new.placement != NOWHERE)]
    return {new.brokers[at] for at in np.unique(coming).tolist()}


def without(layout: Layout, broker: str) -> Layout:
    """``layout`` with the publishers of ``broker``, if it has any, waiting."""
    if broker not in layout.brokers:
        return layout
    here = layout.placement == layout.brokers.index(broker)
    return replace(layout, placement=np.where(here, NOWHERE, layout.placement))


def with_shares(brokers: Sequence[str], placement: Ints, demand: Demand, split: Split) -> Layout:
    """Of the brokers that have anybody. While some wait, shares are of the part of the bucket that is for the others:
    whoever waits has no tokens."""
    used = np.unique(placement[placement != NOWHERE])
    renumbered = np.full(len(brokers) + 1, NOWHERE)  # the last entry is that of NOWHERE
    renumbered[used] = np.arange(len(used))
    placed = renumbered[placement]
    there = float(demand.rates[placed != NOWHERE].sum())
    if there and (placed == NOWHERE).any():
        part = there / float(demand.rates.sum())
        demand = replace(demand, rate=demand.rate * part, burst=max(demand.burst * part, float(len(used))))
    shares = split(demand, placed, len(used)) if len(used) else []
    return Layout(brokers=tuple(brokers[at] for at in used.tolist()), placement=placed, shares_micro=tuple(shares))


def with_pinned(layout: Layout, task: Task, split: Split) -> Layout:
    """``layout`` with the publishers that do not move where they are."""
    if not task.pinned:
        return layout
    brokers = tuple(dict.fromkeys([*layout.brokers, *task.pinned.values()]))
    placement = layout.placement.copy()
    for at, name in task.pinned.items():
        placement[at] = brokers.index(name)
    if bool((placement == layout.placement).all()) and brokers == layout.brokers:
        return layout
    return with_shares(brokers, placement, task.demand, split)


def _kinds(demand: Demand) -> Ints:
    _, rate = np.unique(demand.rates, return_inverse=True)
    columns = [demand.groups, rate, *(one for one in (demand.batches, demand.periodic) if one is not None)]
    _, kind = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    kinds: Ints = kind.reshape(-1).astype(np.int64)
    return kinds


def _now(old: Layout, brokers: Sequence[str]) -> Ints:
    """Where everybody is, as an index into ``brokers``."""
    index = {name: at for at, name in enumerate(brokers)}
    names = np.array([*(index.get(name, NOWHERE) for name in old.brokers), NOWHERE], dtype=np.int64)
    now: Ints = names[old.placement]  # NOWHERE picks the last
    return now


def _turn_among(values: Ints) -> Ints:
    """For each entry, how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    _, first, counts = np.unique(values[order], return_index=True, return_counts=True)
    turn = np.empty(len(values), dtype=np.int64)
    turn[order] = np.arange(len(values)) - np.repeat(first, counts)
    return turn
