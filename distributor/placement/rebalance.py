"""Rebalancing: the few moves that bring the loads of a placement to their quotas. Pure.

``quotas`` counts publishers, which is exact if all have one rate. Else, or after publishers came, went or changed,
loads miss their quotas. Here the broker that misses its bounds most gives a publisher to another, or takes one, until
none does or no move helps (greedy). In the end brokers are within one publisher's rate of their quota, as far as moves
of single publishers lead there, and none is above its room. Every correlation group is within ``_GROUP_SLACK``
publishers' rates of its proportion on every broker.

Each move lowers the sum of squared differences, so it ends. Only what is out of bounds moves, so the moves are few. If
no move helps, publishers above the room of a broker lose their place (NOWHERE).
"""

from __future__ import annotations

import numpy as np

from distributor.model.columns import ALONE, NOWHERE, ROUNDING, Floats, Ints

_GROUP_SLACK = (1.0, 2.0)  # a group may miss its proportion by so many publishers' rates; the second if need be
_MAX_MOVERS = 256  # publishers of one broker that are considered for one move
_MAX_PARTNERS = 12  # brokers that are tried as the other side of a move
_MAX_MOVES = 200  # a broker; a few are the rule
_MAX_FUTILE = 64  # brokers in a row that no move helps, before the rest is left as it is


def even_out(placement: Ints, rates: Floats, groups: Ints | None, quotas: Floats, room: Floats) -> Ints:
    """``placement`` after the fewest moves found to the bounds of the module.

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


class _Table:
    """A placement, with its sums kept up to date."""

    def __init__(self, placement: Ints, rates: Floats, groups: Ints | None, quotas: Floats, room: Floats) -> None:
        self.placement, self.rates, self.quota = placement, rates, quotas
        self.brokers = len(quotas)
        self.largest = float(rates.max())
        self.room = room + ROUNDING
        self.high = np.minimum(quotas + self.largest, room) + ROUNDING
        self.low = quotas - self.largest - ROUNDING
        self.part = quotas / max(float(quotas.sum()), ROUNDING)  # of each broker in the whole
        placed = np.flatnonzero(placement != NOWHERE)
        self.load = np.bincount(placement[placed], weights=rates[placed], minlength=self.brokers).astype(np.float64)
        order = placed[np.argsort(placement[placed], kind="stable")]
        ends = np.cumsum(np.bincount(placement[placed], minlength=self.brokers))[:-1]
        self.members = [part.tolist() for part in np.split(order, ends)]
        self.group = np.full(len(rates), ALONE) if groups is None else _numbered(groups)
        grouped = placed[self.group[placed] != ALONE]
        self.whole = np.bincount(self.group[grouped], weights=rates[grouped]).astype(np.float64)
        keys, at = np.unique(self.group[grouped] * self.brokers + placement[grouped], return_inverse=True)
        sums = np.bincount(at, weights=rates[grouped], minlength=len(keys))
        self.cells = dict(zip(keys.tolist(), sums.tolist(), strict=True))  # {group * brokers + broker: msg/s}

    def _put(self, publisher: int, here: int, there: int) -> None:
        rate, group = float(self.rates[publisher]), int(self.group[publisher])
        self.members[here].remove(publisher)
        self.placement[publisher] = there
        for broker, more in ((here, -rate), (there, rate)):
            if broker != NOWHERE:
                self.load[broker] += more
                if group != ALONE:
                    key = group * self.brokers + broker
                    self.cells[key] = self.cells.get(key, 0.0) + more
        if there != NOWHERE:
            self.members[there].append(publisher)

    # Loads

    def mend_loads(self, slack: float) -> None:
        """Move publishers until every broker is within its bounds, or no move helps one that is not."""
        helpless = np.zeros(self.brokers, dtype=np.bool_)
        for _ in range(_MAX_MOVES * (self.brokers + 10)):
            missed = np.where(helpless, -np.inf, np.maximum(self.load - self.high, self.low - self.load))
            worst = int(np.argmax(missed))
            if missed[worst] <= 0 or np.count_nonzero(helpless) >= _MAX_FUTILE:
                return
            pair = self._help(worst, slack)
            if pair is None:
                helpless[worst] = True
            else:
                helpless[list(pair)] = False

    def _help(self, broker: int, slack: float) -> tuple[int, int] | None:
        """The brokers between which a publisher has moved."""
        off = self.load - self.quota
        above = bool(off[broker] > 0)
        for partner in np.argsort(off if above else -off, kind="stable")[:_MAX_PARTNERS].tolist():
            here, there = (broker, partner) if above else (partner, broker)
            if here != there and (mover := self._mover(here, there, slack)) is not None:
                self._put(mover, here, there)
                return here, there
        return None

    def _mover(self, here: int, there: int, slack: float) -> int | None:
        """The publisher whose move brings both closest to their quotas."""
        surplus, lack = float(self.load[here] - self.quota[here]), float(self.quota[there] - self.load[there])
        most = min(surplus + lack - ROUNDING, float(self.room[there] - self.load[there]))
        members = self.members[here]
        if len(members) > _MAX_MOVERS:  # others at every call
            self.members[here] = members[_MAX_MOVERS:] + members[:_MAX_MOVERS]
        movers = np.array(members[:_MAX_MOVERS], dtype=np.int64)
        movers = movers[self.rates[movers] <= most] if len(movers) else movers
        away = np.abs(self.rates[movers] - max(min(surplus, lack), 0.0))
        nearest = movers[np.argsort(away, kind="stable")].tolist()
        return next((mover for mover in nearest if self._may_move(mover, here, there, slack)), None)

    def _may_move(self, mover: int, here: int, there: int, slack: float) -> bool:
        """Whether the group of ``mover`` stays within ``slack`` largest rates of its proportion on both brokers."""
        if self.group[mover] == ALONE:
            return True
        group, rate, bound = int(self.group[mover]), float(self.rates[mover]), slack * self.largest + ROUNDING
        gone, come = self._excess(group, here) - rate, self._excess(group, there) + rate
        return abs(gone) <= bound and abs(come) <= bound

    def _excess(self, group: int, broker: int) -> float:
        """The load of a group minus its proportion."""
        return float(self.cells.get(group * self.brokers + broker, 0.0) - self.whole[group] * self.part[broker])

    # Groups

    def mend_groups(self, slack: float) -> None:
        """Move members of groups that crowd a broker to brokers with room that have least of the group."""
        tolerance = slack * self.largest + ROUNDING
        keys, loads = np.array([*self.cells], dtype=np.int64), np.array([*self.cells.values()])
        groups, brokers = np.divmod(keys, self.brokers)
        crowded = keys[loads - self.whole[groups] * self.part[brokers] > tolerance] if len(keys) else keys
        for group, here in zip(*(column.tolist() for column in np.divmod(crowded, self.brokers)), strict=True):
            members = [at for at in self.members[here] if self.group[at] == group]
            for publisher in sorted(members, key=lambda at: self.rates[at]):
                if self._excess(group, here) <= tolerance:
                    break
                self._to_least(publisher, group, here)

    def _to_least(self, publisher: int, group: int, here: int) -> None:
        fits = self.load + self.rates[publisher] <= self.room
        fits[here] = False
        if fits.any():
            held = [self.cells.get(group * self.brokers + at, 0.0) for at in range(self.brokers)]
            self._put(publisher, here, int(np.argmin(np.where(fits, held - self.whole[group] * self.part, np.inf))))

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


def _numbered(groups: Ints) -> Ints:
    """Groups of two and more numbered 0, 1, ...; all others ALONE."""
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    real = (groups != ALONE) & (sizes[group] > 1)
    result = np.full(len(groups), ALONE, dtype=np.int64)
    result[real] = np.unique(groups[real], return_inverse=True)[1]
    return result
