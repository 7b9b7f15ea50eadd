"""The exact token bucket, and the checker of release logs. It is the reference for all other implementations.

The law (appendix A of the main paper): a bucket refills continuously at r up to b. Message i, which
arrives at a_i, is released at d_i = max(a_i, first instant with its tokens), first come first served, rounded up to the
next whole nanosecond. A token is 1e15 units, so a rate of m micro-messages/s adds exactly m units a nanosecond
(docs/reference.md, "Numbers"). No float, clock or numpy is used. The engine has the same
bucket in Rust; ``srtm.token_bucket.replay`` applies it to columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

TOKEN = 10**15  # units
UNITS_PER_MICRO = 10**9  # units in one micro-message of burst


class Bucket:
    """A bucket and its queue. Costs are in tokens, rates and bursts in micro-messages (``srtm.units``).

    A decision is a take, debit or set. An ``at_ns`` older than the last decision counts as that decision's instant. A
    take that cannot pass now (r = 0, or cost > b) waits without an instant, and so do all takes behind it.
    """

    def __init__(self, rate_micro: int, burst_micro: int, at_ns: int, full: bool = True) -> None:
        self._rate = rate_micro  # units a nanosecond
        self._burst = burst_micro * UNITS_PER_MICRO
        self._fill = self._burst if full else 0  # units at _at_ns, <= _burst; negative only after a debit
        self._at_ns = at_ns  # the last decision
        self._waiting: deque[int] = deque()  # costs in units; there are too few for the head yet
        self._waiting_units = 0
        self._stuck = False  # a waiting take costs more than the burst

    def take(self, cost: int, at_ns: int) -> int | None:
        """Take ``cost`` tokens at ``at_ns`` and return the release instant, ns. None: never with these parameters."""
        self._advance(at_ns)
        self._waiting.append(cost * TOKEN)
        self._waiting_units += cost * TOKEN
        self._stuck |= cost * TOKEN > self._burst
        self._advance(self._at_ns)
        if not self._waiting:
            return self._at_ns
        return None if self._stuck else self._instant_of(self._waiting_units)

    def debit(self, cost: int, at_ns: int) -> None:
        """Take ``cost`` tokens at once, even if there are too few. Waiting takes are delayed."""
        self._advance(at_ns)
        self._fill -= cost * TOKEN

    def set(self, rate_micro: int, burst_micro: int, at_ns: int) -> list[int | None]:
        """Set rate and burst, and return the new instants of the takes that wait at ``at_ns``, in order.

        A smaller burst limits the fill; a larger one adds no tokens.
        """
        self._advance(at_ns)
        self._rate = rate_micro
        self._burst = burst_micro * UNITS_PER_MICRO
        self._fill = min(self._fill, self._burst)
        self._stuck = any(units > self._burst for units in self._waiting)
        return self._instants()

    def fill_units(self, at_ns: int) -> int:
        """Return the tokens at ``at_ns``, in units, before waiting takes are paid. It changes nothing."""
        return self._at(at_ns)[0]

    def unfinished_work(self, at_ns: int) -> int:
        """Return U = b - tokens + waiting, in units: the unfinished work of the r-server of appendix A."""
        fill, paid = self._at(at_ns)
        return self._burst - fill + self._waiting_units - sum(islice(self._waiting, paid))

    def _at(self, at_ns: int) -> tuple[int, int]:
        """Return the fill at ``at_ns`` and the number of waiting takes paid by then."""
        fill = self._fill + self._rate * max(0, at_ns - self._at_ns)
        paid = 0
        for units in self._waiting:
            if units > min(fill, self._burst):
                break
            fill -= units
            paid += 1
        return min(fill, self._burst), paid

    def _advance(self, at_ns: int) -> None:
        self._fill, paid = self._at(at_ns)
        self._at_ns = max(self._at_ns, at_ns)
        for _ in range(paid):
            self._waiting_units -= self._waiting.popleft()

    def _instant_of(self, units: int) -> int | None:
        """Return the first instant with ``units`` in total, which must be more than the fill. None: never."""
        if self._rate == 0:
            return None
        return self._at_ns + -((self._fill - units) // self._rate)

    def _instants(self) -> list[int | None]:
        instants: list[int | None] = []
        ahead, stuck = 0, False
        for units in self._waiting:
            ahead += units
            stuck |= units > self._burst
            instants.append(None if stuck else self._instant_of(ahead))
        return instants


@dataclass(frozen=True)
class Violation:
    """The worst interval of a release log: ``released`` messages in [from_ns, to_ns]; the law allows ``allowed``."""

    from_ns: int
    to_ns: int
    released: int
    allowed: float

    def __str__(self) -> str:
        within = f"{self.to_ns - self.from_ns} ns from {self.from_ns}"
        return f"{self.released} messages within {within}, allowed {self.allowed:.9g}"


def conforms_due(due_ns: Iterable[int], rate_micro: int, burst_micro: int) -> Violation | None:
    """Check the law: in every closed interval of length dt at most b + r * dt messages are released. None: it holds.

    The instants may be in any order: the log of several brokers is the concatenation of their logs, checked against
    the whole (r, b). Instants are rounded up to whole nanoseconds, so each interval may be up to 1 ns longer.
    """
    return conforms_actual(due_ns, rate_micro, burst_micro, 0)


def conforms_actual(actual_ns: Iterable[int], rate_micro: int, burst_micro: int, lateness_ns: int) -> Violation | None:
    """Check the law for releases up to ``lateness_ns`` (J) after they were due: at most b + r * (dt + J) messages."""
    rounding = max(0, rate_micro - 1)  # units that accrue in less than 1 ns
    allowed_at_once = burst_micro * UNITS_PER_MICRO + rate_micro * lateness_ns + rounding
    worst, violation = allowed_at_once, None
    used = count = 0  # units and messages of the worst interval that ends here
    from_ns = last_ns = 0
    for at_ns in sorted(map(int, actual_ns)):
        used -= rate_micro * (at_ns - last_ns)
        if count == 0 or used <= 0:
            used, count, from_ns = 0, 0, at_ns
        used, count, last_ns = used + TOKEN, count + 1, at_ns
        if used > worst:
            worst = used
            allowed = allowed_at_once + rate_micro * (at_ns - from_ns)
            violation = Violation(from_ns, at_ns, count, allowed / TOKEN)
    return violation
