"""Quotas (max-min, the paper's step 2): from the rate that each broker is to have to placed publishers. Pure.

Water-filling, rounding to whole publishers, and spreading of correlation groups, as arithmetic on columns (sections 4.2
and 4.3 of the main paper). ``allocation`` decides with it. Everything is vectorized: a million publishers in 40,000
groups over 1,000 brokers take seconds.

How a correlation group is spread. Each broker takes a fixed number of heads. Which member goes where is a table, groups
by brokers, whose rows must sum to the groups' sizes and whose columns to the heads, every entry the exact proportion
rounded up or down. Groups of one size have equal rows, so their extra heads are dealt by wrapping around (McNaughton's
rule for preemptive schedules): a broker's extras go to consecutive groups, the next broker continues where it stopped.
So only a table *sizes* by brokers remains to be rounded, and that is a flow with integral bounds. This is "largest
remainder, remainders rotated" made exact.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np

from distributor.model.columns import ALONE, NOWHERE, Bools, Floats, Ints

_SLACK = 1e-9  # relative: a sum of floats may miss a whole publisher by this much


def fill(base: Floats, room: Floats, rate: float) -> Floats:
    """Water-filling: amounts q, 0 <= q <= room, with levels base + q as equal as possible.

    They sum to min(rate, room.sum()).
    """
    if rate >= room.sum():
        return room.copy()

    def poured(level: float) -> Floats:
        return np.clip(level - base, 0.0, room)

    tops = base + room
    edges = np.unique(np.concatenate([base, tops[np.isfinite(tops)]]))
    edge = float(edges[bisect_right(edges, rate, key=lambda level: poured(level).sum()) - 1])
    rising = max(1, int(np.count_nonzero((base <= edge) & (edge < tops))))  # none where a room is lost in rounding
    return poured(edge + (rate - float(poured(edge).sum())) / rising)


def whole_publishers(room: Floats, rates: Floats) -> Floats:
    """What publishers of these rates can use of ``room``.

    If all rates are equal that is a whole number of publishers; then quotas can always be packed.
    """
    if not len(rates) or rates.min() != rates.max():
        return room
    rate = float(rates[0])
    return np.floor(room / rate * (1 + _SLACK)) * rate


def pack(rates: Floats, groups: Ints | None, quotas: Floats, room: Floats, rng: np.random.Generator) -> Ints:
    """The broker (index) of every publisher: numbers in proportion to the quotas, NOWHERE for what they do not cover.

    ``groups`` None: in random order; else every group is spread in proportion to the heads. With equal rates this is
    the placement: never above ``room``, within one publisher of the quota. With unequal ones it is near it, and
    ``distributor.placement.rebalance`` does the rest.
    """
    alike = bool(rates.min() == rates.max())
    limits = np.full(len(quotas), len(rates))
    if alike:
        limits = np.floor(np.minimum(room / rates[0] * (1 + _SLACK) + _SLACK, len(rates))).astype(np.int64)
    covered = min(1.0, float(quotas.sum() / rates.sum()) * (1 + _SLACK))
    heads = apportion(quotas, len(rates) if alike else math.floor(len(rates) * covered), limits)
    return _deal(heads, rates, groups, rng)


def apportion(ideal: Floats, heads: int, limits: Ints) -> Ints:
    """``heads`` publishers in proportion to ``ideal`` by largest remainder, none above its limit.

    Fewer, if the limits sum to less.
    """
    total = float(ideal.sum())
    wish = ideal * (heads / total) if total > 0 else np.full(len(ideal), heads / len(ideal))
    taken = np.minimum(np.floor(wish * (1 + _SLACK)).astype(np.int64), limits)
    shortest_first = np.argsort(taken - wish, kind="stable")
    candidates = shortest_first[(taken < limits)[shortest_first]]
    taken[candidates[: heads - int(taken.sum())]] += 1
    while (missing := heads - int(taken.sum())) > 0 and (taken < limits).any():
        roomy = np.argsort(taken - limits, kind="stable")[: min(missing, np.count_nonzero(taken < limits))]
        taken[roomy] += np.minimum(missing // len(roomy), (limits - taken)[roomy])
    return taken


def _deal(heads: Ints, rates: Floats, groups: Ints | None, rng: np.random.Generator) -> Ints:
    """A broker for each publisher: ``heads[i]`` publishers on broker i, the rest NOWHERE."""
    columns = np.append(heads, len(rates) - heads.sum())
    if rates.min() < rates.max():
        dealt = spread_groups(columns, _strata(rates, groups, len(heads), rng), rng, rates)
    elif groups is None:
        dealt = rng.permutation(np.repeat(np.arange(len(columns)), columns))
    else:
        dealt = spread_groups(columns, groups, rng)
    return np.where(dealt == len(heads), NOWHERE, dealt)


def _strata(rates: Floats, groups: Ints | None, size: int, rng: np.random.Generator) -> Ints:
    """``groups``, with publishers of no group in new groups of ``size`` neighbours in rate.

    So every broker gets as many fast and slow publishers as the others. ``groups`` None: there are none.
    """
    labels = np.full(len(rates), ALONE) if groups is None else groups.copy()
    _, group, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    alone = np.flatnonzero((labels == ALONE) | (sizes[group] == 1))
    alone = rng.permutation(alone)
    by_rate = alone[np.argsort(-rates[alone], kind="stable")]
    labels[by_rate] = labels.max(initial=ALONE) + 1 + np.arange(len(by_rate)) // max(2, size)
    return labels


def spread_groups(columns: Ints, groups: Ints, rng: np.random.Generator, rates: Floats | None = None) -> Ints:
    """A column for every member, ``columns[i]`` members in column i.

    Of a group of size s, column i gets s * columns[i] / sum(columns), rounded up or down. With ``rates`` a column gets
    the ranks of a group's members in turn, from group to group, and the fast and slow members of a large group
    alternately.
    """
    members = len(groups)
    labels = np.where(groups == ALONE, groups.max(initial=ALONE) + 1 + np.arange(members), groups)
    _, group, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    shuffled = rng.permutation(len(sizes))  # neighbours in the file must not share a broker by their place in it
    turn = np.empty(len(sizes), dtype=np.int64)
    turn[np.lexsort((shuffled, sizes))] = np.arange(len(sizes))
    by_size_and_group = np.lexsort((turn[group],) if rates is None else (-rates, turn[group]))
    distinct, counts = np.unique(sizes, return_counts=True)
    table = round_table(distinct * counts, columns)
    column = np.empty(members, dtype=np.int64)
    start = 0
    for size, count, row in zip(distinct.tolist(), counts.tolist(), table, strict=True):
        rows = _wrap_around(size, count, row, size * columns // members)
        if rates is not None:
            turned = (np.arange(count)[:, None] + np.arange(size)) % size
            rows = np.take_along_axis(rows, turned, axis=1)
        column[by_size_and_group[start : start + size * count]] = rows.ravel()
        start += size * count
    return column


def _wrap_around(size: int, count: int, row: Ints, base: Ints) -> Ints:
    """The columns of the members of ``count`` groups of one size: ``base`` each, and extras by McNaughton's rule."""
    every = np.repeat(np.arange(len(base)), base)
    turn = np.arange(len(every)) - np.repeat(np.cumsum(base) - base, base)
    every = every[np.argsort((turn + 0.5) / base[every], kind="stable")]  # no column has a run of them
    extras = np.repeat(np.arange(len(base)), row - count * base)
    return np.hstack([np.broadcast_to(every, (count, len(every))), extras.reshape(size - len(every), count).T])


def round_table(row_sums: Ints, column_sums: Ints) -> Ints:
    """Controlled rounding: whole numbers with these row and column sums.

    Each is row_sums[i] * column_sums[j] / total, rounded up or down.
    """
    total = int(row_sums.sum())
    table, rest = np.divmod(np.outer(row_sums, column_sums), max(total, 1))
    if len(row_sums) > 1:
        table += _choose(rest > 0, row_sums - table.sum(axis=1), column_sums - table.sum(axis=0))
    return table


def _choose(allowed: Bools, per_row: Ints, per_column: Ints) -> Bools:
    """Which allowed cells to round up, given how many in each row and column.

    It is a maximum flow, which is integral and here always saturates.
    """
    from scipy.sparse import csr_array  # 0.2 s to import, and most topics have groups of one size
    from scipy.sparse.csgraph import maximum_flow

    rows, columns = allowed.shape
    row, column = np.nonzero(allowed)
    source, sink = rows + columns, rows + columns + 1
    tails = np.concatenate([np.full(rows, source), row, rows + np.arange(columns)])
    heads = np.concatenate([np.arange(rows), rows + column, np.full(columns, sink)])
    capacities = np.concatenate([per_row, np.ones(len(row), dtype=np.int64), per_column]).astype(np.int32)
    network = csr_array((capacities, (tails, heads)), shape=(sink + 1, sink + 1))
    flow = maximum_flow(network, source, sink).flow
    return (flow[:rows, rows : rows + columns].toarray() > 0).reshape(rows, columns)
