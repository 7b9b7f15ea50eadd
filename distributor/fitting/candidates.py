"""Which layout to try next: the best by replay, if it is better than leaving things. Pure.

Candidates are the layout of ``search``, and greedy moves: a part of a late broker's publishers goes to one other
broker. Each is replayed on what was recorded, and so is the layout in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from distributor.fitting.events import Layout, Split, Task
from distributor.fitting.layout_model import Candidate, Model
from distributor.fitting.moves import moved, with_fewest_moves, with_shares
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.retention import fair_order

_PARTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)  # of a broker's rate
_TAKERS = 3  # brokers that are tried for them


def better_layout(
    task: Task,
    in_force: Layout,
    brokers: Sequence[BrokerCapacity],
    model: Model,
    fewest: Candidate | None,
    split: Split,
    margin: float,
) -> Candidate | None:
    """The layout with the fewest moves that is predicted to keep the promise, with time for queues to drain; else the
    one that comes closest. ``fewest``: the layout that ``search`` found.

    None: no layout is predicted to be better than ``in_force`` by ``margin``, a part of its worst percentile.
    """
    leaving = model.predicted(in_force)
    layouts = [*shifts(task, leaving, brokers, split)]
    layouts += [] if fewest is None else [with_fewest_moves(in_force, fewest.layout, task.demand)]
    tried = [model.predicted(layout) for layout in layouts if not model.is_refuted(layout)]
    better = [one for one in tried if one.worst_ns <= (1 - margin) * leaving.worst_ns]
    kept = [one for one in better if model.serves(one)]
    if kept:
        return min(kept, key=lambda one: (moved(in_force, one.layout), one.worst_ns))
    return min(better, key=lambda one: one.worst_ns, default=None)


def shifts(task: Task, leaving: Candidate, brokers: Sequence[BrokerCapacity], split: Split) -> Iterator[Layout]:
    """Layouts that take a part of the latest broker's publishers off it, in proportion from every group."""
    layout, demand = leaving.layout, task.demand
    source = max(leaving.latency, key=lambda name: leaving.latency[name].total_ns, default=None)
    if source is None:
        return
    here = np.flatnonzero(layout.placement == layout.brokers.index(source))
    movable = np.array([at for at in here.tolist() if at not in task.pinned], dtype=np.int64)
    order = fair_order(movable, demand.groups)
    sums = np.cumsum(demand.rates[order])
    load = float(demand.rates[here].sum())
    for taker, room in _takers(layout, task, source, brokers):
        for part in _PARTS:
            count = int(np.searchsorted(sums, part * load * (1 - 1e-9))) + 1
            if count <= len(order) and sums[count - 1] <= room:
                yield _with_moved(layout, order[:count].tolist(), taker, task, split)


def _takers(layout: Layout, task: Task, source: str, brokers: Sequence[BrokerCapacity]) -> list[tuple[str, float]]:
    """(broker, msg/s that it can take), those with the most room for their load first."""
    rates = task.demand.rates
    have = {name: float(rates[layout.placement == at].sum()) for at, name in enumerate(layout.brokers)}
    rooms = {
        one.name: min(one.rcap, task.full.get(one.name, np.inf)) - have.get(one.name, 0.0)
        for one in brokers
        if one.name != source and (one.name in have or len(layout.brokers) + 1 <= task.demand.burst)
    }
    ranked = sorted(rooms, key=lambda name: (have.get(name, 0.0) + task.others.get(name, 0.0), -rooms[name], name))
    return [(name, rooms[name]) for name in ranked[:_TAKERS]]


def _with_moved(layout: Layout, movers: Sequence[int], taker: str, task: Task, split: Split) -> Layout:
    brokers = layout.brokers if taker in layout.brokers else (*layout.brokers, taker)
    placement = layout.placement.copy()
    placement[list(movers)] = brokers.index(taker)
    return with_shares(brokers, placement, task.demand, split)
