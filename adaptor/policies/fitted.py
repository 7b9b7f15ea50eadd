"""The default policy: rates that fit (``srtm.token_bucket.fitted_split``) and bursts to match (``burst_split``), from
short bins, changed as soon as traffic changes.

Rates are those since the last change on each broker (``change_detection``). While messages wait somewhere, most of the
slack goes there: a backlog drains at r - lambda under any split, provided that nobody leaves tokens unused; and a
broker with a backlog has no use for burst. New shares are proposed while something waits, as often as ``policy`` asks;
and where those that there are differ from what fits by more than matters, when something has changed, and when an
estimate rests on twice as many bins as they do; else only against the noise of the estimates.

Few messages are no evidence against the shares that there are: these stay until what is expected calls for others by
more than that noise, and as they were declared until the first message; and what was declared and does not come is
expected where it was declared. Of a broker that was not heard yet, what others have of their declarations is taken of
its own, and shares are only made of that where messages wait; some bins without a message, from before the traffic
began, are no word of what comes since. A proposal that came to nothing is made again; of one that was refused nothing
is kept.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from adaptor.observations import BIN_S, Bin, Change, Envelope, Member, Shares
from adaptor.policies.bounds import Limits, is_over, limits, shares_within
from adaptor.policies.burst_split import bursts
from adaptor.policies.change_detection import RateEstimate
from adaptor.policies.expectation import Expected, expected
from srtm.token_bucket.fitted_split import Traffic, shares_of
from srtm.units import from_micro

HEARING_S = 2.0  # brokers report about once a second: who was not heard for so long has nothing to say
IDLE_BINS = round(HEARING_S / BIN_S)  # before any message: so many are needed to say that none comes

_TO_BACKLOGS = 0.8  # of the slack
_LEAST_SLACK = 0.02  # of the rate, where the estimates say that there is none
_MANY = 4.0  # what waits is a backlog beyond this many times I lambda / (its slack), twice the mean of U: not by chance
_FEW = 1.0  # and is none any more below this
_WORTH = 0.1  # of its slack, by which a share has to be wrong, or of the room that it has
_WORTH_REFINING = 0.05  # the same, as more is known: a day of traffic that drifts is worse off with more
_SIGMAS = 4.0  # of what is expected, likewise
_SIGMAS_MOVED = 2.0  # the same where a change was detected, which is evidence that there is one, not of how much
_LEAST_BINS = 5  # to be known better by: of fewer all is noise
_LEAST_MESSAGES = 100  # the same, each of which counts for I of a burst: a rate is known to within a tenth then
_MOST_BINS = 100
_REPORT_BINS = 10  # a broker tells once a second at least, unless nothing changes


@dataclass(frozen=True)
class _Basis:
    """Of shares: as proposed last, or found to serve since."""

    made: dict[str, tuple[int, int]] = field(default_factory=dict)  # {broker: its share, as proposed last}
    instead_of: dict[str, tuple[int, int]] = field(default_factory=dict)
    bins: dict[str, int] = field(default_factory=dict)  # {broker: how many they rest on}
    was_backlogged: bool = False
    moved: frozenset[str] = frozenset()  # that were the reason


class Fitted:
    """One topic. Feed it each bin once (``observe``), then ask for shares."""

    def __init__(self) -> None:
        self._estimates: dict[str, RateEstimate] = {}
        self._idle_bins: dict[str, int] = {}  # {broker of which nothing else was told so far: how many}
        self._last: dict[str, list[int]] = {}  # {broker: messages waiting at the start of its last two bins}
        self._backlogged: set[str] = set()
        self._basis = _Basis()
        self._before = self._basis  # that of the last proposal
        self._moved: set[str] = set()  # brokers where a change was detected since shares were last looked at

    def observe(self, name: str, bins: Sequence[Bin], dispersion: float = 1.0) -> None:
        """Of broker ``name``, in order. ``dispersion``: as declared, where nothing is known yet."""
        estimate = self._begun(name, bins, dispersion)
        for one in bins:
            if estimate.is_mixed():
                continue
            if estimate.add(one.arrivals):
                self._moved.add(name)
            self._last[name] = [*self._last.get(name, [])[-1:], one.waiting]

    def settle(self, name: str, bins: Sequence[Bin], dispersion: float = 1.0) -> None:
        """As ``observe``, of bins in which the broker says that nothing has changed."""
        estimate = self._begun(name, bins, dispersion)
        if estimate.settle([one.arrivals for one in bins]):
            self._moved.add(name)
        self._last[name] = [*self._last.get(name, []), *(one.waiting for one in bins[-2:])][-2:]

    def note_change(self, name: str, change: Change) -> None:
        """Of broker ``name``, told before the bins in which it shows."""
        estimate = self._estimates.setdefault(name, RateEstimate())
        estimate.begin_anew(change.arrivals, change.span_s, change.mixed, change.known)
        self._idle_bins.pop(name, None)
        self._moved.add(name)
        self._last[name] = [change.waiting, change.waiting]

    def forget(self, name: str) -> None:
        """All that is known of broker ``name``."""
        self._estimates.pop(name, None)
        self._idle_bins.pop(name, None)
        self._last.pop(name, None)
        self._backlogged.discard(name)
        self._moved.discard(name)

    def total(self) -> Expected:
        """Msg/s on all brokers, as estimated."""
        seen = [Expected(one.rate, one.deviation) for one in self._estimates.values()]
        return Expected(sum(one.rate for one in seen), math.hypot(*(one.deviation for one in seen)))

    def former(self) -> dict[str, float]:
        """{broker: msg/s, as estimated before what its last bins showed} where nobody has told of a change since."""
        return {name: one.former for name, one in self._estimates.items()}

    def rate(self, name: str) -> float:
        """Msg/s, as estimated."""
        return self._estimates[name].rate if name in self._estimates else 0.0

    def note_refused(self) -> None:
        """The shares proposed last were not taken: all is as before."""
        self._moved |= self._basis.moved
        self._basis = self._before

    def has_reported(self, name: str) -> bool:
        """Whether anything was told of that broker that says what comes there."""
        return name in self._estimates and name not in self._idle_bins

    def _begun(self, name: str, bins: Sequence[Bin], dispersion: float) -> RateEstimate:
        """That of broker ``name``, to which ``bins`` come."""
        if not self.has_reported(name):
            idle = self._idle_bins.pop(name, 0) + len(bins)
            if idle < IDLE_BINS and not any(one.demand for one in bins):
                self._idle_bins[name] = idle
        return self._estimates.setdefault(name, RateEstimate(dispersion))

    def propose(
        self, envelope: Envelope, members: Sequence[Member], *, floor: float, awaited: Collection[str] = ()
    ) -> Shares | None:
        """New shares, or None while those there serve. ``awaited``: brokers that were not heard yet, and may be busy
        for all one knows. Raises BadInput as ``limits`` does."""
        seen = self._seen(members, awaited)
        wanted = expected(seen, [member.declared for member in members])
        rates = [one.rate for one in wanted]
        if sum(rates) == 0 or not (self._basis.made or any(one.rate for one in seen)):
            return None
        slack = max(from_micro(envelope.rate_micro) - sum(rates), _LEAST_SLACK * from_micro(envelope.rate_micro))
        backlogs = self._backlogs(members, rates, slack)
        if awaited and not any(backlogs):
            return None
        old = {member.name: member.share for member in members}
        basis = self._basis
        is_lost = bool(basis.made) and old == basis.instead_of and old != basis.made
        is_due = any(backlogs) or basis.was_backlogged or is_lost or is_over(members)
        moved, refined = frozenset(self._moved), self._refined(members) if old == basis.made else set()
        parts = self._parts(members, rates)
        fitting = _fitting_rates(rates, parts, slack)
        tolerated = self._tolerated(members, seen, wanted, slack, refined, parts, fitting)
        self._moved.clear()
        known = {member.name: self._known_bins(member.name) for member in members}
        looked_at = {name: bins for name, bins in known.items() if name in moved | refined}
        self._basis = replace(basis, bins={**basis.bins, **looked_at})
        if not is_due and _are_near(members, fitting, tolerated):
            return None
        shares = self._split(envelope, members, limits(envelope, members, floor), seen, rates, backlogs, slack)
        if not is_due and _are_near(members, [from_micro(rate) for rate, _ in shares], tolerated):
            return None
        made = dict(zip(old, shares, strict=True))
        # where messages waited one more split once they are gone
        self._before, self._basis = basis, _Basis(made, old, known, any(backlogs), moved)
        return None if made == old else shares

    def _seen(self, members: Sequence[Member], awaited: Collection[str]) -> list[Expected]:
        heard = [member for member in members if self.has_reported(member.name)]
        scale = sum(self.rate(member.name) for member in heard) / max(sum(one.declared for one in heard), 1e-6)
        return [self._seen_of(member, min(1.0, scale) if member.name in awaited else 0.0) for member in members]

    def _seen_of(self, member: Member, scale: float) -> Expected:
        """``scale``: how much of its declaration to take, while nothing was told."""
        if self.has_reported(member.name):
            estimate = self._estimates[member.name]
            return Expected(estimate.rate, estimate.deviation)
        rate = scale * member.declared
        return Expected(rate, max(rate, math.sqrt(member.dispersion) / HEARING_S))

    def _known_bins(self, name: str) -> int:
        return self._estimates[name].bins if name in self._estimates else 0

    def _refined(self, members: Sequence[Member]) -> set[str]:
        """Those of which messages enough are known to say so and whose estimates rest on twice as many bins as the
        shares do. None while another lacks no more for it than its next report may tell: a share goes with the rates of
        all, and brokers report in turn."""
        found = set()
        for member in members:
            if not self.has_reported(member.name) or self.rate(member.name) < _LEAST_MESSAGES * self._grain(member):
                continue
            basis = self._basis.bins.get(member.name, 0)
            if basis >= _MOST_BINS:
                continue
            missing = min(_MOST_BINS, max(_LEAST_BINS, 2 * basis)) - self._known_bins(member.name)
            if missing <= 0:
                found.add(member.name)
            elif missing <= _REPORT_BINS:
                return set()
        return found

    def _sigmas(self, name: str, refined: Collection[str]) -> float:
        """By how many deviations of its rate the expectation of a broker is to be off."""
        if name in refined:
            return 0.0
        return _SIGMAS_MOVED if name in self._moved else _SIGMAS

    def _parts(self, members: Sequence[Member], rates: Sequence[float]) -> list[float]:
        """What their slacks are in proportion to."""
        return [math.sqrt(self._dispersion(member) * rate) for member, rate in zip(members, rates, strict=True)]

    def _tolerated(
        self,
        members: Sequence[Member],
        seen: Sequence[Expected],
        wanted: Sequence[Expected],
        slack: float,
        refined: Collection[str],
        parts: Sequence[float],
        fitting: Sequence[float],
    ) -> list[float]:
        """Msg/s by which each share may differ from the one that fits: what matters neither beside its part of the
        slack nor beside the room that it has above what is seen; and noise, less where a change was detected, none
        where more is known (``refined``). A share goes with the rate and with the root of it: where there is much
        slack, a few messages more move much."""
        worth = [_WORTH_REFINING if member.name in refined else _WORTH for member in members]
        rooms = [from_micro(member.share[0]) - was.rate for member, was in zip(members, seen, strict=True)]
        noises = self._noises(members, wanted, slack, refined, parts)
        return [
            max(noise, part * (rate - one.rate), part * room)
            for part, room, one, rate, noise in zip(worth, rooms, wanted, fitting, noises, strict=True)
        ]

    def _noises(
        self,
        members: Sequence[Member],
        wanted: Sequence[Expected],
        slack: float,
        refined: Collection[str],
        parts: Sequence[float],
    ) -> list[float]:
        """What chance makes of each share, msg/s: by its own rate and part of the slack, or by what those of all others
        leave of that."""
        off = [
            self._chance(member, one, self._sigmas(member.name, refined))
            for member, one in zip(members, wanted, strict=True)
        ]
        higher = self._parts(members, [one.rate + most for one, most in zip(wanted, off, strict=True)])
        total = sum(parts)
        own = [most + slack * (high - part) / total for most, high, part in zip(off, higher, parts, strict=True)]
        taken = [
            most + slack * (high - part) / (total + high - part)
            for most, high, part in zip(off, higher, parts, strict=True)
        ]
        square = sum(one * one for one in taken)
        return [
            max(mine, part / total * math.sqrt(max(0.0, square - one * one)))
            for mine, part, one in zip(own, parts, taken, strict=True)
        ]

    def _chance(self, member: Member, known: Expected, sigmas: float) -> float:
        """Msg/s by which a rate may be off by chance. Of few messages nothing is normal: for n, the deviation is taken
        of n + (sigmas / 2)^2 (the half width of the score interval; Wilson, "Probable inference", 1927)."""
        return sigmas * math.hypot(known.deviation, sigmas / 2 * self._grain(member))

    def _grain(self, member: Member) -> float:
        """Msg/s that one message, or one burst of I, makes."""
        heard = self.has_reported(member.name)
        return self._estimates[member.name].grain if heard else member.dispersion / HEARING_S

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
        scaled = [one.rate for one in wanted]
        fitting = _fitting_rates(scaled, self._parts(members, scaled), slack)
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


def _fitting_rates(rates: Sequence[float], parts: Sequence[float], slack: float) -> list[float]:
    """Msg/s of each share in the split that fits, but for floors and capacities. ``parts``: what the slacks are in
    proportion to."""
    total = sum(parts)
    return [rate + slack * part / total for rate, part in zip(rates, parts, strict=True)]


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
