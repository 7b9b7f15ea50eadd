"""From one layout to the next with few moves, and not all at once. Pure.

Members of one correlation group with one rate are interchangeable: which of them is where makes no difference to any
broker. So a new layout says only how many of each kind a broker gets, and whoever can stays.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from distributor.allocation import Demand
from distributor.fitting_events import Layout
from distributor.spreading import NOWHERE, Ints


def with_fewest_moves(old: Layout, new: Layout, demand: Demand) -> Layout:
    """``new`` with members of a kind exchanged, so that as few as can be change their broker."""
    brokers = len(new.brokers)
    kind = _kinds(demand)
    cell = kind * (brokers + 1) + new.placement + 1  # its first column is that of NOWHERE
    room = np.bincount(cell, minlength=(kind.max(initial=0) + 1) * (brokers + 1))
    wish = kind * (brokers + 1) + _now(old, new) + 1
    stays = _turn_among(wish) < room[wish]
    room -= np.bincount(wish[stays], minlength=len(room))
    placed = np.where(stays, wish, 0)
    movers = np.flatnonzero(~stays)
    # Both in order of kind, so that everybody gets a place of his own kind.
    placed[movers[np.argsort(kind[movers], kind="stable")]] = np.repeat(np.arange(len(room)), room)
    return replace(new, placement=placed % (brokers + 1) - 1)


def let_in(old: Layout, new: Layout, part: float) -> Layout:
    """On the way to ``new``: of those that come to a broker only ``part``, evenly through the file; the others stay
    where they are, or wait if that broker is no longer used."""
    if part == 1:
        return new
    now = _now(old, new)
    placement = now.copy()
    for at in range(len(new.brokers)):
        coming = np.flatnonzero((new.placement == at) & (now != at))
        first = np.linspace(0, len(coming) - 1, math.ceil(part * len(coming))).round().astype(np.int64)
        placement[coming[first]] = at
    return replace(new, placement=placement)


def _kinds(demand: Demand) -> Ints:
    _, rate = np.unique(demand.rates, return_inverse=True)
    _, kind = np.unique(np.column_stack([demand.groups, rate]), axis=0, return_inverse=True)
    kinds: Ints = kind.reshape(-1).astype(np.int64)
    return kinds


def _now(old: Layout, new: Layout) -> Ints:
    """Where everybody is, as an index into the brokers of ``new``."""
    index = {name: at for at, name in enumerate(new.brokers)}
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
