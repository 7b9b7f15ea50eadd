"""Turning quotas into placed publishers: water-filling, rounding to whole publishers, spreading correlation groups.
Pure.

What lives here is arithmetic on columns and knows neither topics nor brokers' names; ``allocation`` decides with it
(design section 5, sections 4.2 and 4.3 of the main paper). Everything is vectorized: a million publishers in 40,000
groups over 1,000 brokers take seconds.

How a correlation group is spread. Publishers of (nearly) equal rate form a *class*; within a class each broker takes a
fixed number of heads. Which member goes where is a table, groups by brokers, whose rows must sum to the groups' sizes
and whose columns to the heads, every entry the exact proportion rounded up or down. Groups of one size have equal rows,
so their extra heads are dealt by wrapping around (McNaughton's rule for preemptive schedules): a broker's extras go to
consecutive groups, the next broker continues where it stopped. So only a table *sizes* by brokers remains to be
rounded, and that is a flow with integral bounds. This is "largest remainder, remainders rotated" made exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NOWHERE = -1  # in a placement: no broker had room for this publisher
ALONE = -1  # in a column of groups: fires by itself
_SLACK = 1e-9  # relative: a sum of floats may miss a whole publisher by this much
_MAX_EXACT_CLASSES = 64  # above that many different rates, rates within an eighth of an octave (9 %) form one class


def fill(base: Floats, room: Floats, rate: float) -> Floats:
    """Water-filling: amounts q, 0 <= q <= room, that make the levels base + q as equal as can be and sum to
    min(rate, room.sum())."""
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
    """What publishers of these rates can use of ``room``: whole heads only where all rates are equal (then quotas
    can always be packed)."""
    if not len(rates) or rates.min() != rates.max():
        return room
    rate = float(rates[0])
    return np.floor(room / rate * (1 + _SLACK)) * rate


def pack(rates: Floats, groups: Ints | None, quotas: Floats, room: Floats, rng: np.random.Generator) -> Ints:
    """The broker (index) of every publisher, ``NOWHERE`` where none had room.

    Never above ``room``; equal rates end within one publisher of the quota. ``groups`` None: in random order; else
    every group is spread in proportion to the heads. Large publishers go first, so that the small ones even out what is
    left.
    """
    placement = np.full(len(rates), NOWHERE, dtype=np.int64)
    load = np.zeros(len(quotas))
    due = 0.0
    for members in _rate_classes(rates):
        due += float(rates[members].sum() / rates.sum())
        limits = np.floor(np.minimum((room - load) / rates[members].max() * (1 + _SLACK) + _SLACK, len(members)))
        heads = apportion(np.clip(quotas * due - load, 0.0, None), len(members), np.maximum(limits, 0).astype(np.int64))
        placement[members] = _deal(heads, len(members), None if groups is None else groups[members], rng)
        placed = members[placement[members] != NOWHERE]
        load += np.bincount(placement[placed], weights=rates[placed], minlength=len(load))
    return placement


def _rate_classes(rates: Floats) -> Iterator[Ints]:
    """Indices of publishers of (nearly) equal rate, the largest rates first."""
    distinct, inverse = np.unique(rates, return_inverse=True)
    if len(distinct) > _MAX_EXACT_CLASSES:
        inverse = np.floor(np.log2(distinct) * 8).astype(np.int64)[inverse]
    order = np.argsort(-inverse, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)


def apportion(ideal: Floats, heads: int, limits: Ints) -> Ints:
    """``heads`` whole publishers in proportion to ``ideal``, by largest remainder, none above its limit; fewer where
    the limits sum to less."""
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


def _deal(heads: Ints, members: int, groups: Ints | None, rng: np.random.Generator) -> Ints:
    """A broker for each of ``members`` publishers, ``heads`` of them for each; the rest, if any, goes to
    ``NOWHERE``."""
    columns = np.append(heads, members - heads.sum())
    if groups is None:
        dealt = rng.permutation(np.repeat(np.arange(len(columns)), columns))
    else:
        dealt = spread_groups(columns, groups, rng)
    return np.where(dealt == len(heads), NOWHERE, dealt)


def spread_groups(columns: Ints, groups: Ints, rng: np.random.Generator) -> Ints:
    """A column for every member, ``columns[i]`` members in column i: of a group of size s, s * columns[i] /
    sum(columns) rounded up or down."""
    members = len(groups)
    labels = np.where(groups == ALONE, groups.max(initial=ALONE) + 1 + np.arange(members), groups)
    _, group, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    shuffled = rng.permutation(len(sizes))  # neighbours in the file shall not share a broker by their place in it
    by_size_and_group = np.lexsort((shuffled[group], sizes[group]))
    distinct, counts = np.unique(sizes, return_counts=True)
    table = round_table(distinct * counts, columns)
    column = np.empty(members, dtype=np.int64)
    start = 0
    for size, count, row in zip(distinct.tolist(), counts.tolist(), table, strict=True):
        rows = _wrap_around(size, count, row, size * columns // members)
        column[by_size_and_group[start : start + size * count]] = rows.ravel()
        start += size * count
    return column


def _wrap_around(size: int, count: int, row: Ints, base: Ints) -> Ints:
    """For ``count`` groups of one size, the columns of their members: ``base`` in each, and the extras of ``row`` by
    McNaughton's rule."""
    every = np.repeat(np.arange(len(base)), base)
    extras = np.repeat(np.arange(len(base)), row - count * base)
    return np.hstack([np.broadcast_to(every, (count, len(every))), extras.reshape(size - len(every), count).T])


def round_table(row_sums: Ints, column_sums: Ints) -> Ints:
    """Whole numbers with these row and column sums, each row_sums[i] * column_sums[j] / total rounded up or down
    (controlled rounding)."""
    total = int(row_sums.sum())
    table, rest = np.divmod(np.outer(row_sums, column_sums), max(total, 1))
    if len(row_sums) > 1:
        table += _choose(rest > 0, row_sums - table.sum(axis=1), column_sums - table.sum(axis=0))
    return table


def _choose(allowed: npt.NDArray[np.bool_], per_row: Ints, per_column: Ints) -> npt.NDArray[np.bool_]:
    """Which allowed cells to round up, so many in each row and column: a maximum flow, which is integral and here
    always saturates."""
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
