"""Draws the messages of a topic's publishers from a seed: which publisher sends when. Pure.

``srtm.token_bucket.burst_sizing`` draws the same process without the senders. Members of a Poisson group fire at the
instants of its fastest member; slower members fire at a random, nested subset of them. Members of a periodic group
have one phase.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srtm.topics.publishers import ALONE, Ints, Publishers


@dataclass(frozen=True)
class Sent:
    """Drawn messages in order of time, in columns. ``publisher``: index into the columns of the topic."""

    publisher: Ints
    arrival_ns: Ints
    seconds: float  # the time drawn, from 0

    def __len__(self) -> int:
        return len(self.arrival_ns)


def sent(publishers: Publishers, seconds: float, seed: int) -> Sent:
    """Draw all messages of ``seconds``. Each needs about 50 bytes of memory."""
    rng = np.random.default_rng(seed)
    group = np.where(
        publishers.groups == ALONE, len(publishers.group_names) + np.arange(len(publishers)), publishers.groups
    )
    fires = publishers.rates / publishers.batches  # a second
    parts = [_poisson(fires, group, ~publishers.periodic, seconds, rng)]
    parts.append(_periodic(fires, group, publishers.periodic, seconds, rng))
    publisher = np.concatenate([who for who, _ in parts])
    times_s = np.concatenate([when for _, when in parts])
    if publishers.periodic.any():  # else they are in order
        order = np.argsort(times_s, kind="stable")
        publisher, times_s = publisher[order], times_s[order]
    arrival_ns = np.floor(times_s * 1e9).astype(np.int64)
    if publishers.largest_batch == 1:
        return Sent(publisher, arrival_ns, seconds)
    batches = publishers.batches[publisher]
    return Sent(np.repeat(publisher, batches), np.repeat(arrival_ns, batches), seconds)


def _poisson(
    fires: np.ndarray, group: Ints, chosen: np.ndarray, seconds: float, rng: np.random.Generator
) -> tuple[Ints, np.ndarray]:
    """Return (publisher, time in s) of every firing, in order of time.

    See ``burst_sizing.nested_streams`` for the streams of a group. A stream is sorted before its members are: they fire
    together, and there are fewer of it.
    """
    members = np.flatnonzero(chosen)
    members = members[np.lexsort((-fires[members], group[members]))]
    same = group[members][1:] == group[members][:-1]
    rate = fires[members].copy()
    rate[:-1] -= np.where(same, fires[members][1:], 0.0)
    starts = np.flatnonzero(np.concatenate([[True], ~same])[: len(members)])
    first = np.repeat(starts, np.diff(np.append(starts, len(members))))  # of the group of each member
    stream = np.repeat(np.arange(len(members)), rng.poisson(rate * seconds))
    times_s = rng.random(len(stream)) * seconds
    order = np.argsort(times_s)
    stream, times_s = stream[order], times_s[order]
    together = stream - first[stream] + 1
    offset = np.arange(int(together.sum())) - np.repeat(np.cumsum(together) - together, together)
    return members[np.repeat(first[stream], together) + offset], np.repeat(times_s, together)


def _periodic(
    fires: np.ndarray, group: Ints, chosen: np.ndarray, seconds: float, rng: np.random.Generator
) -> tuple[Ints, np.ndarray]:
    """Return (publisher, time in s) of every firing. A group has one phase, as a fraction of the period."""
    members = np.flatnonzero(chosen)
    period_s = 1.0 / fires[members]
    phase_s = rng.random(int(group.max(initial=-1)) + 1)[group[members]] * period_s
    count = np.maximum(np.ceil((seconds - phase_s) / period_s), 0).astype(np.int64)
    source = np.repeat(np.arange(len(members)), count)
    turn = np.arange(len(source)) - np.repeat(np.cumsum(count) - count, count)
    return members[source], phase_s[source] + turn * period_s[source]
