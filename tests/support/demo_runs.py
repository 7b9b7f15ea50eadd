"""Runs of the demo, simulated: which of its two placements waits less.

The placements and the shares are the distributor's own; buckets are exact (``srtm.token_bucket.replay``); brokers take
no time. The delay of a run is the p99 access delay of its worst broker, as the demo shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from bench.data.sensors import TOPIC_TOML
from bench.demo.run import BROKERS, MCAP
from bench.harness.cluster_runs.trace import Column, Trace
from bench.harness.results.intervals import percentile_ms
from distributor.model.leases import MICRO, Amount
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.planner import place_anew
from distributor.placement.share_targets import ShareDemand, target_shares
from srtm.token_bucket.replay import access_delays
from srtm.topics.file import read_topic_file
from srtm.topics.spec import Strategy, TopicSpec, parse_topic_json

NAMES = tuple(f"broker-{number}" for number in range(1, BROKERS + 1))


@dataclass(frozen=True)
class Arranged:
    """The demo's topic under one placement. ``broker_of``: index into ``NAMES`` of each publisher."""

    broker_of: tuple[int, ...]
    shares: Mapping[str, Amount]


@cache
def arranged(placement: Strategy) -> Arranged:
    spec = replace(_spec(), placement=placement)
    if placement != "srtm":
        spec = replace(spec, burst=sum(share.burst for share in arranged("srtm").shares.values()) / MICRO)
    burst, placed, _ = place_anew(spec, [BrokerCapacity(name=name, mcap=MCAP) for name in NAMES])
    envelope = Amount(round(spec.rate * MICRO), round(burst * MICRO))
    broker_of = tuple(NAMES.index(placed.brokers[at]) for at in placed.at)
    return Arranged(broker_of, target_shares(ShareDemand(spec=spec, envelope=envelope, placement=placed)))


def fired(seed: int, seconds: float) -> tuple[Column, Column]:
    """Arrival instants, ns, and senders: a Poisson process a group, all its members at each of its instants."""
    publishers = _spec().publishers
    rng = np.random.default_rng(seed)
    instants, senders = [], []
    for group in np.unique(publishers.groups):
        members = np.flatnonzero(publishers.groups == group)
        firings = rng.poisson(publishers.rates[members[0]] * seconds)
        instants.append(np.repeat(rng.integers(0, int(seconds * 1e9), firings), len(members)))
        senders.append(np.tile(members, firings))
    arrival_ns, publisher = np.concatenate(instants), np.concatenate(senders)
    order = np.argsort(arrival_ns, kind="stable")
    return arrival_ns[order], publisher[order]


def simulated(placement: Strategy, seed: int, seconds: float) -> dict[str, Trace]:
    """What the brokers' traces would be if they did no more than what their buckets say."""
    arrival_ns, publisher = fired(seed, seconds)
    how = arranged(placement)
    home = np.array(how.broker_of)[publisher]
    traces = {}
    for name, share in how.shares.items():
        mine = home == NAMES.index(name)
        came = arrival_ns[mine]
        due = came + access_delays(came, share.rate, share.burst)
        traces[name] = Trace([], publisher[mine], came, due, due, due)
    return traces


def worst_p99_ms(placement: Strategy, seed: int, seconds: float) -> float:
    return max(percentile_ms(trace.access_ns, 99) for trace in simulated(placement, seed, seconds).values())


@cache
def _spec() -> TopicSpec:
    return parse_topic_json(read_topic_file(TOPIC_TOML))
