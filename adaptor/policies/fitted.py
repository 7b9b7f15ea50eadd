"""The default policy: rates of the even split, and the bursts that would have delayed least of late.

1. Each broker's rate of arrivals is that of the last 5 s, or since the engine told of a change there. While messages
   wait on any broker it is that of the last second.
2. Rates become those of ``even_split`` as soon as some broker falls clearly short of what it would have there.
3. The last ten seconds are replayed under these rates with the bursts as they are, those of the even split, and bursts
   in proportion to the unfinished work. The best are taken, if the worst broker would have delayed a tenth less than
   with the bursts as they are; while messages wait, half as much. So bursts are judged by what came after them. They
   stay while of a broker that gets messages nothing can be replayed.
4. A broker that was not heard for two seconds since it was first asked for has no traffic. Until then it is taken to
   have what was declared and is not seen elsewhere, and nothing changes unless messages wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from adaptor.observations import Bin, Change, Envelope, Member, Shares
from adaptor.policies.bounds import is_over, limits, shares_within
from adaptor.policies.even_split import Demand, even_split
from adaptor.policies.replay import BrokerTraffic
from srtm.units import MICRO, from_micro

HEARING_S = 2.0  # brokers report about once a second: who was not heard for so long has nothing to say
_SHORT = 0.4  # of what the even split leaves beside arrivals: who lacks less is left, for rates are never exact
_CLEARLY = 0.9  # of the delay with the bursts as they are: less of an advantage is noise
_FAR_BETTER = 0.5  # likewise while messages wait: a bucket that shrinks loses tokens, and one that grows mints none
_NO_TIME_S = 1e-6


class Fitted:
    """One topic. Feed it each bin once (``observe``), then ask for shares."""

    def __init__(self) -> None:
        self._traffic: dict[str, BrokerTraffic] = {}
        self._shares: dict[str, tuple[int, int]] = {}  # {broker: in force, or on its way}

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
        self._shares = {member.name: member.share for member in members}
        demands = self._demands(members, is_hearing=is_hearing)
        if not any(one.rate or one.waiting for one in demands):
            return None
        old = [member.share for member in members]
        is_behind = any(one.rate > from_micro(rate) for one, (rate, _) in zip(demands, old, strict=True))
        somebody_waits = is_behind or any(one.waiting for one in demands) or is_over(members)
        if is_hearing and not somebody_waits:
            return None
        bounds = limits(envelope, members, floor)
        even = even_split(envelope, bounds, demands)
        moves_rates = is_over(members) or _is_short(old, even, demands)
        rates = [rate for rate, _ in (even if moves_rates else old)]
        # Without new rates the shares stay as they are, which may be less than the envelope.
        splits = [shares_within(envelope, bounds, rates, _bursts(old)) if moves_rates else old]
        if all(traffic.can_be_replayed for traffic in self._traffic.values() if traffic.estimate.rate):
            works = [self._largest_work(member.name) for member in members]
            splits += [shares_within(envelope, bounds, rates, bursts) for bursts in (_bursts(even), works)]
        found = self._best(members, splits, _FAR_BETTER if somebody_waits else _CLEARLY)
        return None if found == old else found

    def _best(self, members: Sequence[Member], splits: Sequence[Shares], clearly: float) -> Shares:
        """Of ``splits``, what would have delayed least on the worst broker: the first one unless that is less than
        ``clearly`` times it."""
        worst = [_NO_TIME_S] * len(splits)
        for at, member in enumerate(members):
            if member.name in self._traffic:
                delays_s = self._traffic[member.name].delays_s([shares[at] for shares in splits])
                worst = list(map(max, worst, delays_s))
        best = min(range(len(splits)), key=worst.__getitem__)
        return splits[best] if worst[best] < clearly * worst[0] else splits[0]

    def _largest_work(self, name: str) -> float:
        return self._traffic[name].largest_work if name in self._traffic else 0.0

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


def _is_short(shares: Shares, even: Shares, demands: Sequence[Demand]) -> bool:
    """Whether the rate of any broker is clearly less than that of the even split."""
    return any(
        by_even - rate > _SHORT * max(0.0, by_even - one.rate * MICRO)
        for (rate, _), (by_even, _), one in zip(shares, even, demands, strict=True)
    )


def _bursts(shares: Shares) -> list[float]:
    return [burst for _, burst in shares]
