"""The reference of all decisions: what each kind of policy means, said as plainly as can be. The core must agree.

A meter keeps what one subject has of one policy. ``used_up`` never grows while nothing is taken, so a wait is found by
bisection. Nothing here is fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from srtm.contracts.contract import Contract
from srtm.contracts.policy import Bucket, Concurrency, Log, Pace, Policy, Window
from srtm.contracts.verdict import PolicyVerdict, Verdict
from srtm.token_bucket.bucket import TOKEN, UNITS_PER_MICRO


class Now(NamedTuple):
    """The two clocks of a decision, ns."""

    mono: int
    wall: int

    def after(self, ns: int) -> Now:
        """The clocks ``ns`` later."""
        return Now(self.mono + ns, self.wall + ns)


def given_back(taken: list[tuple[int, int]], back: int) -> list[tuple[int, int]]:
    """Return what is left of ``taken``, (when, cost) in order, after ``back`` is given back of the newest."""
    left = list(taken)
    while back > 0 and left:
        when, cost = left.pop()
        if cost > back:
            left.append((when, cost - back))
        back -= cost
    return left


class Meter(ABC):
    """What one subject has used of one policy."""

    longest_ns = 2 * 366 * 86_400 * 10**9  # by then everything is there again

    @abstractmethod
    def allows(self, cost: int, now: Now) -> bool:
        """Whether ``cost`` may be taken."""

    @abstractmethod
    def take(self, cost: int, now: Now) -> None:
        """Take ``cost``, which was allowed."""

    @abstractmethod
    def correct(self, more: int, now: Now) -> None:
        """Take ``more`` after the fact, whether it is there or not; below 0: give back."""

    @abstractmethod
    def change(self, policy: Any, now: Now) -> None:
        """Go on under a changed policy of the same kind. It mints nothing."""

    @abstractmethod
    def remaining(self, now: Now) -> int:
        """Whole tokens that are left."""

    @abstractmethod
    def is_unused(self, now: Now) -> bool:
        """Whether everything is there."""

    def wait_ns(self, cost: int, now: Now) -> int | None:
        """How long until ``cost`` is allowed, ns. None: never."""
        return first_ns(lambda ns: self.allows(cost, now.after(ns)), self.longest_ns)

    def reset_ns(self, now: Now) -> int | None:
        """How long until everything is there, ns."""
        return first_ns(lambda ns: self.is_unused(now.after(ns)), self.longest_ns)


def first_ns(holds: Callable[[int], bool], most: int) -> int | None:
    """The least ns from 0 to ``most`` from which on ``holds``. None: it does not."""
    if not holds(most):
        return None
    low, high = -1, most  # does not hold at low, holds at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


class BucketMeter(Meter):
    """The token bucket. ``srtm.token_bucket.bucket`` has the law; this one has no queue."""

    def __init__(self, policy: Bucket | Pace, full: bool, now: Now) -> None:
        self._set(policy)
        self._fill, self._at = self._burst if full else 0, now.mono
        self.longest_ns = 10**24  # a rate of a millionth fills a burst of 1e9 in longer than a clock can say

    def _set(self, policy: Bucket | Pace) -> None:
        self._rate, self._burst = policy.rate_micro, policy.burst_micro * UNITS_PER_MICRO
        self._max_debt = policy.max_debt_micro * UNITS_PER_MICRO if isinstance(policy, Bucket) else None

    def change(self, policy: Bucket | Pace, now: Now) -> None:
        fill = self.fill(now)
        self._set(policy)
        self._put(min(fill, self._burst), now)

    def fill(self, now: Now) -> int:
        """Units at ``now``."""
        return min(self._burst, self._fill + self._rate * max(0, now.mono - self._at))

    def allows(self, cost: int, now: Now) -> bool:
        return self.fill(now) >= cost * TOKEN

    def take(self, cost: int, now: Now) -> None:
        self._put(self.fill(now) - cost * TOKEN, now)

    def correct(self, more: int, now: Now) -> None:
        """Take ``more`` after the fact; below 0: give back. At most to the largest debt, and to the burst."""
        fill = self.fill(now)
        wanted = fill - more * TOKEN
        if self._max_debt is not None:
            wanted = max(wanted, min(fill, -self._max_debt))
        self._put(min(wanted, self._burst), now)

    def remaining(self, now: Now) -> int:
        return max(0, self.fill(now)) // TOKEN

    def is_unused(self, now: Now) -> bool:
        return self.fill(now) >= self._burst

    def _put(self, fill: int, now: Now) -> None:
        self._fill, self._at = fill, max(self._at, now.mono)


class PaceMeter(BucketMeter):
    """The leaky bucket: it lets in what its time comes for within the longest wait."""

    def __init__(self, policy: Pace, full: bool, now: Now) -> None:
        super().__init__(policy, full, now)
        self._max_wait = policy.max_wait_ns

    def change(self, policy: Bucket | Pace, now: Now) -> None:
        super().change(policy, now)
        self._max_wait = policy.max_wait_ns if isinstance(policy, Pace) else 0

    def allows(self, cost: int, now: Now) -> bool:
        wait = self.wait_ns(cost, now)
        return wait is not None and wait <= self._max_wait

    def wait_ns(self, cost: int, now: Now) -> int | None:
        missing = cost * TOKEN - self.fill(now)
        return 0 if missing <= 0 else -(-missing // self._rate)


class WindowMeter(Meter):
    """Counts by slice. ``weighted``: the slice that leaves counts by the part that is still inside."""

    def __init__(self, policy: Window, taken: Iterable[tuple[int, int]] = ()) -> None:
        self._set(policy)
        self._taken = list(taken)  # (number of the slice, cost)

    def _set(self, policy: Window) -> None:
        self._policy = policy
        self._slice_ns = policy.window_ns // policy.slices
        self.longest_ns = policy.window_ns + 2 * self._slice_ns

    def change(self, policy: Window, now: Now) -> None:
        old, current = self._policy, self._slice(now)[0]
        inside = sum(cost for number, cost in self._taken if 0 <= current - number < old.slices + old.weighted)
        self._set(policy)
        if (policy.window_ns, policy.slices, policy.aligned) != (old.window_ns, old.slices, old.aligned):
            self._taken = []
            self.take(inside, now)

    def _slice(self, now: Now) -> tuple[int, int]:
        """The slice of now, and the ns of it that have passed.

        A wall clock that was set back by little goes on in the newest slice, until it is there again.
        """
        current, passed = divmod(now.wall if self._policy.aligned else now.mono, self._slice_ns)
        newest = self._newest(current)
        return (newest, 0) if newest > current else (current, passed)

    def _newest(self, current: int) -> int:
        """The newest slice with something in it; after a clock that was set back by more than a window: now."""
        newest = max((number for number, _ in self._taken), default=current)
        return current if newest - current > self._policy.slices + self._policy.weighted else newest

    def _used(self, now: Now) -> int:
        """Tokens in the window, times the length of a slice in ns: an exact product."""
        current, passed = self._slice(now)
        used = 0
        for number, cost in self._taken:
            back = current - number
            if 0 <= back < self._policy.slices:
                used += cost * self._slice_ns
            elif back == self._policy.slices and self._policy.weighted:
                used += cost * (self._slice_ns - passed)
        return used

    def allows(self, cost: int, now: Now) -> bool:
        return self._used(now) + cost * self._slice_ns <= self._policy.quota * self._slice_ns

    def take(self, cost: int, now: Now) -> None:
        if cost:
            current, _ = self._slice(now)
            oldest = current - self._policy.slices
            self._taken = [(number, taken) for number, taken in self._taken if oldest <= number <= current]
            before = self._taken.pop()[1] if self._taken and self._taken[-1][0] == current else 0
            self._taken.append((current, before + cost))

    def correct(self, more: int, now: Now) -> None:
        """Take ``more`` after the fact; below 0: give back, of the newest first."""
        if more > 0:
            self.take(more, now)
        else:
            self._taken = given_back(self._taken, -more)

    def remaining(self, now: Now) -> int:
        return max(0, self._policy.quota * self._slice_ns - self._used(now)) // self._slice_ns

    def is_unused(self, now: Now) -> bool:
        return self._used(now) == 0


class LogMeter(Meter):
    """A time for each request."""

    def __init__(self, policy: Log) -> None:
        self._taken: list[tuple[int, int]] = []  # (instant, cost)
        self._set(policy)

    def _set(self, policy: Log) -> None:
        self._policy = policy
        self.longest_ns = policy.window_ns

    def change(self, policy: Any, now: Now) -> None:  # noqa: ARG002
        self._set(policy)

    def _used(self, now: Now) -> int:
        return sum(cost for at, cost in self._taken if at > now.mono - self._policy.window_ns)

    def allows(self, cost: int, now: Now) -> bool:
        return self._used(now) + cost <= self._policy.quota

    def take(self, cost: int, now: Now) -> None:
        if cost:
            self._taken = [each for each in self._taken if each[0] > now.mono - self._policy.window_ns]
            self._taken.append((now.mono, cost))

    def correct(self, more: int, now: Now) -> None:
        """Take ``more`` after the fact; below 0: give back, of the newest first."""
        if more > 0:
            self.take(more, now)
        else:
            self._taken = given_back(self._taken, -more)

    def remaining(self, now: Now) -> int:
        return max(0, self._policy.quota - self._used(now))

    def is_unused(self, now: Now) -> bool:
        return self._used(now) == 0


def _as_log(policy: Concurrency) -> Log:
    return Log(name=policy.name, quota=policy.quota, window_ns=policy.expires_ns)


class ConcurrencyMeter(LogMeter):
    """Open requests, each until it is released or expires."""

    def __init__(self, policy: Concurrency) -> None:
        super().__init__(_as_log(policy))

    def change(self, policy: Concurrency, now: Now) -> None:  # noqa: ARG002
        self._set(_as_log(policy))

    def correct(self, more: int, now: Now) -> None:
        """An open request is one, whatever it came to."""

    def release(self, at: int, cost: int) -> None:
        """End the request of ``cost`` that began at ``at``. Raises ValueError if there is none."""
        self._taken.remove((at, cost))


def meter(policy: Policy, full: bool, now: Now) -> Meter:
    """The meter of a new subject. ``full``: its bucket has its burst."""
    match policy:
        case Bucket():
            return BucketMeter(policy, full, now)
        case Pace():
            return PaceMeter(policy, full, now)
        case Window():
            return WindowMeter(policy)
        case Log():
            return LogMeter(policy)
        case Concurrency():
            return ConcurrencyMeter(policy)
    raise TypeError(policy)


def decided(contract: Contract, meters: list[Meter], cost: int, now: Now, *, takes: bool = True) -> Verdict:
    """Ask all meters of a subject for ``cost``, and take it from all or from none; or only ask."""
    allowed = [meter.allows(cost, now) for meter in meters]
    waits = [meter.wait_ns(cost, now) for meter in meters]
    if all(allowed) and takes:
        for each in meters:
            each.take(cost, now)
    said = tuple(
        PolicyVerdict(policy.name, fits, each.remaining(now), wait, each.reset_ns(now))
        for policy, each, fits, wait in zip(contract.policies, meters, allowed, waits, strict=True)
    )
    asked = [policy.wait_ns for policy in said if all(allowed) or not policy.allowed]
    longest = None if None in asked else max(wait for wait in asked if wait is not None)
    passes = all(allowed) or contract.shadow
    return Verdict(passes, contract, said, longest, None, shadowed=passes and not all(allowed))
