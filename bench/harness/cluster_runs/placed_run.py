"""One run of a topic on a cluster: submitted, sent to once its shares are in force, recorded, removed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.harness.cluster_runs.assigned_traffic import settled
from bench.harness.cluster_runs.trace import Trace, fetch_trace
from bench.harness.load.run import RunResult
from srtm.client.distributor import DistributorClient, Json
from srtm.cluster.supervisor import Cluster
from srtm.token_bucket.replay import Penalty, penalty
from srtm.units import to_micro


@dataclass(frozen=True)
class PlacedRun:
    submitted: Json  # the topic's view as it was answered
    view: Json  # with all shares in force
    assignments: Json  # columns
    result: RunResult
    measured: dict[str, Trace]  # by broker that has a share, without the warm-up


async def placed_run(
    cluster: Cluster,
    client: DistributorClient,
    document: Json,
    send: Callable[[Json], Awaitable[RunResult]],
    *,
    warmup_s: float,
    within_s: float,
) -> PlacedRun:
    """``send`` gets the assignments. ``within_s``: for the shares. Raises Unavailable, PeerError, BadInput."""
    topic = str(document["name"])
    submitted = await client.create_or_change_topic(topic, document)
    view = await settled(client, topic, within_s=within_s)
    assignments = await client.publishers(topic)
    started_ns = time.monotonic_ns()
    result = await send(assignments)
    used = {place["broker"] for place in view["brokers"]}
    traces = {
        place.name: await fetch_trace(place.http_address, topic) for place in cluster.brokers if place.name in used
    }
    await client.remove_topic(topic, purge=True)
    return PlacedRun(submitted, view, assignments, result, without_warmup(traces, started_ns, warmup_s))


def addresses(cluster: Cluster) -> dict[str, str]:
    """{broker: where it is published to}."""
    return {place.name: place.tcp_address for place in cluster.brokers}


def mqtt_addresses(cluster: Cluster) -> dict[str, str]:
    """{broker: where it is published to by MQTT}, of a cluster that speaks it."""
    return {place.name: place.mqtt_address for place in cluster.brokers if place.mqtt_address is not None}


def without_warmup(traces: dict[str, Trace], started_ns: int, warmup_s: float) -> dict[str, Trace]:
    """What arrived of the run that began after ``started_ns`` once its warm-up was over."""
    run = {broker: trace.since(started_ns) for broker, trace in traces.items()}
    begun_ns = min(int(trace.arrival_ns.min()) for trace in run.values()) + round(warmup_s * 1e9)
    return {broker: trace.since(begun_ns) for broker, trace in run.items()}


def penalty_of(view: Json, traces: dict[str, Trace]) -> Penalty:
    """The DRL penalty of the recorded arrivals: under the shares that the brokers had, less under one (r, b)."""
    shares = {place["broker"]: _bucket(place) for place in view["brokers"]}
    arrivals_ns = [trace.arrival_ns for trace in traces.values()]
    return penalty(arrivals_ns, [shares[broker] for broker in traces], *_bucket(view))


def _bucket(view: Json) -> tuple[int, int]:
    return to_micro(view["rate"], "rate"), to_micro(view["burst"], "burst")
