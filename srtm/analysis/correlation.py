"""Which publishers fire together: found in recorded arrivals, tested against chance, beside what is declared. Pure.

A publisher's messages within a window of one another are one *firing* (a batch). Two publishers co-fire when they fire
within a window of one another. If they were independent and fired n_i and n_j times in T, they would do so about
2 w n_i n_j / T times, and the number is Poisson: a pair that did it so much more often that chance would show one such
pair in a thousand traces, and in at least half of the firings of the slower one, is *linked*. A group is a publisher
with all that are linked to it: members need not be linked to each other, as slow ones of a group seldom meet.

Periodic publishers of one period and nearly one phase do fire together; a smaller window tells them apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import pdtrc

from srtm.analysis.arrivals import Arrivals
from srtm.errors import BadInput
from srtm.topics.publishers import Floats, Ints

WINDOW_NS = 1_000_000
TOGETHER = 0.5  # of the slower one's firings
_FALSE_ALARMS = 1e-3  # linked pairs, or groups judged wrongly, that chance alone may give a trace
_MOST_PAIRS = 20_000_000  # co-firings counted: the beginning of a longer or denser trace must do

Verdict = Literal["together", "partly", "apart", "unknown"]


@dataclass(frozen=True, kw_only=True)
class DeclaredGroup:
    """A group that the topic names. ``together`` and ``chance``: how often a member fires with another, of the firings
    of the slower one of each pair; seen, and expected of independent members."""

    name: str
    members: int
    seen: int  # of them in the trace
    together: float
    chance: float
    verdict: Verdict  # unknown: too little was seen to tell


@dataclass(frozen=True, kw_only=True)
class ObservedGroup:
    """Publishers that fire together. ``declared``: {group: how many of them it names}, "" for none."""

    members: tuple[str, ...]
    declared: dict[str, int]

    @property
    def is_declared(self) -> bool:
        """Whether one declared group has them all."""
        return len(self.declared) == 1 and "" not in self.declared


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a trace says of a topic's groups."""

    seconds: float  # of it that were looked at
    firings: int
    publishers: int  # that fired
    window_ns: int
    declared: list[DeclaredGroup]
    observed: list[ObservedGroup]

    @property
    def warnings(self) -> list[str]:
        apart = [
            f"declared group {one.name!r} does not fire together" for one in self.declared if one.verdict == "apart"
        ]
        partly = [
            f"declared group {one.name!r} fires together in {100 * one.together:.0f} % of the firings only"
            for one in self.declared
            if one.verdict == "partly"
        ]
        fresh = [
            f"{len(one.members)} publishers fire together and are not declared so: {_some(one.members)}"
            for one in self.observed
            if not one.is_declared
        ]
        return apart + partly + fresh


@dataclass(frozen=True)
class _Pairs:
    """Pairs of publishers that co-fired, columns."""

    first: Ints
    second: Ints
    times: Ints


def _how_many(firings: int, span_ns: int) -> str:
    if firings < 2:
        return "a single firing" if firings else "no message"
    return f"{firings} firings within {span_ns / 1e6:g} ms"


def find_groups(arrivals: Arrivals, declared: Mapping[str, str], window_ns: int = WINDOW_NS) -> Found:
    """``declared``: {publisher: group, "" for none}; others are taken as declared to be in none. Raises BadInput for
    a window below 1 ns or a trace in which nobody fires twice."""
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
    """Of a topic of which nothing was recorded: what it declares ({publisher: group, "" for none}) is not judged."""
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
    """{publisher: group} for those whose group is not what was observed: members of an observed group get one name,
    those of a declared group that does not fire together none. Who is not in ``declared`` is left out."""
    apart = {one.name for one in found.declared if one.verdict == "apart"}
    wanted = {name: "" for name, group in declared.items() if group in apart}
    taken = {*declared.values(), ""}
    used: set[str] = set()
    for group in found.observed:
        own = [name for name, _ in Counter(group.declared).most_common() if name and name not in apart | used]
        label = own[0] if own else _fresh(taken)
        taken.add(label)
        used.add(label)
        wanted.update({member: label for member in group.members if member in declared})
    return {name: group for name, group in wanted.items() if declared[name] != group}


def _firings(arrivals: Arrivals, window_ns: int) -> tuple[Ints, Ints]:
    """(publisher, instant) of every firing, in order of time, as many of the first ones as ``_MOST_PAIRS`` allows."""
    order = np.lexsort((arrivals.arrival_ns, arrivals.publisher))
    publisher, at_ns = arrivals.publisher[order], arrivals.arrival_ns[order]
    begins = np.ones(len(at_ns), dtype=np.bool_)
    begins[1:] = (publisher[1:] != publisher[:-1]) | (np.diff(at_ns) > window_ns)
    publisher, at_ns = publisher[begins], at_ns[begins]
    order = np.argsort(at_ns, kind="stable")
    publisher, at_ns = publisher[order], at_ns[order]
    after = np.searchsorted(at_ns, at_ns + window_ns, side="right") - np.arange(len(at_ns)) - 1
    enough = int(np.searchsorted(np.cumsum(after), _MOST_PAIRS, side="right"))
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
    """P(Poisson(expected) >= times)."""
    result: Floats = np.where(np.asarray(times) <= 0, 1.0, pdtrc(np.maximum(np.asarray(times) - 1, 0), expected))
    return result


def _clusters(links: _Pairs, names: Sequence[str], declared: Mapping[str, str]) -> list[ObservedGroup]:
    """Those with most links first, each with all that are linked to it and not in a group yet."""
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
    """Every declared group of two and more."""
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


def _fresh(taken: set[str]) -> str:
    number = 1
    while f"observed-{number}" in taken:
        number += 1
    return f"observed-{number}"


def _some(members: Sequence[str], most: int = 5) -> str:
    return ", ".join(members[:most]) + (f" and {len(members) - most} more" if len(members) > most else "")
