"""How many of a topic's publishers one broker can keep, and in which order they would be taken. Pure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distributor.model.columns import ALONE, Ints


def fair_order(members: Ints, groups: Ints) -> Ints:
    """``members`` (indices) such that the first n have of every correlation group its proportion, within one publisher.
    ``groups``: of all publishers."""
    group = groups[members]
    _, label, size = np.unique(
        np.where(group == ALONE, group.max(initial=ALONE) + 1 + np.arange(len(members)), group),
        return_inverse=True,
        return_counts=True,
    )
    by_group = np.argsort(label, kind="stable")
    turn = np.empty(len(members), dtype=np.int64)  # which of its group
    turn[by_group] = np.arange(len(members)) - np.repeat(np.cumsum(size) - size, size)
    # Groups of one size would all give their next at the same n: each starts a little apart.
    apart = np.random.default_rng(1).random(len(size))[label]
    ordered: Ints = members[np.argsort((turn + apart) / size[label], kind="stable")]
    return ordered


def most_kept(members: int, keeps: Callable[[int], bool]) -> int:
    """The largest n up to ``members`` for which ``keeps(n)``, which is true up to some n and false beyond it."""
    kept, broken = 0, members + 1
    at = members  # whoever can keep all is asked once
    while broken - kept > 1:
        if keeps(at):
            kept = at
        else:
            broken = at
        at = (kept + broken) // 2
    return kept
