"""The default policy: the even split while messages wait; else whatever would have delayed least of late.

1. Each broker's rate is that of the last 5 s, or since the engine told of a change there. While messages wait on any
   broker it is that of the last second.
2. While messages wait on any broker, or more comes than its share lets go, the shares are those of ``even_split``: what
   waits gets what the others can spare. Bursts move only where that would have halved the delay.
3. Else the last ten seconds are replayed under the shares as they are, as they were before, of the even split and in
   proportion to the traffic. The best is proposed, if its worst broker would have delayed a tenth less than under the
   shares as they are. So a split is judged by what came after it, and taken back if that was worse.
4. A broker that was not heard for two seconds since it was first asked for has no traffic. Until then it is taken to
   have what was declared and is not seen elsewhere, and nothing changes unless messages wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from adaptor.observations import Bin, Change, Envelope, Member, Shares
from adaptor.policies.bounds import is_over, limits, shares_within
from adaptor.policies.even_split import Demand, even_split
from adaptor.policies.replay import BrokerTraffic
from srtm.units import from_micro

HEARING_S = 2.0  # brokers report about once a second: who was not heard for so long has nothing to say
_CLEARLY = 0.9  # of the delay under the shares as they are: less of an advantage is noise
_FAR_BETTER = 0.5  # likewise, for bursts while messages wait: to shrink one loses tokens, and to grow one mints none
_LEAST_MOVE = 0.01  # of r, of any share: every change of shares is told to all and stored
_NO_TIME_S = 1e-6


class Fitted:
    """One topic. Feed it each bin once (``observe``), then ask for shares."""

    def __init__(self) -> None:
        self._traffic: dict[str, BrokerTraffic] = {}
        self._shares: dict[str, tuple[int, int]] = {}  # {broker: in force, or on its way}
        self._before: dict[str, tuple[int, int]] = {}  # the shares before those

    def observe(self, name: str, bins: Sequence[Bin], dispersion: float = 1.0) -> None:
        """Of broker ``name``, in order. ``dispersion``: as declared, where nothing is known yet."""
        traffic = self._traffic.setdefault(name, BrokerTraffic(dispersion))
        for one in bins:
            traffic.add(one, self._shares.get(name))

    def note_change(self, name: str, change: Change) -> None:
        """Of broker ``name``, told before the bins in which it shows."""
        self._traffic.setdefault(name, BrokerTraffic()).begin_anew(change)

    def forget(self, name: str) -> None:
        """All that is known of broker ``name``."""
        self._traffic.pop(name, None)
        self._shares.pop(name, None)

    def rate(self, name: str) -> float:
        """Msg/s, as estimated."""
        return self._traffic[name].estimate.rate if name in self._traffic else 0.0

    def has_reported(self, name: str) -> bool:
        """Whether anything was told of that broker."""
        return name in self._traffic

    def propose(
        self, envelope: Envelope, members: Sequence[Member], *, floor: float, is_hearing: bool
    ) -> Shares | None:
        """New shares, or None while those there serve. ``is_hearing``: some brokers were not heard yet, and may be busy
        for all one knows. Raises BadInput as ``limits`` does."""
        self._note_shares(members)
        demands = self._demands(members, is_hearing=is_hearing)
        if not any(one.rate or one.waiting for one in demands):
            return None
        bounds = limits(envelope, members, floor)
        even, old = even_split(envelope, bounds, demands), [member.share for member in members]
        works = [self._traffic[one.name].largest_work if one.name in self._traffic else 0.0 for one in members]
        proportional = shares_within(envelope, bounds, [one.rate for one in demands], works)
        is_behind = any(one.rate > from_micro(rate) for one, (rate, _) in zip(demands, old, strict=True))
        if is_behind or any(one.waiting for one in demands) or is_over(members):
            rates = [rate for rate, _ in even]
            kept, *others = (
                shares_within(envelope, bounds, rates, _bursts(each)) for each in (old, even, proportional)
            )
            kept = self._best(members, kept, others, _FAR_BETTER) or kept
            least = 0 if is_over(members) else _LEAST_MOVE * envelope.rate_micro
            moves = [abs(now - was) for (now, _), (was, _) in zip(kept, old, strict=True)]
            return kept if max(moves) > least or _bursts(kept) != _bursts(old) else None
        if is_hearing:
            return None
        before = [self._before.get(member.name, member.share) for member in members]
        before = shares_within(envelope, bounds, [rate for rate, _ in before], [burst for _, burst in before])
        return self._best(members, old, [even, proportional, before], _CLEARLY)

    def _best(self, members: Sequence[Member], old: Shares, others: Sequence[Shares], clearly: float) -> Shares | None:
        """Of ``others``, what would have delayed less than ``clearly`` times ``old`` on the worst broker, and least."""
        tried = [old, *others]
        worst = [_NO_TIME_S] * len(tried)
        for at, member in enumerate(members):
            if member.name in self._traffic:
                delays_s = self._traffic[member.name].delays_s([shares[at] for shares in tried])
                worst = list(map(max, worst, delays_s))
        best = min(range(len(tried)), key=worst.__getitem__)
        return tried[best] if worst[best] < clearly * worst[0] else None

    def _note_shares(self, members: Sequence[Member]) -> None:
        shares = {member.name: member.share for member in members}
        if shares != self._shares:
            self._before, self._shares = self._shares, shares

    def _demands(self, members: Sequence[Member], *, is_hearing: bool) -> list[Demand]:
        unheard = {member.name: member.declared for member in members if member.name not in self._traffic}
        seen = sum(self.rate(member.name) for member in members)
        missing = max(0.0, sum(member.declared for member in members) - seen) if is_hearing else 0.0
        part = min(1.0, missing / max(sum(unheard.values()), 1e-9))
        somebody_waits = any(self._traffic[one.name].waiting for one in members if one.name in self._traffic)
        found = []
        for member in members:
            traffic = self._traffic.get(member.name)
            if traffic is None:
                found.append(Demand(part * member.declared, 0, member.dispersion))
            else:
                rate = traffic.estimate.last_rate if somebody_waits else traffic.estimate.rate
                found.append(Demand(rate, traffic.waiting, traffic.estimate.dispersion))
        return found


def _bursts(shares: Shares) -> list[int]:
    return [burst for _, burst in shares]
