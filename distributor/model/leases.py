"""How the shares of one topic change so that they never add up to more than its envelope. Pure.

A share is a lease. Under the rule "keep" a broker has it until it hears otherwise, however long that takes; a timed one
ends by itself, if it is not renewed. In both cases what counts is not the share that was issued last but its *bound*:
the largest that may still be in force there, component by component (rate and burst), over all shares issued since the
last one that the broker acknowledged. The law (design sections 3 and 6):

    the sum of all bounds <= (r, b), in both components, at all times

A change is made in two steps. First everybody is issued the component-wise minimum of what it has and what it shall
have. As acknowledgements come the bounds fall; what is free then goes to those who shall grow, and only to brokers that
acknowledged all they were issued (so that a bucket that is created full is never topped up unseen). When an envelope
itself is lowered the old sum stays an upper bound until the acknowledgements are in, and nothing grows before that;
where only brokers that are silent hold it up, the component that was not lowered may grow at the others.

Tokens are never minted: the shares of the first grant that a topic name ever gets start full, all others empty. There
are two other ways for a bound to fall: proof of death (``freed``, ``reissued`` for a new incarnation), and silence for
longer than the longest lease that may be in force there (``lapsed``). A broker counts a lease from when it *sent* the
sync that was answered, the distributor its silence from when that sync *came*, so only durations are compared; the
margin is for clocks that do not run equally fast.

In a *pool* the brokers exchange what they hold (GDRL), and only the sum of the bounds says anything. It ends by a
recall: every broker is told to keep what it has and to exchange no more, and acknowledges with that amount, which is
its share and its bound from then on. So nobody is ever without a share, and what was in flight is free again.

Everything is in micro-units (1e-6 msg/s, 1e-6 message), whole numbers; every method returns a new value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from srtm.topics.lease import MARGIN_MS

MICRO = 1_000_000
_WORTH_ISSUING = 64  # a partial growth of less than 1/64 of what is wanted is not worth a version


@dataclass(frozen=True, slots=True)
class Amount:
    """A rate (micro-messages/s) and a burst (micro-messages)."""

    rate: int
    burst: int

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.rate + other.rate, self.burst + other.burst)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.rate - other.rate, self.burst - other.burst)

    def __le__(self, other: Amount) -> bool:
        """In both components: a partial order."""
        return self.rate <= other.rate and self.burst <= other.burst

    def least(self, other: Amount) -> Amount:
        return Amount(min(self.rate, other.rate), min(self.burst, other.burst))

    @property
    def usable(self) -> bool:
        """Whether a bucket of this size ever lets a message go."""
        return self.rate > 0 and self.burst >= MICRO


NOTHING = Amount(0, 0)


@dataclass(frozen=True, slots=True)
class Holding:
    """One broker's share. Invariant: share <= bound, and share == bound once ``applied == version``."""

    version: int
    share: Amount  # issued last
    bound: Amount
    applied: int = 0  # version acknowledged last
    full: bool = False  # a bucket that does not exist yet starts full
    lease_ms: int | None = None  # of the share issued last; None: "keep"
    longest_ms: int | None = None  # the longest that may be in force

    @property
    def settled(self) -> bool:
        return self.applied == self.version


@dataclass(frozen=True, slots=True)
class Leases:
    """All shares of one topic."""

    envelope: Amount
    granted: bool = False  # a grant was made under this topic name before
    target: Mapping[str, Amount] = field(default_factory=dict)  # sums to at most the envelope
    lease_ms: int | None = None  # of shares issued from now on; None: "keep"
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    pool: int = 0  # above 0: the brokers exchange what they hold, only the sum is known; the version that it began with
    recalling: bool = False  # of a pool: it is to end

    def outstanding(self) -> Amount:
        """What may be in force now, over all brokers, tokens in flight included."""
        return _total(holding.bound for holding in self.holdings.values())

    @property
    def is_whole(self) -> bool:
        """Whether all of the envelope is to be with somebody."""
        return _total(self.target.values()) == self.envelope

    def issues_as(self, other: Leases) -> bool:
        """Whether every broker is told what it is told under ``other``: the two differ by what was acknowledged, and by
        what is aimed at."""
        versions = {name: held.version for name, held in self.holdings.items()}
        return self.pool == other.pool and versions == {name: held.version for name, held in other.holdings.items()}

    def retargeted(self, envelope: Amount, target: Mapping[str, Amount]) -> Leases:
        """Aim at ``target``; nothing is issued before ``advanced``. A pool stays one as long as it has the same members
        and the same envelope: how its shares move is not the distributor's business."""
        ends = self.pool > 0 and (envelope != self.envelope or target.keys() != self.target.keys())
        return replace(self, envelope=envelope, target=dict(target), recalling=self.recalling or ends)

    def as_pool(self) -> Leases:
        """From now on the brokers may exchange what they hold (GDRL); the same value as long as not all shares are in
        force as targeted."""
        held = {broker: one.share for broker, one in self.holdings.items() if one.bound != NOTHING}
        whole = held == self.target and _total(held.values()) == self.envelope
        settled = all(one.settled and one.lease_ms is None for one in self.holdings.values())
        if self.pool or not whole or not settled:
            return self
        return replace(self, pool=max(one.version for one in self.holdings.values()))

    def recalled(self) -> Leases:
        """A pool is to end: as soon as all of its brokers are heard they are told so, and shares are dealt anew once
        each of them has said what it has. Until then it goes on."""
        return replace(self, recalling=True) if self.pool and not self.recalling else self

    def is_recalled(self, broker: str) -> bool:
        """Whether ``broker`` is to keep what it has, and to say how much that is."""
        return self.pool > 0 and broker in self.holdings and self.holdings[broker].version > self.pool

    def lasting(self, lease_ms: int | None) -> Leases:
        """Shares shall last that long from now on; those that are out are issued anew by ``advanced``."""
        return replace(self, lease_ms=lease_ms)

    def lapsed(self, silent_ms: Callable[[str], float]) -> list[str]:
        """Brokers whose share has ended unheard, or that shall have one and have not been heard for as long: what they
        had, or should have had, may go to others (``freed``)."""
        if self.lease_ms is None and all(held.longest_ms is None for held in self.holdings.values()):
            return []
        out = [broker for broker, held in self.holdings.items() if held.bound != NOTHING]
        return [broker for broker in dict.fromkeys([*out, *self.target]) if self._is_over(broker, silent_ms(broker))]

    def _is_over(self, broker: str, silent_ms: float) -> bool:
        """Whether nothing is in force any more at ``broker``, not heard for that long."""
        held = self.holdings.get(broker)
        longest_ms = held.longest_ms if held is not None and held.bound != NOTHING else self.lease_ms
        return longest_ms is not None and silent_ms > longest_ms + MARGIN_MS

    def acknowledged(self, broker: str, version: int, held: Amount = NOTHING) -> Leases:
        """``broker`` has the share of ``version`` in force; where that is a recall, ``held`` is what it has. Only the
        latest counts: an older one leaves the bound as it is."""
        holding = self.holdings.get(broker)
        if holding is None or version != holding.version or holding.settled:
            return self
        if self.pool:
            return self._with({broker: replace(holding, applied=version, share=held)})
        applied = replace(holding, applied=version, bound=holding.share, longest_ms=holding.lease_ms, full=False)
        return self._with({broker: applied})

    def reissued(self, broker: str, version: int) -> Leases:
        """A new incarnation of ``broker``: what the old one had is gone with it, and it gets its share back, empty."""
        if self.pool and self.holdings[broker].bound != NOTHING:  # what it had may be elsewhere by now
            held = replace(self.holdings[broker], version=version, share=NOTHING, applied=version)
            return replace(self._with({broker: held}), recalling=True)
        share = self._share(broker)
        applied = version if share == NOTHING else 0  # nobody waits for word of nothing
        again = Holding(version, share, share, applied, lease_ms=self.lease_ms, longest_ms=self.lease_ms)
        return self._with({broker: again})

    def doubted(self, broker: str, version: int) -> Leases:
        """``broker`` has a share that is not on record: the store is older than what was told. So nobody's bound is
        known: all are issued nothing, and nothing grows before each of them has acknowledged that."""
        unknown = Holding(version, NOTHING, self.envelope, lease_ms=self.lease_ms, longest_ms=None)
        holdings = dict.fromkeys([*self.target, *self.holdings, broker], unknown)
        return replace(self, granted=True, holdings=holdings, pool=0, recalling=False)

    def freed(self, broker: str) -> Leases:
        """``broker`` is proven dead and will not come back soon, or dropped its bucket, or its lease is over: what it
        had may go to others."""
        if broker not in self.holdings:
            return self
        left = {name: held for name, held in self.holdings.items() if name != broker}
        if not self.pool:
            return replace(self, holdings=left)
        heir = next((name for name, held in left.items() if held.bound != NOTHING), None)
        if heir is None:
            return replace(self, holdings=left, pool=0, recalling=False)
        # What it had may be with any of the other members; who holds nothing was never one, and is not asked.
        left[heir] = replace(left[heir], bound=left[heir].bound + self.holdings[broker].bound)
        return replace(self, holdings=left, recalling=True)

    def closed(self) -> Leases:
        """The topic is removed. What brokers may still hold stays on record, should a topic of this name come again;
        a pool is then called back before anything is dealt."""
        holdings = {broker: replace(held, full=False) for broker, held in self.holdings.items()}
        return replace(self, target={}, holdings=holdings, recalling=self.pool > 0)

    def advanced(self, live: Collection[str], version: int) -> Leases:
        """Issue all that may be issued now, under ``version`` (above every earlier one); the same value if there is
        nothing.

        Growth that does not fit waits for the brokers in ``live`` to acknowledge; what only silent ones hold back is
        not waited for, the others grow by what there is.
        """
        if self.pool:
            return self._ending(live, version) if self.recalling else self
        return self._shrunk(version)._grown(live, version)

    def _ending(self, live: Collection[str], version: int) -> Leases:
        members = {name: held for name, held in self.holdings.items() if held.bound != NOTHING}
        untold = {name: held for name, held in members.items() if not self.is_recalled(name)}
        if untold:
            told = {name: replace(held, version=version) for name, held in untold.items()}
            return self._with(told) if members.keys() <= set(live) else self
        if not all(held.settled for held in members.values()):
            return self
        ended = replace(self, pool=0, recalling=False)
        if not _total(held.share for held in members.values()) <= self.outstanding():
            # Somebody counts wrongly: who cannot be told.
            unknown = Holding(version, NOTHING, self.outstanding(), lease_ms=self.lease_ms, longest_ms=None)
            return ended._with(dict.fromkeys(members, unknown))
        known = {name: replace(held, bound=held.share) for name, held in members.items()}
        return ended._with(known).advanced(live, version)

    def _shrunk(self, version: int) -> Leases:
        issued = {}
        for broker, holding in self.holdings.items():
            least = holding.share.least(self.target.get(broker, NOTHING))
            least = least if least.usable else NOTHING
            if least != holding.share or (least != NOTHING and holding.lease_ms != self.lease_ms):
                longest_ms = _longer(holding.longest_ms, self.lease_ms)
                issued[broker] = replace(
                    holding, version=version, share=least, lease_ms=self.lease_ms, longest_ms=longest_ms
                )
        return self._with(issued)

    def _grown(self, live: Collection[str], version: int) -> Leases:
        wanted = self._wanted()
        free = self.envelope - self.outstanding()
        total = _total(wanted.values())
        if not total <= free:
            if any(broker in live and held.bound != held.share for broker, held in self.holdings.items()):
                return self
            wanted = {broker: _part(want, free, total) for broker, want in wanted.items()}
        issued = {}
        for broker, more in wanted.items():
            share = self._share(broker) + more
            if more != NOTHING and share.usable:
                applied = self.holdings[broker].applied if broker in self.holdings else 0
                issued[broker] = Holding(version, share, share, applied, not self.granted, self.lease_ms, self.lease_ms)
        return replace(self._with(issued), granted=True) if issued else self

    def _wanted(self) -> dict[str, Amount]:
        """What each broker that may grow still lacks. After ``_shrunk`` no share is above its target."""
        return {
            broker: target - self._share(broker)
            for broker, target in self.target.items()
            if target != self._share(broker) and (broker not in self.holdings or self.holdings[broker].settled)
        }

    def _share(self, broker: str) -> Amount:
        return self.holdings[broker].share if broker in self.holdings else NOTHING

    def _with(self, changed: Mapping[str, Holding]) -> Leases:
        return replace(self, holdings={**self.holdings, **changed}) if changed else self


def _longer(lease_ms: int | None, other_ms: int | None) -> int | None:
    return None if lease_ms is None or other_ms is None else max(lease_ms, other_ms)


def _total(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, start=NOTHING)


def _part(want: Amount, free: Amount, total: Amount) -> Amount:
    """``want`` cut in the proportion in which ``total`` exceeds ``free``, component by component; nothing if that is
    too little to matter."""
    part = Amount(_scaled(want.rate, free.rate, total.rate), _scaled(want.burst, free.burst, total.burst))
    worth = part.rate * _WORTH_ISSUING >= want.rate and part.burst * _WORTH_ISSUING >= want.burst
    return part if worth else NOTHING


def _scaled(want: int, free: int, total: int) -> int:
    # Who wants none has all of it, also where what a silent broker may still use has left less than none.
    return want if want == 0 or total <= free else want * max(free, 0) // total
