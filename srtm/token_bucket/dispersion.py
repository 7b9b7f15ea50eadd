"""How bursty the traffic of each broker is, from what a topic says of its publishers: the input of the fitted split."""

from __future__ import annotations

import numpy as np

from srtm.token_bucket.burst_sizing import nested_streams
from srtm.token_bucket.fitted_split import Traffic
from srtm.topics.publishers import ALONE, Ints, Publishers


def traffic_of(publishers: Publishers, at: Ints, brokers: int) -> list[Traffic]:
    """What each of ``brokers`` gets; ``at[i]`` is the broker of publisher i, below 0 for none.

    Members of one group on one broker fire together; those elsewhere do not matter. Periodic publishers count as
    Poisson ones of their rate: over times in which few of them fire that is what they look like.
    """
    there = np.flatnonzero(at >= 0)
    rates, batches, broker = publishers.rates[there], publishers.batches[there], at[there]
    alone = publishers.groups[there] == ALONE
    group = np.where(alone, len(publishers.group_names) + there, publishers.groups[there])
    cell = group * max(brokers, 1) + broker  # a group's members on one broker
    firings, sizes, cells = nested_streams(rates / batches, batches, cell)
    where = cells % max(brokers, 1)
    load = np.bincount(broker, weights=rates, minlength=brokers)
    squares = np.bincount(where, weights=firings * sizes.astype(np.float64) ** 2, minlength=brokers)
    largest = np.zeros(brokers, dtype=np.int64)
    np.maximum.at(largest, broker, batches)
    return [
        Traffic(rate=rate, dispersion=square / rate if rate else 1.0, batch=max(1, batch))
        for rate, square, batch in zip(load.tolist(), squares.tolist(), largest.tolist(), strict=True)
    ]
