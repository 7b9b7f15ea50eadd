"""Processor time that the broker's process did not get: by the quota of its control groups (``cpu.stat``), or by steal
on a virtual machine (``/proc/stat``). Pure: the files' text in, ``Throttling`` out.

Both look like a slow broker (nsq #1016); a capacity that is measured under them is worthless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from srtm.control import Throttling

_WINDOW_NS = 10_000_000_000  # shortest time over which fractions are taken
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Quota:
    """One control group: counters since it was made, and its limit."""

    cores: float | None = None  # None: no limit
    periods: int = 0
    throttled: int = 0  # of the periods
    throttled_ns: int = 0


@dataclass(frozen=True)
class Reading:
    """The counters at one instant. ``quotas`` is of the process's group and of those around it, innermost first."""

    quotas: tuple[Quota, ...] = ()
    steal_ticks: int = 0
    all_ticks: int = 0


def group_directories(memberships: str) -> list[tuple[PurePosixPath, bool]]:
    """Folders that may have CPU quotas, as ``/proc/self/cgroup`` says, innermost group first; True: version 2. They are
    relative to the mount point of control groups."""
    found: list[tuple[PurePosixPath, bool]] = []
    for line in memberships.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inside = PurePosixPath("/", path)
        groups = [group.relative_to("/") for group in (inside, *inside.parents)]
        if number == "0" and not controllers:
            found += [(PurePosixPath(mounted, group), True) for mounted in ("", "unified") for group in groups]
        elif "cpu" in controllers.split(","):
            found += [(PurePosixPath(mounted, group), False) for mounted in ("cpu", controllers) for group in groups]
    return list(dict.fromkeys(found))


def quota(stat: str, cores: float | None) -> Quota | None:
    """Parse a group's ``cpu.stat`` (either version). None: it counts no periods, so it never had a quota."""
    counters = _counters(stat)
    if "nr_periods" not in counters:
        return None
    throttled_ns = counters.get("throttled_time", counters.get("throttled_usec", 0) * 1000)
    return Quota(cores, counters["nr_periods"], counters.get("nr_throttled", 0), throttled_ns)


def cores_of_max(text: str) -> float | None:
    """Parse ``cpu.max``: ``QUOTA PERIOD``, the first of them "max" without a limit."""
    match text.split():
        case [allowed, period] if allowed.isdecimal() and period.isdecimal() and int(period):
            return int(allowed) / int(period)
    return None


def cores_of_v1(quota_us: str, period_us: str) -> float | None:
    """Parse ``cpu.cfs_quota_us`` (-1: no limit) and ``cpu.cfs_period_us``."""
    return cores_of_max(f"{quota_us} {period_us}")


def ticks(stat: str) -> tuple[int, int]:
    """Stolen ticks and all ticks, from the first line of ``/proc/stat``; zeros if it has none. Ticks of guests are
    in ``user`` already."""
    line = next((line.split()[1:9] for line in stat.splitlines() if line.startswith("cpu ")), [])
    numbers = [int(field) for field in line if field.isdecimal()]
    return (numbers[7], sum(numbers)) if len(numbers) == 8 else (0, 0)


def _counters(stat: str) -> Mapping[str, int]:
    pairs = (line.split() for line in stat.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


class ThrottlingWindow:
    """The readings of the last 10 s."""

    def __init__(self) -> None:
        self._first: Reading | None = None
        self._readings: deque[tuple[int, Reading]] = deque()

    def note(self, reading: Reading, now_ns: int) -> Throttling:
        """Add a reading. ``now_ns`` is of any clock that does not go back."""
        first = self._first = self._first or reading
        self._readings.append((now_ns, reading))
        while len(self._readings) > 2 and self._readings[1][0] <= now_ns - _WINDOW_NS:
            self._readings.popleft()
        before = self._readings[0][1]
        return Throttling(
            quota_cores=min((quota.cores for quota in reading.quotas if quota.cores is not None), default=None),
            throttled_share=_throttled_fraction(before.quotas, reading.quotas),
            throttled_s=sum(_grown(first.quotas, reading.quotas, "throttled_ns")) / _NS_PER_S,
            steal_share=_fraction(reading.steal_ticks - before.steal_ticks, reading.all_ticks - before.all_ticks),
        )


def _throttled_fraction(before: Sequence[Quota], now: Sequence[Quota]) -> float:
    """Of the group that was held back most often."""
    grown = zip(_grown(before, now, "throttled"), _grown(before, now, "periods"), strict=True)
    return max((_fraction(throttled, periods) for throttled, periods in grown), default=0.0)


def _grown(before: Sequence[Quota], now: Sequence[Quota], field: str) -> Iterable[int]:
    """Differences of a counter; none if the process was moved to other groups."""
    pairs = zip(before, now, strict=True) if len(before) == len(now) else ()
    return [max(0, getattr(new, field) - getattr(old, field)) for old, new in pairs]


def _fraction(part: int, whole: int) -> float:
    return min(1.0, max(0, part) / whole) if whole > 0 else 0.0
