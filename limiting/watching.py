"""Subjects that operators look at by name: the watched, with what was asked of them lately; the banned; the
heaviest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from random import Random

from srtm.errors import BadInput, NotFound

SECONDS = 60
MOST_WATCHED = 1_000
MOST_BANNED = 10_000  # of the list: older bans hold, and are not listed
FOLLOWED = 1_000  # subjects of a namespace: each with more than one in so many of all checks is among them
SAMPLE = 16  # one check in so many is counted, for so many, as the core does

Key = tuple[str, str]  # namespace and subject
Second = tuple[int, int, int]  # checks that were allowed, refused, and tokens taken
Heavy = tuple[str, int, int]  # a subject, how often it was checked, and at most how many of these are too many
_NOTHING: Second = (0, 0, 0)


class Watched:
    """What was asked of some subjects in each of the last 60 seconds. Seconds are counted from anywhere."""

    def __init__(self) -> None:
        self._all: dict[Key, dict[int, Second]] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def watch(self, key: Key) -> None:
        """Watch a subject from now on. Raises BadInput for one too many."""
        if key not in self._all and len(self._all) >= MOST_WATCHED:
            raise BadInput("subject", key[1], f"must be one of at most {MOST_WATCHED}: unwatch others first")
        self._all.setdefault(key, {})

    def unwatch(self, key: Key) -> None:
        """Raises NotFound."""
        if self._all.pop(key, None) is None:
            raise NotFound("watched subject", f"{key[0]} {key[1]}")

    def note(self, key: Key, second: int, *, allowed: bool, cost: int) -> None:
        """A check, if its subject is watched."""
        seconds = self._all.get(key)
        if seconds is None:
            return
        passed, refused, taken = seconds.get(second, _NOTHING)
        seconds[second] = (passed + allowed, refused + (not allowed), taken + cost * allowed)
        for old in [each for each in seconds if not second - SECONDS < each <= second]:
            del seconds[old]

    def of(self, namespace: str, second: int) -> Iterator[tuple[str, list[Second]]]:
        """Each watched subject of a namespace, with its last 60 seconds, the oldest first."""
        for (within, subject), seconds in sorted(self._all.items()):
            if within == namespace:
                yield subject, [seconds.get(second - back, _NOTHING) for back in reversed(range(SECONDS))]


class Bans:
    """Which subjects were banned, and when (wall clock, s). Whether a ban still holds is for contracts to say."""

    def __init__(self) -> None:
        self._all: dict[Key, int] = {}

    def ban(self, key: Key, at_s: int) -> None:
        """The latest is the last one."""
        self._all.pop(key, None)
        self._all[key] = at_s
        if len(self._all) > MOST_BANNED:
            del self._all[next(iter(self._all))]

    def lift(self, key: Key) -> None:
        """It is no ban any more, if it was one."""
        self._all.pop(key, None)

    def of(self, namespace: str) -> list[tuple[str, int]]:
        """The subjects of a namespace that were banned, and when; the latest first."""
        return [(subject, at_s) for (within, subject), at_s in reversed(self._all.items()) if within == namespace]


class Heaviest:
    """The most checked subjects of each namespace, by a sample: the space-saving sketch (Metwally et al., 2005)."""

    def __init__(self) -> None:
        self._chance = Random(0)
        self._all: dict[str, dict[str, Heavy]] = {}

    def note(self, key: Key) -> None:
        """A check."""
        if self._chance.randrange(SAMPLE):
            return
        namespace, subject = key
        followed = self._all.setdefault(namespace, {})
        known = followed.get(subject)
        if known is None:
            error = 0
            if len(followed) >= FOLLOWED:
                _, error, _ = followed.pop(min(followed.values(), key=_checks)[0])
            known = subject, error, error
        followed[subject] = subject, known[1] + SAMPLE, known[2]

    def of(self, namespace: str, most: int) -> list[Heavy]:
        """The ``most`` heaviest of a namespace, the heaviest first."""
        return nlargest(most, self._all.get(namespace, {}).values(), key=_checks)


def heaviest_of_all(found: Iterable[Heavy], others: Iterable[Heavy], most: int) -> list[Heavy]:
    """The ``most`` heaviest of two lists, the heaviest first. Who is in both has the sum."""
    sums = {each[0]: each for each in found}
    for subject, checks, error in others:
        _, before, before_error = sums.get(subject, (subject, 0, 0))
        sums[subject] = subject, before + checks, before_error + error
    return nlargest(most, sums.values(), key=_checks)


def _checks(heavy: Heavy) -> int:
    return heavy[1]
