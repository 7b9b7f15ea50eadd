"""What differs between two transcripts of a session, and which of it is meant to. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

Lines = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Difference:
    """``theirs``, ``ours``: the lines under ``label``, with `` | `` between them; "" where there is none."""

    session: str
    label: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        return f"{self.session} / {self.label}:\n    nsqd: {self.theirs or '-'}\n    srtm: {self.ours or '-'}"


@dataclass(frozen=True)
class Place:
    """Where a kept difference shows, and how: shell patterns."""

    session: str
    label: str
    theirs: str
    ours: str

    def matches(self, found: Difference) -> bool:
        parts = ("session", "label", "theirs", "ours")
        return all(fnmatchcase(getattr(found, part), _literal_brackets(getattr(self, part))) for part in parts)


def _literal_brackets(pattern: str) -> str:
    return pattern.replace("[", "[[]")


@dataclass(frozen=True)
class Kept:
    """A difference that is meant. ``name``: as docs/protocol.md begins its reason in bold."""

    name: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Verdict:
    """``stale``: places where nothing differs any more."""

    unexplained: tuple[Difference, ...]
    kept: Mapping[str, int]
    stale: tuple[Place, ...]

    @property
    def passes(self) -> bool:
        return not self.unexplained and not self.stale


def differences(session: str, theirs: Lines, ours: Lines) -> list[Difference]:
    labels = dict.fromkeys([*theirs, *ours])
    pairs = ((label, " | ".join(theirs.get(label, ())), " | ".join(ours.get(label, ()))) for label in labels)
    return [Difference(session, label, one, other) for label, one, other in pairs if one != other]


def judge(
    found: Iterable[Difference], kept: Sequence[Kept], played: Collection[str], sessions: Sequence[str]
) -> Verdict:
    """``played`` of all ``sessions``: a place in others is not missed."""
    unexplained: list[Difference] = []
    counts = dict.fromkeys((one.name for one in kept), 0)
    seen: set[Place] = set()
    for difference in found:
        matching = [(one, place) for one in kept for place in one.places if place.matches(difference)]
        if not matching:
            unexplained.append(difference)
            continue
        counts[matching[0][0].name] += 1
        seen.update(place for _, place in matching)
    places = (place for one in kept for place in one.places)
    missed = (place for place in places if place not in seen)
    stale = [p for p in missed if all(name in played for name in sessions if fnmatchcase(name, p.session))]
    return Verdict(tuple(unexplained), counts, tuple(stale))
