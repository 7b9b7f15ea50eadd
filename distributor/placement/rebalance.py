"""Rebalancing: the few moves that bring the loads of a placement to their quotas. Pure.

``quotas`` counts publishers, which is exact if all have one rate. Else, or after publishers came, went or changed,
loads miss their quotas. Here publishers move, or change places, between one pair of brokers at a time. In the end every
broker is within one publisher's rate of its quota and not above its room, and every correlation group is within
``_GROUP_SLACK`` publishers' rates of its proportion on every broker.

Each step lowers the sum of squared differences, so it ends. Only what is out of bounds moves, so the moves are few. If
no step helps, publishers above the room of a broker lose their place (NOWHERE).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distributor.model.columns import ALONE, NOWHERE, ROUNDING, Bools, Floats, Ints

_GROUP_SLACK = (1.0, 2.0)  # a group may miss its proportion by so many publishers' rates; the second if need be
_MAX_MOVERS = 256  # publishers of one broker that are considered for one move
_MAX_SWAPPERS = 96  # publishers of each broker that are considered for one swap
_MAX_PARTNERS = 12  # brokers that are tried as the other side of a step
_MAX_STEPS = 200  # a broker; a few are the rule
_MAX_FUTILE = 64  # brokers in a row that no step helps, before the rest is left as it is


def even_out(placement: Ints, rates: Floats, groups: Ints | None, quotas: Floats, room: Floats) -> Ints:
    """``placement`` after the fewest steps found to the bounds of the module.

    ``groups`` None: they do not matter. ``quotas``: at most ``room``, msg/s. Publishers without a place get none.
    """
    if not len(quotas) or not (placement != NOWHERE).any():
        return placement
    table = _Table(placement.copy(), rates, groups, quotas, room)
    if groups is not None:
        table.mend_groups(_GROUP_SLACK[0 if rates.min() == rates.max() else 1])
    for slack in _GROUP_SLACK:
        table.mend_loads(slack)
    table.take_off()
    return table.placement


@dataclass(frozen=True)
class _Step:
    """Publisher ``mover`` goes from broker ``here`` to ``there``; ``other``, if any, goes the other way."""

    here: int
    there: int
    mover: int
    other: int = NOWHERE


class _Table:
    """A placement, with its sums kept up to date."""

    def __init__(self, placement: Ints, rates: Floats, groups: Ints | None, quotas: Floats, room: Floats) -> None:
        self.placement, self.rates = placement, rates
        self.brokers = len(quotas)
        self.largest = float(rates.max())
        self.room = room + ROUNDING
        self.high = np.minimum(quotas + self.largest, room) + ROUNDING
        self.low = quotas - self.largest - ROUNDING
        self.aim = quotas
        placed = np.flatnonzero(placement != NOWHERE)
        self.load = np.bincount(placement[placed], weights=rates[placed], minlength=self.brokers).astype(np.float64)
        self.members = _lists(placement[placed], placed, self.brokers)
        self.seat = _seats(self.members, len(placement))  # of each publisher in the list of its broker's members
        self.turn = [0] * self.brokers  # where the next look at a broker's members begins
        self.cells = _Cells(placement, rates, groups, quotas / max(float(quotas.sum()), ROUNDING))

    # Loads

    def mend_loads(self, slack: float) -> None:
        """Step until every broker is within its bounds, or no step helps one that is not."""
        helpless = np.zeros(self.brokers, dtype=np.bool_)
        futile, steps = 0, _MAX_STEPS * (self.brokers + 10)
        while futile < _MAX_FUTILE and steps > 0:
            above = np.where(helpless, -np.inf, self.load - self.high)
            below = np.where(helpless, -np.inf, self.low - self.load)
            worst = int(np.argmax(np.maximum(above, below)))
            if max(above[worst], below[worst]) <= 0:
                return
            step = self._help(worst, slack, above=bool(above[worst] > 0))
            if step is None:
                helpless[worst] = True
                futile += 1
            else:
                self._take(step)
                steps -= 1
                helpless[[step.here, step.there]] = False

    def _help(self, broker: int, slack: float, *, above: bool) -> _Step | None:
        off = self.load - self.aim
        partners = np.argsort(off if above else -off, kind="stable")[:_MAX_PARTNERS].tolist()
        for partner in partners:
            if partner != broker:
                here, there = (broker, partner) if above else (partner, broker)
                step = self._move(here, there, slack) or self._swap(here, there, slack)
                if step is not None:
                    return step
        return None

    def _gap(self, here: int, there: int) -> tuple[float, float]:
        """The rate that should go from ``here`` to ``there``, and the highest that brings both closer to their
        quotas."""
        surplus, lack = float(self.load[here] - self.aim[here]), float(self.aim[there] - self.load[there])
        return max(min(surplus, lack), 0.0), min(surplus + lack - ROUNDING, float(self.room[there] - self.load[there]))

    def _move(self, here: int, there: int, slack: float) -> _Step | None:
        wanted, max_rate = self._gap(here, there)
        movers = self._some(here, _MAX_MOVERS)
        rate = self.rates[movers]
        movers = movers[rate <= max_rate]
        movers = movers[self.cells.may_change(movers, here, there, self.rates[movers], slack)]
        if not len(movers):
            return None
        return _Step(here, there, int(movers[np.argmin(np.abs(self.rates[movers] - wanted))]))

    def _swap(self, here: int, there: int, slack: float) -> _Step | None:
        wanted, max_rate = self._gap(here, there)
        ours, theirs = self._some(here, _MAX_SWAPPERS), self._some(there, _MAX_SWAPPERS)
        difference = self.rates[ours][:, None] - self.rates[theirs][None, :]
        fits = np.argwhere((difference > ROUNDING) & (difference <= max_rate))
        nearest = np.argsort(np.abs(difference[fits[:, 0], fits[:, 1]] - wanted), kind="stable")[:_MAX_MOVERS]
        for own, other in fits[nearest].tolist():
            if self.cells.may_swap(int(ours[own]), int(theirs[other]), here, there, slack):
                return _Step(here, there, int(ours[own]), int(theirs[other]))
        return None

    def _some(self, broker: int, count: int) -> Ints:
        """Up to ``count`` members of ``broker``, others at every call."""
        members, at = self.members[broker], self.turn[broker]
        if len(members) <= count:
            return np.array(members, dtype=np.int64)
        self.turn[broker] = (at + count) % len(members)
        return np.array(members[at : at + count] + members[: max(0, at + count - len(members))])

    def _take(self, step: _Step) -> None:
        self._put(step.mover, step.here, step.there)
        if step.other != NOWHERE:
            self._put(step.other, step.there, step.here)

    def _put(self, publisher: int, here: int, there: int) -> None:
        rate = float(self.rates[publisher])
        self._leave(publisher, here)
        self.load[here] -= rate
        self.cells.add(publisher, here, -rate)
        self.placement[publisher] = there
        if there != NOWHERE:
            self.seat[publisher] = len(self.members[there])
            self.members[there].append(publisher)
            self.load[there] += rate
            self.cells.add(publisher, there, rate)

    def _leave(self, publisher: int, broker: int) -> None:
        """Remove ``publisher``; the last member takes its seat, because a broker may have 100,000 members."""
        last = self.members[broker].pop()
        if last != publisher:
            seat = int(self.seat[publisher])
            self.members[broker][seat] = last
            self.seat[last] = seat

    # Groups

    def mend_groups(self, slack: float) -> None:
        """Move members of groups that crowd a broker to brokers with room that have less of the group."""
        tolerance = slack * self.largest + ROUNDING
        for group, brokers in self.cells.crowded(slack * self.largest):
            excess = self.cells.excess(group)
            members = self.cells.members(group)
            members = members[np.argsort(self.rates[members], kind="stable")]
            places = self.placement[members]
            for here in brokers:
                self._thin_out(here, members[places == here], excess, tolerance)

    def _thin_out(self, here: int, members: Ints, excess: Floats, tolerance: float) -> None:
        """Move ``members`` of one group while it exceeds its proportion ``here`` by more than ``tolerance``.

        ``excess``: of the group on every broker; kept up to date.
        """
        for publisher in members.tolist():
            if excess[here] <= tolerance:
                return
            rate = float(self.rates[publisher])
            fits = self.load + rate <= self.room
            fits[here] = False
            if fits.any():
                there = int(np.argmin(np.where(fits, excess, np.inf)))
                self._put(publisher, here, there)
                excess[here] -= rate
                excess[there] += rate

    # Capacity

    def take_off(self) -> None:
        """Take publishers off brokers that are above their room: the smallest that is enough, else the largest ones."""
        for broker in np.flatnonzero(self.load > self.room).tolist():
            while self.load[broker] > self.room[broker]:
                members = np.array(self.members[broker])
                rates = self.rates[members]
                enough = rates >= self.load[broker] - self.room[broker]
                gone = np.argmin(np.where(enough, rates, np.inf)) if enough.any() else np.argmax(rates)
                self._put(int(members[gone]), broker, NOWHERE)


class _Cells:
    """The rate of each group on each broker, msg/s: sparse, because most groups are on few of many brokers."""

    def __init__(self, placement: Ints, rates: Floats, groups: Ints | None, part: Floats) -> None:
        self.part = part  # of each broker in the whole
        self.group = np.full(len(rates), ALONE) if groups is None else _numbered(groups)
        self._brokers = len(part)
        placed = (self.group != ALONE) & (placement != NOWHERE)
        count = int(self.group.max(initial=ALONE)) + 1
        self._whole = np.bincount(self.group[placed], weights=rates[placed], minlength=count).astype(np.float64)
        self._keys, at = np.unique(self.group[placed] * self._brokers + placement[placed], return_inverse=True)
        self._values = np.bincount(at, weights=rates[placed], minlength=len(self._keys)).astype(np.float64)
        self._new: dict[int, dict[int, float]] = {}  # {group: {broker: msg/s}}, cells that were empty at first
        self._by_group = np.argsort(self.group, kind="stable")
        self._starts = np.searchsorted(self.group[self._by_group], np.arange(count + 1))
        self._rates = rates
        self._largest = float(rates.max())

    def members(self, group: int) -> Ints:
        """All publishers of one group."""
        return self._by_group[self._starts[group] : self._starts[group + 1]]

    def of(self, groups: Ints, broker: int) -> Floats:
        keys = groups * self._brokers + broker
        if not len(self._keys):
            return np.array([self._added(group, broker) for group in groups.tolist()], dtype=np.float64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = self._keys[at] == keys
        values: Floats = np.where(known, self._values[at], 0.0)
        if self._new:
            for unknown in np.flatnonzero(~known).tolist():
                values[unknown] = self._added(int(groups[unknown]), broker)
        return values

    def _added(self, group: int, broker: int) -> float:
        added = self._new.get(group)
        return 0.0 if added is None else added.get(broker, 0.0)

    def add(self, publisher: int, broker: int, rate: float) -> None:
        group = int(self.group[publisher])
        if group == ALONE:
            return
        key = group * self._brokers + broker
        at = int(np.searchsorted(self._keys, key))
        if at < len(self._keys) and self._keys[at] == key:
            self._values[at] += rate
        else:
            added = self._new.setdefault(group, {})
            added[broker] = added.get(broker, 0.0) + rate

    def excess(self, group: int) -> Floats:
        """The load of one group minus its proportion, on every broker."""
        result: Floats = -self._whole[group] * self.part
        first, last = np.searchsorted(self._keys, [group * self._brokers, (group + 1) * self._brokers])
        result[self._keys[first:last] - group * self._brokers] += self._values[first:last]
        for broker, rate in self._new.get(group, {}).items():
            result[broker] += rate
        return result

    def crowded(self, tolerance: float) -> list[tuple[int, list[int]]]:
        """(group, brokers) for every group that exceeds its proportion by more than ``tolerance`` there."""
        groups, brokers = np.divmod(self._keys, self._brokers)
        found = self._values - self._whole[groups] * self.part[brokers] > tolerance + ROUNDING
        names, starts = np.unique(groups[found], return_index=True)
        by_group = [split.tolist() for split in np.split(brokers[found], starts[1:])]
        return list(zip(names.tolist(), by_group, strict=False))

    def may_change(self, movers: Ints, here: int, there: int, rates: Floats, slack: float) -> Bools:
        """Whether the group of each of ``movers`` stays within ``slack`` largest rates of its proportion on both
        brokers."""
        groups = self.group[movers]
        alone = groups == ALONE
        safe = np.where(alone, 0, groups)
        if not len(self._whole):
            return np.ones(len(movers), dtype=np.bool_)
        whole = self._whole[safe]
        gone = self.of(safe, here) - rates - whole * self.part[here]
        come = self.of(safe, there) + rates - whole * self.part[there]
        bound = slack * self._largest + ROUNDING
        result: Bools = alone | ((np.abs(gone) <= bound) & (np.abs(come) <= bound))
        return result

    def may_swap(self, mover: int, other: int, here: int, there: int, slack: float) -> bool:
        group, other_group = int(self.group[mover]), int(self.group[other])
        both = np.array([mover, other])
        if group == other_group:
            difference = self._rates[[mover]] - self._rates[[other]]
            return bool(self.may_change(both[:1], here, there, difference, slack)[0])
        out = self.may_change(both[:1], here, there, self._rates[[mover]], slack)
        back = self.may_change(both[1:], there, here, self._rates[[other]], slack)
        return bool(out[0] and back[0])


def _numbered(groups: Ints) -> Ints:
    """Groups of two and more numbered 0, 1, ...; all others ALONE."""
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    real = (groups != ALONE) & (sizes[group] > 1)
    result = np.full(len(groups), ALONE, dtype=np.int64)
    result[real] = np.unique(groups[real], return_inverse=True)[1]
    return result


def _lists(placement: Ints, publishers: Ints, brokers: int) -> list[list[int]]:
    order = np.argsort(placement, kind="stable")
    ends = np.cumsum(np.bincount(placement, minlength=brokers))[:-1]
    return [part.tolist() for part in np.split(publishers[order], ends)]


def _seats(members: list[list[int]], publishers: int) -> Ints:
    seats = np.zeros(publishers, dtype=np.int64)
    for group in members:
        seats[group] = np.arange(len(group))
    return seats
