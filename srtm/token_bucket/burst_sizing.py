"""Sizes ``burst = "paper"``: the smallest whole b without access delay at a percentile.

The unfinished work U that a message finds does not depend on b (appendix A). The message is not delayed if and only if
U + 1 <= b (Eq. 2). So b is the percentile of U + 1 over the messages, rounded up, and one pass finds it. Arrivals are
drawn in slices, to save memory. They are drawn as floats from a seed; as whole nanoseconds they are replayed exactly
(``srtm.token_bucket.replay``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from srtm.token_bucket.bucket import TOKEN
from srtm.token_bucket.replay import Server
from srtm.topics.publishers import ALONE, Floats, Ints, Publishers
from srtm.units import MICRO

LONGEST_S = 600.0
MOST_ARRIVALS = 10_000_000
_SLICE = 1_000_000  # expected arrivals drawn at once: a few tens of megabytes


def smallest_burst(publishers: Publishers, rate: float, percentile: float = 99.0, seed: int = 1) -> int:
    """Return b in messages for the token rate ``rate``, msg/s, which must be at least the publishers' load.

    It is at least the largest batch, which could not pass at once otherwise.
    """
    return max(publishers.largest_batch, enough_burst(arrivals(publishers, seed), rate, percentile))


def enough_burst(arrivals_ns: Iterable[Ints], rate: float, percentile: float, count_from_ns: int = 0) -> int:
    """Return the smallest b, messages, with which ``percentile`` per cent of the arrivals find a token.

    The arrivals are in order of time, in slices. Those before ``count_from_ns`` take tokens but are not counted.
    """
    rate_micro = round(rate * MICRO)
    server, counts = Server(rate_micro, 0), np.zeros(1, dtype=np.int64)
    for arrival_ns in arrivals_ns:
        needed = tokens_needed(*server.found(arrival_ns), rate_micro)
        counts = _added(counts, np.bincount(needed[arrival_ns >= count_from_ns]))
    enough = math.ceil(int(counts.sum()) * Fraction(percentile).limit_denominator(1000) / 100)
    return int(np.searchsorted(np.cumsum(counts), enough))


def _added(left: Ints, right: Ints) -> Ints:
    total = np.zeros(max(len(left), len(right)), dtype=np.int64)
    total[: len(left)] += left
    total[: len(right)] += right
    return total


def tokens_needed(whole_ns: Ints, rest: Ints, rate_micro: int) -> Ints:
    """Return the smallest whole b with which a message that finds this work (``Server.found``) is not delayed."""
    return 1 + _tokens_up(whole_ns, rest, rate_micro)


def _tokens_up(whole_ns: Ints, rest: Ints, rate_micro: int) -> Ints:
    """Return the work in tokens, rounded up. Units would exceed 64 bits, so times of whole tokens are compared."""
    most = int(whole_ns.max(initial=0)) * rate_micro // TOKEN + 2
    steps = [divmod(tokens * TOKEN, rate_micro) for tokens in range(most)]
    step_ns = np.array([step for step, _ in steps], dtype=np.int64)
    step_rest = np.array([rest for _, rest in steps], dtype=np.int64)
    tokens: Ints = np.searchsorted(step_ns, whole_ns, side="left").astype(np.int64)
    tokens[(step_ns[tokens] == whole_ns) & (rest > step_rest[tokens])] += 1
    return tokens


@dataclass(frozen=True)
class _Firings:
    """Independent sources: Poisson streams by size, periodic ones by phase."""

    poisson_rates: Floats  # firings/s of all streams of the size below
    poisson_sizes: Ints  # messages at once
    periods_s: Floats
    phases_s: Floats  # in [0, period)
    periodic_sizes: Ints


def arrivals(publishers: Publishers, seed: int) -> Iterator[Ints]:
    """Draw arrival instants, ns from 0, in order and in slices, for LONGEST_S or MOST_ARRIVALS, whichever is less."""
    if not len(publishers):
        return
    rng = np.random.default_rng(seed)
    firings = _firings(publishers, rng)
    duration_s = min(LONGEST_S, MOST_ARRIVALS / publishers.load)
    edges_s = np.linspace(0.0, duration_s, math.ceil(duration_s * publishers.load / _SLICE) + 1)
    for start_s, end_s in zip(edges_s[:-1].tolist(), edges_s[1:].tolist(), strict=True):
        times_s, sizes = _drawn(firings, start_s, end_s, rng)
        order = np.argsort(times_s, kind="stable")
        arrival_ns = np.floor(times_s[order] * 1e9).astype(np.int64)
        yield np.repeat(arrival_ns, sizes[order])


def _drawn(firings: _Firings, start_s: float, end_s: float, rng: np.random.Generator) -> tuple[Floats, Ints]:
    expected = firings.poisson_rates * (end_s - start_s)
    sizes = np.repeat(firings.poisson_sizes, rng.poisson(expected))
    times_s = start_s + (end_s - start_s) * rng.random(len(sizes))
    first = np.ceil((start_s - firings.phases_s) / firings.periods_s).astype(np.int64)
    after = np.ceil((end_s - firings.phases_s) / firings.periods_s).astype(np.int64)
    count = after - first
    source = np.repeat(np.arange(len(count)), count)
    turn = np.arange(len(source)) - np.repeat(np.cumsum(count) - count, count) + first[source]
    ticks_s = np.clip(firings.phases_s[source] + turn * firings.periods_s[source], start_s, end_s)
    return np.concatenate([times_s, ticks_s]), np.concatenate([sizes, firings.periodic_sizes[source]])


def _firings(publishers: Publishers, rng: np.random.Generator) -> _Firings:
    fires = publishers.rates / publishers.batches  # a second
    alone = publishers.groups == ALONE
    group = np.where(alone, len(publishers.group_names) + np.arange(len(publishers)), publishers.groups)
    periodic = publishers.periodic
    rates, sizes = _nested(fires[~periodic], publishers.batches[~periodic], group[~periodic])
    phase = rng.random(len(publishers.group_names) + len(publishers))  # one draw a group: its members tick together
    periods_s = 1.0 / fires[periodic]
    return _Firings(rates, sizes, periods_s, phase[group[periodic]] * periods_s, publishers.batches[periodic])


def _nested(fires: Floats, batches: Ints, group: Ints) -> tuple[Floats, Ints]:
    """Return Poisson groups as independent streams: (firings/s, messages at once), one entry a size."""
    rates, sizes, _ = nested_streams(fires, batches, group)
    distinct, stream = np.unique(sizes, return_inverse=True)
    summed: Floats = np.bincount(stream, weights=rates, minlength=len(distinct)).astype(np.float64)
    return summed, distinct


def nested_streams(fires: Floats, batches: Ints, group: Ints) -> tuple[Floats, Ints, Ints]:
    """Return the independent Poisson streams that make up groups: firings/s, messages at once, group.

    Members of a group fire at the instants of its fastest member; slower members fire at a random, nested subset of
    them. Such a group is a sum of independent streams: its j fastest members fire together, without the others, at the
    difference between the rates of the j-th and the next member.
    """
    order = np.lexsort((-fires, group))
    fires, batches, group = fires[order], batches[order], group[order]
    same = group[1:] == group[:-1]
    next_fires = np.zeros_like(fires)
    next_fires[:-1] = np.where(same, fires[1:], 0.0)
    turn = np.zeros(len(group), dtype=np.int64)  # of the group
    turn[1:] = np.cumsum(~same)
    before = np.cumsum(batches) - batches
    firsts = np.flatnonzero(np.diff(turn, prepend=-1))
    return fires - next_fires, before - before[firsts][turn] + batches, group
