"""The default policy: the split that fits (``srtm.fitted_split``), from short bins, changed as soon as traffic changes.

Rates are those since the last change on each broker (``detection``). While messages wait somewhere, most of the slack
goes there: a backlog drains at r - lambda under any split, provided that nobody leaves tokens unused; and a broker with
a backlog has no use for burst. New shares are proposed when something has changed, when an estimate rests on twice as
many bins as the shares do, and with every bin while something waits; else never.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from adaptor.bounds import Limits, limits, shares_within
from adaptor.detection import RateEstimate
from adaptor.observed import Bin, Envelope, Member, Shares
from srtm.fitted_split import Traffic, fitted_bucket, shares_of
from srtm.splitting import MICRO, from_micro

_TO_BACKLOGS = 0.8  # of the slack
_LEAST_SLACK = 0.02  # of the rate, where the estimates say that there is none
_MANY = 4.0  # what waits is a backlog beyond this many times I lambda / (its slack), twice the mean of U: not by chance
_FEW = 1.0  # and is none any more below this
_WORTH = 0.25  # of its slack, by which a broker's rate has to drift
_SIGMAS = 4.0  # and of the estimate's deviation
_MOST_BINS = 100


class _Basis(NamedTuple):
    """What a share rests on."""

    rate: float  # msg/s, as estimated then
    bins: int
    margin: float  # msg/s that the share has beyond it


class Fitted:
    """One topic. Feed it each bin once (``observe``), then ask for shares."""

    def __init__(self) -> None:
        self._estimates: dict[str, RateEstimate] = {}
        self._last: dict[str, list[int]] = {}  # {broker: messages waiting at the start of its last two bins}
        self._backlogged: set[str] = set()
        self._made: dict[str, tuple[int, int]] = {}  # {broker: its share, as proposed last}
        self._basis: dict[str, _Basis] = {}  # of these
        self._moving = False  # a change was detected, or a backlog seen, since then

    def observe(self, name: str, bins: Sequence[Bin], dispersion: float = 1.0) -> None:
        """Of broker ``name``, in order. ``dispersion``: as declared, where nothing is known yet."""
        estimate = self._estimates.setdefault(name, RateEstimate(dispersion))
        for one in bins:
            self._moving |= estimate.add(one.arrivals)
            self._last[name] = [*self._last.get(name, [])[-1:], one.waiting]

    def rate(self, name: str) -> float:
        """Msg/s, as estimated."""
        return self._estimates[name].rate if name in self._estimates else 0.0

    def propose(self, envelope: Envelope, members: Sequence[Member], *, floor: float) -> Shares | None:
        """New shares, or None while those there are serve. Raises BadInput as ``limits`` does."""
        rates = [self.rate(member.name) for member in members]
        if sum(rates) == 0:
            return None
        slack = max(from_micro(envelope.rate_micro) - sum(rates), _LEAST_SLACK * from_micro(envelope.rate_micro))
        backlogs = self._backlogs(members, rates, slack)
        old = {member.name: member.share for member in members}
        if old == self._made and not (self._moving or any(backlogs) or self._is_better_known(members, rates)):
            return None
        shares = self._split(envelope, members, limits(envelope, members, floor), rates, backlogs, slack)
        self._moving = any(backlogs)  # one more split once they are gone
        self._made = dict(zip(old, shares, strict=True))
        self._basis = {
            member.name: _Basis(rate, self._bins(member.name), from_micro(share[0]) - rate)
            for member, rate, share in zip(members, rates, shares, strict=True)
        }
        return None if self._made == old else shares

    def _bins(self, name: str) -> int:
        return self._estimates[name].bins if name in self._estimates else 0

    def _is_better_known(self, members: Sequence[Member], rates: Sequence[float]) -> bool:
        """Whether an estimate rests on twice as many bins as the shares do, or has drifted by more than its noise."""
        for member, rate in zip(members, rates, strict=True):
            basis, bins = self._basis[member.name], self._bins(member.name)
            if basis.bins < _MOST_BINS and bins >= min(_MOST_BINS, 2 * max(1, basis.bins)):
                return True
            deviation = self._estimates[member.name].deviation if bins else 0.0
            if abs(rate - basis.rate) > max(_WORTH * basis.margin, _SIGMAS * deviation):
                return True
        return False

    def _backlogs(self, members: Sequence[Member], rates: Sequence[float], slack: float) -> list[float]:
        """Messages that wait on each, where they are more than chance explains and were there a bin ago as well."""
        found = []
        deviations = [math.sqrt(self._dispersion(member) * rate) for member, rate in zip(members, rates, strict=True)]
        for member, deviation in zip(members, deviations, strict=True):
            waiting = self._last.get(member.name, [0])
            chance = member.batch + deviation * sum(deviations) / slack  # I lambda / its own part of the slack
            if min(waiting) > _MANY * chance:
                self._backlogged.add(member.name)
            elif waiting[-1] < _FEW * chance:
                self._backlogged.discard(member.name)
            found.append(float(waiting[-1]) if member.name in self._backlogged else 0.0)
        return found

    def _dispersion(self, member: Member) -> float:
        return self._estimates[member.name].dispersion if member.name in self._estimates else member.dispersion

    def _split(
        self,
        envelope: Envelope,
        members: Sequence[Member],
        bounds: Limits,
        rates: Sequence[float],
        backlogs: Sequence[float],
        slack: float,
    ) -> Shares:
        room = from_micro(envelope.rate_micro) - slack
        scale = min(1.0, room / sum(rates))  # below 1 where more arrives than the topic may
        traffic = [
            Traffic(rate=max(rate * scale, 1e-6), dispersion=self._dispersion(member), batch=member.batch)
            for member, rate in zip(members, rates, strict=True)
        ]
        fitted = fitted_bucket(envelope.rate_micro, envelope.burst_micro, traffic, envelope.percentile)
        if any(backlogs):
            fitted = _draining(envelope, fitted, traffic, backlogs)
        wanted_rates, bursts = [float(rate) for rate, _ in fitted], [float(burst) for _, burst in fitted]
        return shares_within(envelope, bounds, wanted_rates, bursts)


def _draining(envelope: Envelope, fitted: Shares, traffic: Sequence[Traffic], backlogs: Sequence[float]) -> Shares:
    """Most of the slack to the backlogs, in proportion, so that they are gone together; the burst to the others."""
    margins = [max(0.0, rate / MICRO - one.rate) for (rate, _), one in zip(fitted, traffic, strict=True)]
    slack, waiting = sum(margins), sum(backlogs)
    rates, work = [], []
    for one, margin, backlog in zip(traffic, margins, backlogs, strict=True):
        left = (1 - _TO_BACKLOGS) * margin
        rates.append(one.rate + left + _TO_BACKLOGS * slack * backlog / waiting)
        work.append(0.0 if backlog else one.dispersion * one.rate / max(left, 1e-9))
    return shares_of(envelope.rate_micro, envelope.burst_micro, rates, work, [one.batch for one in traffic])
