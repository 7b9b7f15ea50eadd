"""The default policy: rates that fit (``srtm.fitted_split``) and bursts to match (``bursts``), from short bins, changed
as soon as traffic changes.

Rates are those since the last change on each broker (``detection``). While messages wait somewhere, most of the slack
goes there: a backlog drains at r - lambda under any split, provided that nobody leaves tokens unused; and a broker with
a backlog has no use for burst. New shares are proposed while something waits, as often as ``policy`` asks; and where
those that there are differ from what fits by more than matters, when something has changed, and when an estimate rests
on twice as many bins as they do; else only against the noise of the estimates.

Few messages are no evidence against the shares that there are: these stay until what is expected calls for others by
more than that noise, and as they were declared until the first message; and what was declared and does not come is
expected where it was declared. Of a broker that was not heard yet, what others have of their declarations is taken of
its own, and shares are only made of that where messages wait. A proposal that came to nothing is made again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from adaptor.bounds import Limits, limits, shares_within
from adaptor.bursts import bursts
from adaptor.detection import RateEstimate
from adaptor.expectation import Expected, expected
from adaptor.observed import Bin, Change, Envelope, Member, Shares
from srtm.fitted_split import Traffic, shares_of
from srtm.splitting import from_micro

HEARING_S = 2.0  # brokers report about once a second: who was not heard for so long has nothing to say

_TO_BACKLOGS = 0.8  # of the slack
_LEAST_SLACK = 0.02  # of the rate, where the estimates say that there is none
_MANY = 4.0  # what waits is a backlog beyond this many times I lambda / (its slack), twice the mean of U: not by chance
_FEW = 1.0  # and is none any more below this
_WORTH = 0.1  # of its slack, by which a share has to be wrong, or of the room that it has
_WORTH_REFINING = 0.05  # the same, as more is known: a day of traffic that drifts is worse off with more
_SIGMAS = 4.0  # of what is expected, likewise
_MOST_BINS = 100


class Fitted:
    """One topic. Feed it each bin once (``observe``), then ask for shares."""

    def __init__(self) -> None:
        self._estimates: dict[str, RateEstimate] = {}
        self._last: dict[str, list[int]] = {}  # {broker: messages waiting at the start of its last two bins}
        self._backlogged: set[str] = set()
        self._made: dict[str, tuple[int, int]] = {}  # {broker: its share, as proposed last}
        self._from: dict[str, tuple[int, int]] = {}  # instead of these
        self._bins: dict[str, int] = {}  # that they rest on, proposed or found to serve
        self._was_backlogged = False  # when they were made
        self._moving = False  # a change was detected since

    def observe(self, name: str, bins: Sequence[Bin], dispersion: float = 1.0) -> None:
        """Of broker ``name``, in order. ``dispersion``: as declared, where nothing is known yet."""
        estimate = self._estimates.setdefault(name, RateEstimate(dispersion))
        for one in bins:
            if estimate.is_mixed():
                continue
            self._moving |= estimate.add(one.arrivals)
            self._last[name] = [*self._last.get(name, [])[-1:], one.waiting]

    def note_change(self, name: str, change: Change) -> None:
        """Of broker ``name``, told before the bins in which it shows."""
        estimate = self._estimates.setdefault(name, RateEstimate())
        estimate.begin_anew(change.arrivals, change.span_s, change.mixed)
        self._moving = True
        self._last[name] = [change.waiting, change.waiting]

    def total(self) -> Expected:
        """Msg/s on all brokers, as estimated."""
        seen = [Expected(one.rate, one.deviation) for one in self._estimates.values()]
        return Expected(sum(one.rate for one in seen), math.hypot(*(one.deviation for one in seen)))

    def rate(self, name: str) -> float:
        """Msg/s, as estimated."""
        return self._estimates[name].rate if name in self._estimates else 0.0

    def has_heard(self, name: str) -> bool:
        """Whether anything was told of that broker."""
        return name in self._estimates

    def propose(
        self, envelope: Envelope, members: Sequence[Member], *, floor: float, awaited: Collection[str] = ()
    ) -> Shares | None:
        """New shares, or None while those there serve. ``awaited``: brokers that were not heard yet, and may be busy
        for all one knows. Raises BadInput as ``limits`` does."""
        seen = self._seen(members, awaited)
        wanted = expected(seen, [member.declared for member in members])
        rates = [one.rate for one in wanted]
        if sum(rates) == 0 or not (self._made or any(one.rate for one in seen)):
            return None
        slack = max(from_micro(envelope.rate_micro) - sum(rates), _LEAST_SLACK * from_micro(envelope.rate_micro))
        backlogs = self._backlogs(members, rates, slack)
        if awaited and not any(backlogs):
            return None
        old = {member.name: member.share for member in members}
        is_lost = bool(self._made) and old == self._from and old != self._made
        is_due = any(backlogs) or self._was_backlogged or is_lost
        is_refined = old == self._made and self._is_better_known(members)
        if is_refined:
            self._bins = {member.name: self._known_bins(member.name) for member in members}
        tolerated = self._tolerated(members, seen, wanted, slack, is_refined=is_refined)
        if not is_due and _are_near(members, self._fitting_rates(members, rates, slack), tolerated):
            return None
        shares = self._split(envelope, members, limits(envelope, members, floor), seen, rates, backlogs, slack)
        if not is_due and _are_near(members, [from_micro(rate) for rate, _ in shares], tolerated):
            return None
        self._moving = False
        self._was_backlogged = any(backlogs)  # one more split once they are gone
        self._from, self._made = old, dict(zip(old, shares, strict=True))
        self._bins = {member.name: self._known_bins(member.name) for member in members}
        return None if self._made == old else shares

    def _seen(self, members: Sequence[Member], awaited: Collection[str]) -> list[Expected]:
        heard = [member for member in members if self.has_heard(member.name)]
        scale = sum(self.rate(member.name) for member in heard) / max(sum(one.declared for one in heard), 1e-6)
        return [self._seen_of(member, min(1.0, scale) if member.name in awaited else 0.0) for member in members]

    def _seen_of(self, member: Member, scale: float) -> Expected:
        """``scale``: how much of its declaration to take, while nothing was told."""
        estimate = self._estimates.get(member.name)
        if estimate is not None:
            return Expected(estimate.rate, estimate.deviation)
        rate = scale * member.declared
        return Expected(rate, max(rate, math.sqrt(member.dispersion) / HEARING_S))

    def _known_bins(self, name: str) -> int:
        return self._estimates[name].bins if name in self._estimates else 0

    def _is_better_known(self, members: Sequence[Member]) -> bool:
        """Whether an estimate rests on twice as many bins as the shares do."""
        for member in members:
            basis = self._bins[member.name]
            if basis < _MOST_BINS and self._known_bins(member.name) >= min(_MOST_BINS, 2 * max(1, basis)):
                return True
        return False

    def _fitting_rates(
        self, members: Sequence[Member], rates: Sequence[float], slack: float, others: Sequence[float] | None = None
    ) -> list[float]:
        """Msg/s of each share in the split that fits, but for floors and capacities. ``others``: the rates that all but
        that one have in it, if not ``rates``."""
        parts = self._parts(members, rates)
        total = sum(parts if others is None else self._parts(members, others))
        return [rate + slack * part / total for rate, part in zip(rates, parts, strict=True)]

    def _parts(self, members: Sequence[Member], rates: Sequence[float]) -> list[float]:
        """What their slacks are in proportion to."""
        return [math.sqrt(self._dispersion(member) * rate) for member, rate in zip(members, rates, strict=True)]

    def _tolerated(
        self,
        members: Sequence[Member],
        seen: Sequence[Expected],
        wanted: Sequence[Expected],
        slack: float,
        *,
        is_refined: bool,
    ) -> list[float]:
        """Msg/s by which each share may differ from the one that fits: what matters neither beside its part of the
        slack nor beside the room that it has above what is seen; and noise, but where a change was detected or more is
        known (``is_refined``). A share goes with the rate and with the root of it: where there is much slack, a few
        messages more move much."""
        sigmas = 0.0 if self._moving or is_refined else _SIGMAS
        worth = _WORTH_REFINING if is_refined else _WORTH
        rates = [one.rate for one in wanted]
        fitting = self._fitting_rates(members, rates, slack)
        highest = self._fitting_rates(members, [one.rate + sigmas * one.deviation for one in wanted], slack, rates)
        return [
            max(
                most - rate,
                worth * (rate - one.rate),
                worth * (from_micro(member.share[0]) - was.rate),
            )
            for member, was, one, rate, most in zip(members, seen, wanted, fitting, highest, strict=True)
        ]

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
        seen: Sequence[Expected],
        rates: Sequence[float],
        backlogs: Sequence[float],
        slack: float,
    ) -> Shares:
        room = from_micro(envelope.rate_micro) - slack
        wanted = self._traffic(members, rates, room)
        fitting = self._fitting_rates(members, [one.rate for one in wanted], slack)
        if any(backlogs):
            drained = _draining(envelope, fitting, wanted, backlogs)
            return shares_within(envelope, bounds, [float(rate) for rate, _ in drained], [float(b) for _, b in drained])
        now = self._traffic(members, [one.rate for one in seen], room)
        return shares_within(
            envelope, bounds, fitting, bursts(envelope.burst_micro, fitting, now, wanted, envelope.percentile)
        )

    def _traffic(self, members: Sequence[Member], rates: Sequence[float], room: float) -> list[Traffic]:
        """Scaled down to ``room`` (msg/s) where more arrives than the topic may."""
        scale = min(1.0, room / max(sum(rates), 1e-6))
        return [
            Traffic(rate=max(rate * scale, 1e-6), dispersion=self._dispersion(member), batch=member.batch)
            for member, rate in zip(members, rates, strict=True)
        ]


def _are_near(members: Sequence[Member], rates: Sequence[float], tolerated: Sequence[float]) -> bool:
    """Whether the shares there are differ from ``rates`` by no more than is ``tolerated``, msg/s."""
    return all(
        abs(rate - from_micro(member.share[0])) <= most
        for member, rate, most in zip(members, rates, tolerated, strict=True)
    )


def _draining(
    envelope: Envelope, fitting: Sequence[float], traffic: Sequence[Traffic], backlogs: Sequence[float]
) -> Shares:
    """Most of the slack to the backlogs, in proportion, so that they are gone together; the burst to the others."""
    margins = [max(0.0, rate - one.rate) for rate, one in zip(fitting, traffic, strict=True)]
    slack, waiting = sum(margins), sum(backlogs)
    rates, work = [], []
    for one, margin, backlog in zip(traffic, margins, backlogs, strict=True):
        left = (1 - _TO_BACKLOGS) * margin
        rates.append(one.rate + left + _TO_BACKLOGS * slack * backlog / waiting)
        work.append(0.0 if backlog else one.dispersion * one.rate / max(left, 1e-9))
    return shares_of(envelope.rate_micro, envelope.burst_micro, rates, work, [one.batch for one in traffic])
