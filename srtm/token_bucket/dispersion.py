"""Computes the traffic of each broker, with its dispersion, from a topic's publishers, for the fitted split."""

from __future__ import annotations

import numpy as np

from srtm.token_bucket.burst_sizing import nested_streams
from srtm.token_bucket.fitted_split import Traffic
from srtm.topics.publishers import ALONE, Ints, Publishers


def traffic_of(publishers: Publishers, at: Ints, brokers: int) -> list[Traffic]:
    """Return the traffic of each of ``brokers``. ``at[i]``: index of the broker of publisher i; below 0: none.

    Members of a group on one broker fire together; members on other brokers do not count. Periodic publishers count as
    Poisson publishers of the same rate, which they resemble over times in which few of them fire.
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
