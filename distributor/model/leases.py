"""The shares of one topic, and how they change so that they never add up to more than its envelope. Pure.

A share is a lease. Under the rule "keep" a broker has it until it hears otherwise. A timed lease ends by itself unless
it is renewed. In both cases the *bound* of a broker counts: the largest share that may be in force there, by component
(rate and burst), of all shares issued since the last one that it acknowledged. The law:

    the sum of all bounds <= (r, b), in both components, at all times

A change has two steps. First every broker is issued the component-wise minimum of its share and its target. Each
acknowledgement lowers a bound, and frees tokens. These go to the brokers that are to grow, if they have acknowledged
all that they were issued: so a bucket that is created full is never topped up unseen. If the envelope itself shrinks,
the old sum stays an upper bound until the acknowledgements are in, and nothing grows before that. If only silent
brokers hold it up, the component that did not shrink may grow at the others.

Tokens are never minted: the shares of the first grant of a topic name start full, all others empty. Two more events
lower a bound. One is proof of death (``freed``; ``reissued`` for a new incarnation). The other is silence for longer
than the longest lease that may be in force (``expired``). A broker counts its lease from when it *sent* the sync that
was answered, the distributor its silence from when that sync *came*. So only durations are compared, and a margin
allows for clocks that do not run equally fast.

In a *pool* the brokers exchange their shares (GDRL), and only the sum of the bounds is known. A recall ends a pool:
every broker is told to keep what it has and to exchange no more. It acknowledges with that amount, which is its share
and its bound from then on. So no broker is ever without a share, and what was in transit is free again.

Amounts are whole micro-units (1e-6 msg/s, 1e-6 message). Every method returns a new value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from srtm.topics.lease import MARGIN_MS

MICRO = 1_000_000
_MIN_GROWTH_FRACTION = 64  # a partial growth of less than 1/64 of what is wanted is not worth a version


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

    def minimum(self, other: Amount) -> Amount:
        """The smaller of each component."""
        return Amount(min(self.rate, other.rate), min(self.burst, other.burst))

    @property
    def is_usable(self) -> bool:
        """Whether a bucket of this size ever releases a message."""
        return self.rate > 0 and self.burst >= MICRO


NOTHING = Amount(0, 0)


@dataclass(frozen=True, slots=True)
class Holding:
    """The share of one broker. Invariant: share <= bound, and share == bound once ``applied == version``."""

    version: int
    share: Amount  # issued last
    bound: Amount
    applied: int = 0  # version that the broker acknowledged last
    full: bool = False  # a bucket that does not exist yet starts full
    lease_ms: int | None = None  # of the share issued last; None: "keep"
    longest_ms: int | None = None  # the longest that may be in force

    @property
    def is_acknowledged(self) -> bool:
        """Whether the broker has the share that was issued last."""
        return self.applied == self.version


@dataclass(frozen=True, slots=True)
class Leases:
    """All shares of one topic. ``target`` is what they are to become."""

    envelope: Amount
    granted: bool = False  # a grant was made under this topic name before
    target: Mapping[str, Amount] = field(default_factory=dict)  # sums to at most the envelope
    lease_ms: int | None = None  # of shares issued from now on; None: "keep"
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    pool: int = 0  # above 0: the brokers exchange their shares; the version with which that began
    recalling: bool = False  # the pool is to end

    def outstanding(self) -> Amount:
        """The sum of all bounds: what may be in force now, tokens in transit included."""
        return _total(holding.bound for holding in self.holdings.values())

    @property
    def is_fully_assigned(self) -> bool:
        """Whether the target assigns the whole envelope."""
        return _total(self.target.values()) == self.envelope

    def issues_same_as(self, other: Leases) -> bool:
        """Whether every broker is told the same under both: they differ by acknowledgements and targets only."""
        versions = {name: held.version for name, held in self.holdings.items()}
        return self.pool == other.pool and versions == {name: held.version for name, held in other.holdings.items()}

    def with_target(self, envelope: Amount, target: Mapping[str, Amount]) -> Leases:
        """With another target; ``advanced`` issues shares for it.

        A pool stays a pool while its members and its envelope stay the same: they move its shares themselves.
        """
        ends = self.pool > 0 and (envelope != self.envelope or target.keys() != self.target.keys())
        return replace(self, envelope=envelope, target=dict(target), recalling=self.recalling or ends)

    def as_pool(self) -> Leases:
        """As a pool: from now on the brokers may exchange their shares. The same value while not all targets are in
        force."""
        shares = {broker: holding.share for broker, holding in self.holdings.items() if holding.bound != NOTHING}
        is_whole = shares == self.target and _total(shares.values()) == self.envelope
        acknowledged = all(holding.is_acknowledged and holding.lease_ms is None for holding in self.holdings.values())
        if self.pool or not is_whole or not acknowledged:
            return self
        return replace(self, pool=max(holding.version for holding in self.holdings.values()))

    def recalled(self) -> Leases:
        """With the end of the pool begun.

        The brokers are told once all of them are alive. Shares are assigned again once each has said what it has. Until
        then the pool goes on.
        """
        return replace(self, recalling=True) if self.pool and not self.recalling else self

    def is_recalled(self, broker: str) -> bool:
        """Whether ``broker`` is told to keep what it has, and to say how much that is."""
        return self.pool > 0 and broker in self.holdings and self.holdings[broker].version > self.pool

    def with_lease(self, lease_ms: int | None) -> Leases:
        """With another length of leases; ``advanced`` issues the present shares again."""
        return replace(self, lease_ms=lease_ms)

    def expired(self, silent_ms: Callable[[str], float]) -> list[str]:
        """Brokers whose lease is over, or that are to have a share and were silent for as long.

        What they had, or were to have, may go to others (``freed``).
        """
        if self.lease_ms is None and all(held.longest_ms is None for held in self.holdings.values()):
            return []
        holders = [broker for broker, held in self.holdings.items() if held.bound != NOTHING]
        return [
            broker for broker in dict.fromkeys([*holders, *self.target]) if self._is_over(broker, silent_ms(broker))
        ]

    def _is_over(self, broker: str, silent_ms: float) -> bool:
        """Whether nothing can be in force at ``broker`` after that silence."""
        held = self.holdings.get(broker)
        longest_ms = held.longest_ms if held is not None and held.bound != NOTHING else self.lease_ms
        return longest_ms is not None and silent_ms > longest_ms + MARGIN_MS

    def acknowledged(self, broker: str, version: int, held: Amount = NOTHING) -> Leases:
        """With the share of ``version`` in force at ``broker``.

        Only the latest version lowers the bound. ``held``: what the broker has, if that version is a recall.
        """
        holding = self.holdings.get(broker)
        if holding is None or version != holding.version or holding.is_acknowledged:
            return self
        if self.pool:
            return self._with({broker: replace(holding, applied=version, share=held)})
        applied = replace(holding, applied=version, bound=holding.share, longest_ms=holding.lease_ms, full=False)
        return self._with({broker: applied})

    def reissued(self, broker: str, version: int) -> Leases:
        """With the share of ``broker`` issued to its new incarnation, empty: what the old one had is gone."""
        if self.pool and self.holdings[broker].bound != NOTHING:  # its tokens may be at other brokers by now
            held = replace(self.holdings[broker], version=version, share=NOTHING, applied=version)
            return replace(self._with({broker: held}), recalling=True)
        share = self._share(broker)
        applied = version if share == NOTHING else 0  # of no share no acknowledgement comes
        again = Holding(version, share, share, applied, lease_ms=self.lease_ms, longest_ms=self.lease_ms)
        return self._with({broker: again})

    def doubted(self, version: int, broker: str | None = None) -> Leases:
        """With nothing for any broker: ``broker`` has a share that is not recorded, so the store is older than that.

        No bound is known then. Nothing grows before every broker has acknowledged that it has nothing.
        """
        brokers = [*self.target, *self.holdings, *([] if broker is None else [broker])]
        holdings = dict.fromkeys(brokers, self._unknown(version))
        return replace(self, granted=True, holdings=holdings, pool=0, recalling=False)

    def suspected(self, brokers: Collection[str], version: int) -> Leases:
        """With any bound for each of ``brokers``: the store is older than what the cluster has.

        They keep their shares. Nothing grows before each has acknowledged its own, or that it has none.
        """
        if self.pool:  # any broker may have anything of it
            return self.doubted(version)._with({name: self._unknown(version) for name in brokers})
        unknown = self._unknown(version)
        return self._with({name: replace(unknown, share=self._share(name), lease_ms=self.lease_ms) for name in brokers})

    def _unknown(self, version: int) -> Holding:
        """That of a broker which may have anything, and is to have nothing."""
        return Holding(version, NOTHING, self.envelope, lease_ms=self.lease_ms, longest_ms=None)

    def freed(self, broker: str) -> Leases:
        """Without ``broker``: it is dead, has dropped its bucket, or its lease is over. Others may get what it had."""
        if broker not in self.holdings:
            return self
        left = {name: held for name, held in self.holdings.items() if name != broker}
        if not self.pool:
            return replace(self, holdings=left)
        heir = next((name for name, held in left.items() if held.bound != NOTHING), None)
        if heir is None:
            return replace(self, holdings=left, pool=0, recalling=False)
        # Any other member may have its tokens by now. A broker that holds nothing never was a member.
        left[heir] = replace(left[heir], bound=left[heir].bound + self.holdings[broker].bound)
        return replace(self, holdings=left, recalling=True)

    def closed(self) -> Leases:
        """Those of a removed topic.

        What brokers may still hold stays recorded, in case a topic of this name comes again. A pool is recalled first.
        """
        holdings = {broker: replace(held, full=False) for broker, held in self.holdings.items()}
        return replace(self, target={}, holdings=holdings, recalling=self.pool > 0)

    def advanced(self, live: Collection[str], version: int) -> Leases:
        """With all shares issued that may be issued now, under ``version``; the same value if there are none.

        ``version`` is above every earlier one. Growth that does not fit waits for acknowledgements of the brokers in
        ``live``. It does not wait for silent brokers: then the others grow by what is free.
        """
        if self.pool:
            return self._end_recall(live, version) if self.recalling else self
        return self._shrunk(version)._grown(live, version)

    def _end_recall(self, live: Collection[str], version: int) -> Leases:
        members = {name: held for name, held in self.holdings.items() if held.bound != NOTHING}
        unsent = {name: held for name, held in members.items() if not self.is_recalled(name)}
        if unsent:
            recalled = {name: replace(held, version=version) for name, held in unsent.items()}
            return self._with(recalled) if members.keys() <= set(live) else self
        if not all(held.is_acknowledged for held in members.values()):
            return self
        ended = replace(self, pool=0, recalling=False)
        if not _total(held.share for held in members.values()) <= self.outstanding():
            # A broker counts wrongly, and it is not known which.
            unknown = Holding(version, NOTHING, self.outstanding(), lease_ms=self.lease_ms, longest_ms=None)
            return ended._with(dict.fromkeys(members, unknown))
        known = {name: replace(held, bound=held.share) for name, held in members.items()}
        return ended._with(known).advanced(live, version)

    def _shrunk(self, version: int) -> Leases:
        issued = {}
        for broker, holding in self.holdings.items():
            share = holding.share.minimum(self.target.get(broker, NOTHING))
            share = share if share.is_usable else NOTHING
            if share != holding.share or (share != NOTHING and holding.lease_ms != self.lease_ms):
                longest_ms = _longer(holding.longest_ms, self.lease_ms)
                issued[broker] = replace(
                    holding, version=version, share=share, lease_ms=self.lease_ms, longest_ms=longest_ms
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
            if more != NOTHING and share.is_usable:
                applied = self.holdings[broker].applied if broker in self.holdings else 0
                issued[broker] = Holding(version, share, share, applied, not self.granted, self.lease_ms, self.lease_ms)
        return replace(self._with(issued), granted=True) if issued else self

    def _wanted(self) -> dict[str, Amount]:
        """{broker: what it lacks} of the brokers that may grow. After ``_shrunk`` no share is above its target."""
        return {
            broker: target - self._share(broker)
            for broker, target in self.target.items()
            if target != self._share(broker) and (broker not in self.holdings or self.holdings[broker].is_acknowledged)
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
    """``want`` reduced by component in the proportion of ``free`` to ``total``; nothing if that is too little."""
    part = Amount(_scaled(want.rate, free.rate, total.rate), _scaled(want.burst, free.burst, total.burst))
    worth = part.rate * _MIN_GROWTH_FRACTION >= want.rate and part.burst * _MIN_GROWTH_FRACTION >= want.burst
    return part if worth else NOTHING


def _scaled(want: int, free: int, total: int) -> int:
    # To want nothing is always fulfilled, also if silent brokers may still use more than there is.
    return want if want == 0 or total <= free else want * max(free, 0) // total
