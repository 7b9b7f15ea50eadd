"""``srtm bench placement``: the placements of the paper for its four workloads, on real brokers (sections 6.2 to 6.4).

1,000 publishers of 10 msg/s, in groups that fire together, Poisson or periodic, one message or ten at once; six brokers
of equal capacity, most of which is reserved on five of them for other topics (declared, and silent: what is compared is
the splitting of a bucket). Each broker serves its messages as one server with the laboratory's service time, so that
the machine underneath matters as little as can be. One (r, b) and the same instants for all placements of a workload:
r is 10 % above the load, b the smallest without access delay in one bucket (``placement_traffic``).

There are as many publishers as the machine can send for: their number is doubled until the generator is late, or the
load is eight times the paper's (rates of brokers and reservations grow with it, the service time shrinks).

The first four split the bucket by rate, as the paper does; "srtm, fitted" is what SRTM does by default.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from bench.experiments.placement.run import (
    PERCENTILE,
    PROMISE_MS,
    PUBLISHERS,
    SIDES,
    WORKLOADS,
    PlacementRun,
    Scale,
    Side,
    Workload,
    run_of,
    shortcomings,
)
from bench.experiments.placement.traffic import Traffic
from bench.experiments.placement.traffic import draw as draw_traffic
from bench.experiments.placement.view import BLOCK, block, draw
from bench.harness.cluster_runs.assigned_traffic import plan_of
from bench.harness.cluster_runs.placed_run import addresses, placed_run
from bench.harness.load.run import RunResult, run_plan
from bench.harness.load.workload import Plan
from bench.harness.results.document import refuse_without_block
from bench.harness.results.publish import hand_over
from bench.harness.results.results import Results
from srtm.client.distributor import DistributorClient, Json
from srtm.cluster.supervisor import Cluster, cluster
from srtm.errors import Unavailable
from srtm.topics.spec import parse_topic_json

BROKERS = 6
EACH, GROUP = 10.0, 5
HEADROOM = 1.1
SCALES = (1, 2, 4, 8)  # times as many publishers
HARDEST = (WORKLOADS["poisson-1"], (SIDES[0], SIDES[1]))  # to send: most firings, to most brokers, and most to one
TRIAL_S = 5.0  # of traffic, at each scale
WARMUP_S = 2.0
TRIES = 2  # of a run that does not count: the generator was late
SETTLED_WITHIN_S = 20.0


@dataclass(frozen=True)
class PlacementOptions:
    workloads: Sequence[str] = tuple(WORKLOADS)
    seconds: float = 20.0  # of measured traffic in each run
    seed: int = 1
    publishers: int | None = PUBLISHERS  # None: the most of ``SCALES`` that this machine can send for
    json_file: str | None = None
    png: Path | None = None
    document: Path | None = None  # to write the table into


async def placement(options: PlacementOptions, say: Callable[[str], None]) -> list[str]:
    """All runs; the table and the pictures at the end. Returns ``shortcomings``. Raises Unavailable, PeerError."""
    refuse_without_block(options.document, BLOCK)
    started = time.time()
    runs: list[PlacementRun] = []
    scale = Scale(options.publishers) if options.publishers else await largest(options, say)
    async with _stage(scale) as stage:
        for name in options.workloads:
            runs += await _sides(stage, WORKLOADS[name], SIDES, options, say)
    text = block(runs, scale, options.seconds)
    say(text)
    pictures = options.png or (options.document.parent / "img" / f"{BLOCK}.png" if options.document else None)
    if pictures is not None:
        await trio.to_thread.run_sync(draw, pictures, runs)
        say(f"pictures: {pictures}")
    missing = shortcomings(runs)
    results = _results(options, scale, runs, missing, started)
    hand_over(text, results, block=BLOCK, document=options.document, json_file=options.json_file, data=True)
    return missing


async def largest(options: PlacementOptions, say: Callable[[str], None]) -> Scale:
    """The last of ``SCALES`` before the generator is late with the hardest workload; the first in any case. Raises
    Unavailable, PeerError."""
    workload, sides = HARDEST
    trial = replace(options, seconds=TRIAL_S)
    found = Scale(PUBLISHERS * SCALES[0])
    for times in SCALES[1:]:
        larger = Scale(PUBLISHERS * times)
        say(f"is the generator in time with {larger.publishers:,} publishers?")
        async with _stage(larger) as stage:
            runs = await _sides(stage, workload, sides, trial, say)
        late = [reason for run in runs for reason in run.reasons]
        if late:
            return replace(found, why=f"with {larger.publishers:,} runs do not count on this machine ({late[0]})")
        found = larger
    return replace(found, why="more were not tried")


@asynccontextmanager
async def _stage(scale: Scale) -> AsyncIterator[_Stage]:
    """Six brokers, and what is reserved on them."""
    lab = ["--lab-service-time", f"{scale.service_us:g}"]
    with TemporaryDirectory(prefix="srtm-placement-") as data:
        async with (
            cluster(brokers=BROKERS, mcap=scale.mcap, data=Path(data), broker_options=lab) as running,
            DistributorClient(running.distributor, timeout_s=60.0) as client,
        ):
            await _reserve(client, scale.reserved)
            yield _Stage(running, client, scale)


async def _sides(
    stage: _Stage, workload: Workload, sides: Sequence[Side], options: PlacementOptions, say: Callable[[str], None]
) -> list[PlacementRun]:
    traffic = await trio.to_thread.run_sync(_traffic, workload, options, stage.scale)
    burst = await trio.to_thread.run_sync(traffic.burst, _rate(stage.scale), PERCENTILE)
    runs = []
    for side in sides:
        runs.append(await _Run(stage, workload, side, burst, traffic, options).counted())
        say(_line(runs[-1]))
    return runs


async def _reserve(client: DistributorClient, rates: Sequence[float]) -> None:
    """Largest first: each goes to a broker of its own, which has most room."""
    for number, rate in enumerate(rates):
        name = f"reserved-{number}"
        document = {
            "name": name,
            "rate": rate,
            "burst": 100,
            "mode": "static",
            "slo": {"percentile": PERCENTILE, "latency_ms": PROMISE_MS},
            "publishers": [{"ids": [name], "rates": [rate]}],
        }
        await client.create_or_change_topic(name, document)
    allocated = sorted((one["allocated"] for one in await client.brokers()), reverse=True)
    if allocated != rates:
        raise Unavailable(f"the reservations are not where they should be: {allocated}")


def _rate(scale: Scale) -> float:
    return scale.publishers * EACH * HEADROOM


def _document(workload: Workload, side: Side, burst: float, scale: Scale) -> Json:
    return {
        "name": f"{workload.name}-{side.name}".replace(", ", "-"),
        "rate": _rate(scale),
        "burst": burst,
        "placement": side.placement,
        "split": side.split,
        "mode": "static",
        "slo": {"percentile": PERCENTILE, "latency_ms": PROMISE_MS},
        "publishers": [
            {
                "count": scale.publishers,
                "rate": EACH,
                "group_size": GROUP,
                "process": workload.process,
                "batch": workload.batch,
            }
        ],
    }


def _traffic(workload: Workload, options: PlacementOptions, scale: Scale) -> Traffic:
    spec = parse_topic_json(_document(workload, SIDES[0], workload.batch, scale))
    return draw_traffic(spec.publishers, warmup_s=WARMUP_S, seconds=options.seconds, seed=options.seed)


@dataclass(frozen=True)
class _Stage:
    cluster: Cluster
    client: DistributorClient
    scale: Scale


@dataclass(frozen=True)
class _Run:
    """Submitted under a name of its own, for a bucket is full only at a topic's first grant; sent, recorded,
    removed."""

    stage: _Stage
    workload: Workload
    side: Side
    burst: float
    traffic: Traffic
    options: PlacementOptions

    async def counted(self) -> PlacementRun:
        """The first that counts, else the last."""
        for number in range(1, TRIES + 1):
            run = await self._measured(number)
            if not run.reasons:
                break
        return run

    async def _measured(self, number: int) -> PlacementRun:
        document = _document(self.workload, self.side, self.burst, self.stage.scale)
        document["name"] = f"{document['name']}-{number}"

        async def send(assignments: Json) -> RunResult:
            return await run_plan(self.traffic.as_sent(self._plan(document["name"], assignments)))

        cluster, client = self.stage.cluster, self.stage.client
        run = await placed_run(cluster, client, document, send, warmup_s=WARMUP_S, within_s=SETTLED_WITHIN_S)
        predicted = run.submitted["explanation"]["predicted"]["access_ms"]
        shares = {place["broker"]: (place["rate"], place["burst"]) for place in run.view["brokers"]}
        replayed = self.traffic.replayed_access_ms(run.assignments, shares, PERCENTILE)
        return run_of(self.workload, self.side, run.view, run.result, run.measured, predicted, replayed)

    def _plan(self, name: str, assignments: Json) -> Plan:
        return plan_of(
            name,
            assignments,
            addresses(self.stage.cluster),
            seconds=self.options.seconds,
            warmup_s=WARMUP_S,
            seed=self.options.seed,
            slo_ms=PROMISE_MS,
            percentile=PERCENTILE,
        )


def _line(run: PlacementRun) -> str:
    state = f"does not count: {'; '.join(run.reasons)}" if run.reasons else "kept" if run.kept else "broken"
    return (
        f"{run.workload}, {run.side}: {run.brokers} brokers, p99 {run.worst_p99_ms:.2f} ms (access "
        f"{run.access_p99_ms:.2f}), DRL penalty {run.penalty_mean_ms:.3f} ms a message: {state}"
    )


def _results(
    options: PlacementOptions, scale: Scale, runs: Sequence[PlacementRun], missing: list[str], started: float
) -> Results:
    settings = {
        "seconds": options.seconds,
        "publishers": scale.publishers,
        "publishers_why": scale.why,
        "rate_each": EACH,
        "group": GROUP,
        "brokers": BROKERS,
        "mcap": scale.mcap,
        "reserved": scale.reserved,
        "lab_service_time_us": scale.service_us,
        "promise_ms": PROMISE_MS,
    }
    return Results.of(
        "bench placement",
        [run.row() for run in runs],
        seed=options.seed,
        started=started,
        settings=settings,
        reasons=[f"{run.workload}, {run.side}: {reason}" for run in runs for reason in run.reasons],
        result={"passed": not missing, "shortcomings": missing},
    )
