"""One run of a topic on a cluster: submitted, sent to once its shares are in force, recorded, removed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.assigned import settled
from bench.demo_side import without_warmup
from bench.run import RunResult
from bench.trace import Trace, fetch_trace
from srtm.distributor_client import DistributorClient, Json
from srtm.supervisor import Cluster


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
