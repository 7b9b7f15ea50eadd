"""Brokers with exact buckets in virtual time: bins of 100 ms, slots in which changes are looked for, and what happens
some time after one was over.

Releases are exact to the nanosecond (``srtm.token_bucket.replay``); what waits when a share changes is re-timed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count

import numpy as np

from adaptor.observations import BIN_S, Bin, Envelope, Shares
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from srtm._native import ChangeDetector
from srtm.token_bucket.bucket import TOKEN, UNITS_PER_MICRO
from srtm.token_bucket.replay import NEVER_NS, Server, due_instants
from srtm.units import MICRO

BIN_NS = round(BIN_S * SECOND_NS)
STEP_NS = BIN_NS // 10
SLOT_NS = ChangeDetector.SLOT_NS
_LATER_NS = 10**6 * SECOND_NS  # time for what still waits at the end
ONE_BUCKET = "one bucket"


def one_bucket(arrivals_ns: Sequence[Ints], envelope: Envelope) -> tuple[Ints, Ints]:
    """Arrivals and due instants of all messages in it: what no split can beat (Proposition 1)."""
    arrival = np.sort(np.concatenate(arrivals_ns))
    return arrival, due_instants(arrival, envelope.rate_micro, envelope.burst_micro)


class SimulatedBroker:
    """An exact bucket fed in portions."""

    def __init__(self, arrival_ns: Ints, share: tuple[int, int]) -> None:
        self._coming = arrival_ns
        self._next = 0  # of these has not come
        self._first = 0  # of these has not gone
        self._now_ns = 0
        self.share = share
        self._fill = share[1] * UNITS_PER_MICRO
        self._due: list[Ints] = []
        self.work = 0.0  # largest U since it was last set to 0
        self.came = 0  # messages, likewise
        self.spilled = 0  # units of tokens that came to a full bucket, or were clamped off it, likewise

    @property
    def received(self) -> int:
        """Messages, so far."""
        return self._next

    @property
    def waiting(self) -> int:
        return self._next - self._first

    def run(self, until_ns: int) -> None:
        """Let pass what may until then, not included."""
        end = int(np.searchsorted(self._coming, until_ns))
        self.came += end - self._next
        self._next = end
        minted = self.share[0] * (until_ns - self._now_ns)
        # Those behind cannot pass before then, however few they were.
        some = self._coming[self._first : min(end, self._first + (self._fill + minted) // TOKEN + 2)]
        seen_ns = np.maximum(some, self._now_ns)
        idle_ns = int(seen_ns[0]) - self._now_ns if len(seen_ns) else 0
        due_ns = due_instants(seen_ns, *self.share, self._fill + self.share[0] * idle_ns)
        self._note_work(seen_ns)
        passed = int(np.searchsorted(due_ns, until_ns))
        self._due.append(due_ns[:passed])
        self._first += passed
        had, self._fill = self._fill, self._filled(seen_ns[:passed], until_ns)
        self.spilled += had + minted - passed * TOKEN - self._fill
        self.work = max(self.work, self.share[1] / MICRO - self._fill / TOKEN + self.waiting)
        self._now_ns = until_ns

    def log(self) -> tuple[Ints, Ints]:
        """Arrivals and due instants of all that has come; what still waits is due NEVER_NS."""
        never = np.full(self.waiting, NEVER_NS)
        return self._coming[: self._next], np.concatenate([*self._due, never])

    def set(self, share: tuple[int, int]) -> None:
        """A shrink clamps the fill, a growth mints nothing."""
        self.share = share
        had, self._fill = self._fill, min(self._fill, share[1] * UNITS_PER_MICRO)
        self.spilled += had - self._fill

    def _filled(self, paid_ns: Ints, until_ns: int) -> int:
        """Tokens left at ``until_ns`` after those who came at ``paid_ns`` were paid for."""
        rate, burst = self.share[0], self.share[1] * UNITS_PER_MICRO
        if rate == 0:
            return self._fill - TOKEN * len(paid_ns)
        server = Server(rate, self._now_ns, burst - self._fill)
        whole, rest = server.found(np.append(paid_ns, until_ns))
        return burst - (rate * int(whole[-1]) + int(rest[-1]))

    def _note_work(self, seen_ns: Ints) -> None:
        rate, burst = self.share[0], self.share[1] * UNITS_PER_MICRO
        if rate and len(seen_ns):
            whole, _ = Server(rate, self._now_ns, burst - self._fill).found(seen_ns)
            self.work = max(self.work, int(whole.max()) * rate / TOKEN + 1)


class Stepped(ABC):
    """Brokers in step. Whoever moves the shares says what follows when a bin is over."""

    def __init__(self, arrivals_ns: Sequence[Ints], start: Shares, step_ns: int = STEP_NS) -> None:
        """``step_ns``: how often buckets are looked at for ``missed``, besides when something happens."""
        self._step_ns = step_ns
        self.brokers = [SimulatedBroker(came, share) for came, share in zip(arrivals_ns, start, strict=True)]
        self.missed = 0  # units of tokens that spilled on one broker while messages waited on another
        self._waiting = [0] * len(start)  # at the start of this bin
        self._arrivals_ns = arrivals_ns
        self._came = [0] * len(start)  # messages, before this slot
        self._due: list[tuple[int, int, Callable[[], None]]] = []  # instant, order, what happens
        self._order = count()
        self._now_ns = 0

    def run(self, ends_ns: int) -> None:
        """On from where it is, in whole steps."""
        while (now_ns := self._next_ns()) <= ends_ns:
            self._now_ns = now_ns
            is_due = bool(self._due) and self._due[0][0] <= now_ns
            if is_due or now_ns % self._step_ns == 0:
                self._advance(now_ns)
            if now_ns % SLOT_NS == 0:
                self._close_slot(now_ns)
            if now_ns % BIN_NS == 0:
                self._bin_over(now_ns, self._close_bin())
            while self._due and self._due[0][0] <= now_ns:
                _, _, happen = heappop(self._due)
                happen()

    def _next_ns(self) -> int:
        """When something may happen next: a step, a slot or a bin ends, or something is due; in whole 10 ms."""
        ends = [(self._now_ns // length_ns + 1) * length_ns for length_ns in (self._step_ns, SLOT_NS, BIN_NS)]
        due_ns = -(-self._due[0][0] // STEP_NS) * STEP_NS if self._due else ends[0]
        return min(*ends, max(due_ns, self._now_ns + STEP_NS))

    def gone(self, ends_ns: int) -> tuple[Ints, Ints]:
        """Arrivals and due instants of all messages: what waits at ``ends_ns`` goes under the shares of then, or is due
        NEVER_NS."""
        for broker in self.brokers:
            broker.run(ends_ns + _LATER_NS)
        logs = [broker.log() for broker in self.brokers]
        return np.concatenate([arrival for arrival, _ in logs]), np.concatenate([due for _, due in logs])

    @abstractmethod
    def _bin_over(self, now_ns: int, bins: list[Bin]) -> None:
        """What each broker saw in the bin that ended at ``now_ns``."""

    @abstractmethod
    def _slot_over(self, now_ns: int, came: list[int]) -> None:
        """Messages that came to each broker in the slot that ended at ``now_ns``."""

    def _close_slot(self, now_ns: int) -> None:
        came = [int(np.searchsorted(arrivals, now_ns)) for arrivals in self._arrivals_ns]
        self._slot_over(now_ns, [now - before for now, before in zip(came, self._came, strict=True)])
        self._came = came

    def _at(self, now_ns: int, after_s: float, happen: Callable[[], None]) -> None:
        heappush(self._due, (now_ns + round(after_s * SECOND_NS), next(self._order), happen))

    def _advance(self, now_ns: int) -> None:
        for broker in self.brokers:
            broker.run(now_ns)
        if any(broker.waiting for broker in self.brokers):
            self.missed += sum(broker.spilled for broker in self.brokers)
        for broker in self.brokers:
            broker.spilled = 0

    def _close_bin(self) -> list[Bin]:
        bins = [
            Bin(broker.came, waiting, broker.work) for broker, waiting in zip(self.brokers, self._waiting, strict=True)
        ]
        for at, broker in enumerate(self.brokers):
            broker.came, broker.work, self._waiting[at] = 0, 0.0, broker.waiting
        return bins
