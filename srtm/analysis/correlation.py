"""Finds correlation groups, publishers that fire together, in recorded arrivals and compares them with the topic. Pure.

Messages of a publisher within one window form a *firing* (a batch). Two publishers co-fire if they fire within a window
w of one another. If independent publishers fire n_i and n_j times in T, their co-firings are Poisson with a mean of
about 2 w n_i n_j / T. A pair is *linked* if it co-fires in at least half of the firings of the slower publisher, and so
often that chance would link one pair in a thousand traces. A group is a publisher with all publishers linked to it.
Its members need not be linked to each other, because slow members of a group seldom co-fire.

Periodic publishers with one period and nearly one phase do co-fire. A smaller window separates them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import pdtrc

from srtm.analysis.arrivals import Arrivals
from srtm.errors import BadInput
from srtm.topics.publishers import Floats, Ints

WINDOW_NS = 1_000_000
TOGETHER = 0.5  # smallest fraction of the slower publisher's firings
_FALSE_ALARMS = 1e-3  # expected number, in a trace, of pairs or groups that chance alone links
_MAX_PAIRS = 20_000_000  # co-firings counted; of a longer or denser trace the beginning is used

Verdict = Literal["together", "partly", "apart", "unknown"]


@dataclass(frozen=True, kw_only=True)
class DeclaredGroup:
    """A group that the topic declares.

    ``together``: observed co-firings of pairs of members, as a fraction of the firings of the slower member.
    ``chance``: the same, expected of independent members.
    """

    name: str
    members: int
    seen: int  # members that fired in the trace
    together: float
    chance: float
    verdict: Verdict  # unknown: too few firings to decide


@dataclass(frozen=True, kw_only=True)
class ObservedGroup:
    """Publishers that fire together. ``declared``: {declared group: number of these publishers in it}; "": no group."""

    members: tuple[str, ...]
    declared: dict[str, int]

    @property
    def is_declared(self) -> bool:
        """Whether one declared group contains all of them."""
        return len(self.declared) == 1 and "" not in self.declared


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result: a topic's declared and observed groups."""

    seconds: float  # length of the trace that was used
    firings: int
    publishers: int  # number of publishers that fired
    window_ns: int
    declared: list[DeclaredGroup]
    observed: list[ObservedGroup]

    @property
    def warnings(self) -> list[str]:
        """Lines for people about groups that do not match."""
        apart = [
            f"declared group {group.name!r} does not fire together"
            for group in self.declared
            if group.verdict == "apart"
        ]
        partly = [
            f"declared group {group.name!r} fires together in {100 * group.together:.0f} % of the firings only"
            for group in self.declared
            if group.verdict == "partly"
        ]
        fresh = [
            f"{len(group.members)} publishers fire together and are not declared so: {_some(group.members)}"
            for group in self.observed
            if not group.is_declared
        ]
        return apart + partly + fresh


@dataclass(frozen=True)
class _Pairs:
    """Pairs of publishers that co-fired, in columns. ``times``: number of co-firings."""

    first: Ints
    second: Ints
    times: Ints


def _how_many(firings: int, span_ns: int) -> str:
    if firings < 2:
        return "a single firing" if firings else "no message"
    return f"{firings} firings within {span_ns / 1e6:g} ms"


def find_groups(arrivals: Arrivals, declared: Mapping[str, str], window_ns: int = WINDOW_NS) -> Found:
    """Find groups in ``arrivals`` and judge the declared ones.

    ``declared``: {publisher: group}; "": no group, as for publishers that are missing. Raises BadInput for a window
    below 1 ns, or a trace whose firings all lie within one window.
    """
    if window_ns < 1:
        raise BadInput("window", window_ns, "must be at least 1 ns")
    publisher, at_ns = _firings(arrivals, window_ns)
    span_ns = int(at_ns[-1] - at_ns[0]) if len(at_ns) else 0
    if span_ns <= window_ns:
        rule = f"must have firings more than the window, {window_ns / 1e6:g} ms, apart: record for longer"
        raise BadInput("trace", _how_many(len(at_ns), span_ns), rule)
    fired = np.bincount(publisher, minlength=len(arrivals.names))
    pairs = _count_pairs(publisher, at_ns, window_ns, len(arrivals.names))
    density = 2 * window_ns / span_ns
    observed = _clusters(_linked(pairs, fired, density), arrivals.names, declared)
    return Found(
        seconds=span_ns / 1e9,
        firings=len(at_ns),
        publishers=int(np.count_nonzero(fired)),
        window_ns=window_ns,
        declared=_judged(pairs, fired, density, arrivals.names, declared),
        observed=observed,
    )


def unseen(declared: Mapping[str, str], window_ns: int) -> Found:
    """Return the result for a topic without a recording: its declared groups, all with the verdict unknown."""
    sizes = Counter(group for group in declared.values() if group)
    return Found(
        seconds=0.0,
        firings=0,
        publishers=0,
        window_ns=window_ns,
        declared=[
            DeclaredGroup(name=group, members=members, seen=0, together=0.0, chance=0.0, verdict="unknown")
            for group, members in sizes.items()
        ],
        observed=[],
    )


def regrouped(found: Found, declared: Mapping[str, str]) -> dict[str, str]:
    """Return {publisher: new group} for the publishers whose declared group differs from the observed one.

    Members of an observed group get one name. Members of a declared group that does not fire together get no group.
    Publishers that are not in ``declared`` are left out.
    """
    apart = {group.name for group in found.declared if group.verdict == "apart"}
    wanted = {name: "" for name, group in declared.items() if group in apart}
    return renamed(found.observed, declared, wanted, fresh="observed", stale=apart)


def renamed(
    observed: Sequence[ObservedGroup],
    declared: Mapping[str, str],
    others: Mapping[str, str],
    *,
    fresh: str,
    stale: Set[str] = frozenset(),
) -> dict[str, str]:
    """Return {publisher: new group} for the members of ``observed`` and ``others`` whose declared group differs.

    An observed group gets the name that most of its members have, unless it is ``stale`` or taken; else a
    new one, ``fresh`` and a number.
    """
    wanted = dict(others)
    taken = {*declared.values(), ""}
    used: set[str] = set()
    for group in observed:
        own = [name for name, _ in Counter(group.declared).most_common() if name and name not in stale | used]
        label = own[0] if own else _fresh(fresh, taken)
        taken.add(label)
        used.add(label)
        wanted.update({member: label for member in group.members if member in declared})
    return {name: group for name, group in wanted.items() if declared[name] != group}


def _firings(arrivals: Arrivals, window_ns: int) -> tuple[Ints, Ints]:
    """Return (publisher, instant) of the firings in order of time, as many as ``_MAX_PAIRS`` allows."""
    order = np.lexsort((arrivals.arrival_ns, arrivals.publisher))
    publisher, at_ns = arrivals.publisher[order], arrivals.arrival_ns[order]
    begins = np.ones(len(at_ns), dtype=np.bool_)
    begins[1:] = (publisher[1:] != publisher[:-1]) | (np.diff(at_ns) > window_ns)
    publisher, at_ns = publisher[begins], at_ns[begins]
    order = np.argsort(at_ns, kind="stable")
    publisher, at_ns = publisher[order], at_ns[order]
    after = np.searchsorted(at_ns, at_ns + window_ns, side="right") - np.arange(len(at_ns)) - 1
    enough = int(np.searchsorted(np.cumsum(after), _MAX_PAIRS, side="right"))
    return publisher[:enough], at_ns[:enough]


def _count_pairs(publisher: Ints, at_ns: Ints, window_ns: int, names: int) -> _Pairs:
    after = np.searchsorted(at_ns, at_ns + window_ns, side="right") - np.arange(len(at_ns)) - 1
    here = np.repeat(np.arange(len(at_ns)), after)
    there = here + 1 + np.arange(len(here)) - np.repeat(np.cumsum(after) - after, after)
    one, other = publisher[here], publisher[there]
    key = np.minimum(one, other) * names + np.maximum(one, other)
    pairs, times = np.unique(key[one != other], return_counts=True)
    first, second = np.divmod(pairs, max(names, 1))
    return _Pairs(first, second, times.astype(np.int64))


def _linked(pairs: _Pairs, fired: Ints, density: float) -> _Pairs:
    candidates = max(1, int(np.count_nonzero(fired)))
    allowed = _FALSE_ALARMS / (candidates * candidates / 2)
    n, m = fired[pairs.first], fired[pairs.second]
    linked = _chance(pairs.times, density * n * m) <= allowed
    linked &= pairs.times >= TOGETHER * np.minimum(n, m)
    return _Pairs(pairs.first[linked], pairs.second[linked], pairs.times[linked])


def _chance(times: npt.ArrayLike, expected: npt.ArrayLike) -> Floats:
    """Return P(Poisson(expected) >= times)."""
    result: Floats = np.where(np.asarray(times) <= 0, 1.0, pdtrc(np.maximum(np.asarray(times) - 1, 0), expected))
    return result


def _clusters(links: _Pairs, names: Sequence[str], declared: Mapping[str, str]) -> list[ObservedGroup]:
    """Form groups: each publisher, those with most links first, with all linked publishers that have no group yet."""
    ends = np.concatenate([links.first, links.second])
    others = np.concatenate([links.second, links.first])
    degree = np.bincount(ends, minlength=len(names))
    order = np.argsort(ends, kind="stable")
    starts = np.concatenate([[0], np.cumsum(degree)])
    free = np.ones(len(names), dtype=np.bool_)
    found = []
    for centre in np.argsort(-degree, kind="stable")[: np.count_nonzero(degree)].tolist():
        near = others[order[starts[centre] : starts[centre + 1]]]
        members = np.sort(np.append(near[free[near]], centre))
        if free[centre] and len(members) > 1:
            free[members] = False
            who = tuple(names[member] for member in members.tolist())
            found.append(ObservedGroup(members=who, declared=dict(Counter(declared.get(name, "") for name in who))))
    return found


def _judged(
    pairs: _Pairs, fired: Ints, density: float, names: Sequence[str], declared: Mapping[str, str]
) -> list[DeclaredGroup]:
    """Judge every declared group of two or more publishers."""
    sizes = Counter(group for group in declared.values() if group)
    groups = [group for group, size in sizes.items() if size > 1]
    number = {group: at for at, group in enumerate(groups)}
    of = np.array([number.get(declared.get(name, ""), -1) for name in names], dtype=np.int64)
    inside = (of[pairs.first] == of[pairs.second]) & (of[pairs.first] >= 0)
    times = np.bincount(of[pairs.first[inside]], weights=pairs.times[inside], minlength=len(groups))
    found = []
    for at, group in enumerate(groups):
        counts = np.sort(fired[of == at])[::-1].astype(np.float64)
        most = float(counts @ np.arange(len(counts)))  # the sum of the smaller one's firings over all pairs
        expected = density * float(counts.sum() ** 2 - counts @ counts) / 2
        allowed = _FALSE_ALARMS / len(groups)
        found.append(
            DeclaredGroup(
                name=group,
                members=sizes[group],
                seen=int(np.count_nonzero(counts)),
                together=float(times[at]) / most if most else 0.0,
                chance=expected / most if most else 0.0,
                verdict=_verdict(float(times[at]), expected, most, allowed),
            )
        )
    return found


def _verdict(times: float, expected: float, most: float, allowed: float) -> Verdict:
    if _chance(times, expected) <= allowed:
        return "together" if times >= TOGETHER * most else "partly"
    return "apart" if _chance(np.ceil(TOGETHER * most), expected) <= allowed else "unknown"


def _fresh(word: str, taken: set[str]) -> str:
    number = 1
    while f"{word}-{number}" in taken:
        number += 1
    return f"{word}-{number}"


def _some(members: Sequence[str], most: int = 5) -> str:
    return ", ".join(members[:most]) + (f" and {len(members) - most} more" if len(members) > most else "")
