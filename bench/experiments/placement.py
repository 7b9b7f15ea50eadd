"""``srtm bench placement``: the placements of the paper for its four workloads, on real brokers (sections 6.2 to 6.4).

1,000 publishers of 10 msg/s, in groups that fire together, Poisson or periodic, one message or ten at once; six brokers
of equal capacity, most of which is reserved on five of them for other topics (declared, and silent: what is compared is
the splitting of a bucket). Each broker serves its messages as one server with the laboratory's service time, so that
the machine underneath matters as little as can be. One (r, b) for all placements of a workload: r is 10 % above the
load, b the smallest without access delay in one bucket.

The first four split the bucket by rate, as the paper does; "srtm, fitted" is what SRTM does by default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import trio

from bench.assigned import plan_of
from bench.demo_side import penalty_of, without_warmup
from bench.document import write_block
from bench.experiments.placement_view import BLOCK, Setting, block, draw
from bench.results import Results, write_results
from bench.run import RunResult, run_plan
from bench.trace import Trace, fetch_trace, percentile_ms
from srtm.distributor_client import DistributorClient, Json
from srtm.errors import BadInput, Unavailable
from srtm.sizing import smallest_burst
from srtm.supervisor import Cluster, cluster
from srtm.topic import parse_topic_json

BROKERS, MCAP = 6, 10_000.0
RESERVED = (7_500.0, 7_500.0, 7_000.0, 7_000.0, 6_500.0, 500.0)  # msg/s on each broker, largest first: each its own
PUBLISHERS, EACH, GROUP = 1_000, 10.0, 5
HEADROOM = 1.1
SERVICE_US = 30  # of the laboratory: 33,000 msg/s a broker
PERCENTILE, PROMISE_MS = 99, 5.0
WARMUP_S = 2.0
TRIES = 2  # of a run that does not count: the generator was late
SETTLED_WITHIN_S = 20.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Workload:
    process: str
    batch: int

    @property
    def name(self) -> str:
        return f"{self.process}-{self.batch}"


@dataclass(frozen=True)
class Side:
    """One way to place, and to split."""

    name: str
    placement: str
    split: str = "proportional"


_ALL = [Workload(process, batch) for process in ("poisson", "periodic") for batch in (1, 10)]
WORKLOADS = {one.name: one for one in _ALL}
SIDES = (*(Side(name, name) for name in ("lb", "conc", "maxmin", "srtm")), Side("srtm, fitted", "srtm", "fitted"))


@dataclass(frozen=True)
class PlacementOptions:
    workloads: Sequence[str] = tuple(WORKLOADS)
    seconds: float = 20.0  # of measured traffic in each run
    seed: int = 1
    publishers: int = PUBLISHERS  # capacities and reservations are in proportion
    json_file: str | None = None
    png: Path | None = None
    document: Path | None = None  # to write the table into

    @property
    def scale(self) -> float:
        return self.publishers / PUBLISHERS

    @property
    def reserved(self) -> list[float]:
        return [rate * self.scale for rate in RESERVED]


@dataclass(frozen=True, kw_only=True)
class PlacementRun:
    """One workload placed one way. Delays are of the worst broker at the percentile, where they say nothing else."""

    workload: str
    side: str
    brokers: int
    assigned: list[float]  # msg/s of each
    burst: float  # b of the topic
    sent: int
    received: int
    lost: int
    duplicates: int
    p50_ms: float  # end to end, all messages
    p99_ms: float
    p999_ms: float
    worst_p99_ms: float  # end to end
    access_p99_ms: float
    processing_p99_ms: float
    predicted_access_p99_ms: float | None  # by the explanation of the submission
    penalty_sum_ms: float  # Proposition 1: never negative
    penalty_mean_ms: float  # a message
    penalty_p99_ms: float
    one_bucket_p99_ms: float
    lateness_p99_ms: float
    histogram: str
    reasons: list[str] = field(default_factory=list)  # why it does not count

    @property
    def kept(self) -> bool:
        return self.worst_p99_ms <= PROMISE_MS

    def row(self) -> dict[str, Any]:
        return {"name": f"{self.workload}, {self.side}", **asdict(self), "kept": self.kept, "valid": not self.reasons}


def chosen(names: Sequence[str]) -> list[str]:
    """Workloads by name; all of them where none is named. Raises BadInput."""
    for name in names:
        if name not in WORKLOADS:
            raise BadInput("workload", name, f"must be one of {', '.join(WORKLOADS)}")
    return list(dict.fromkeys(names)) or list(WORKLOADS)


def shortcomings(runs: Sequence[PlacementRun]) -> list[str]:
    """What must not be: a run that does not count, a message lost, SRTM with a larger penalty than lb."""
    found = [f"{run.workload}, {run.side}: {reason}" for run in runs for reason in run.reasons]
    found += [f"{run.workload}, {run.side}: {run.lost} messages were lost" for run in runs if run.lost]
    by_name = {(run.workload, run.side): run for run in runs}
    for workload in dict.fromkeys(run.workload for run in runs):
        lb, srtm = by_name[workload, "lb"], by_name[workload, "srtm"]
        if srtm.penalty_mean_ms > lb.penalty_mean_ms:
            found.append(f"{workload}: SRTM's DRL penalty is not below that of lb")
    return found


async def placement(options: PlacementOptions, say: Callable[[str], None]) -> list[str]:
    """All runs; the table and the pictures at the end. Returns ``shortcomings``. Raises Unavailable, PeerError."""
    started = time.time()
    runs: list[PlacementRun] = []
    lab = ["--lab-service-time", str(SERVICE_US)]
    with TemporaryDirectory(prefix="srtm-placement-") as data:
        async with (
            cluster(brokers=BROKERS, mcap=MCAP * options.scale, data=Path(data), broker_options=lab) as running,
            DistributorClient(running.distributor, timeout_s=60.0) as client,
        ):
            await _reserve(client, options.reserved)
            for name in options.workloads:
                burst = await trio.to_thread.run_sync(_burst, WORKLOADS[name], options)
                for side in SIDES:
                    run = await _Run(running, client, WORKLOADS[name], side, burst, options).counted()
                    runs.append(run)
                    say(_line(run))
    setting = Setting(options.publishers, options.seconds, MCAP * options.scale, options.reserved)
    text = block(runs, setting, started)
    say(text)
    pictures = options.png or (options.document.parent / "img" / f"{BLOCK}.png" if options.document else None)
    if pictures is not None:
        await trio.to_thread.run_sync(draw, pictures, runs)
        say(f"pictures: {pictures}")
    if options.document is not None:
        write_block(options.document, BLOCK, text)
    missing = shortcomings(runs)
    if options.json_file is not None:
        write_results(options.json_file, _results(options, runs, missing, started))
    return missing


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


def _document(workload: Workload, side: Side, burst: float | str, publishers: int) -> Json:
    return {
        "name": f"{workload.name}-{side.name}".replace(", ", "-"),
        "rate": publishers * EACH * HEADROOM,
        "burst": burst,
        "placement": side.placement,
        "split": side.split,
        "mode": "static",
        "slo": {"percentile": PERCENTILE, "latency_ms": PROMISE_MS},
        "publishers": [
            {
                "count": publishers,
                "rate": EACH,
                "group_size": GROUP,
                "process": workload.process,
                "batch": workload.batch,
            }
        ],
    }


def _burst(workload: Workload, options: PlacementOptions) -> float:
    spec = parse_topic_json(_document(workload, SIDES[0], "auto", options.publishers))
    return float(smallest_burst(spec.publishers, spec.rate, spec.slo.percentile))


@dataclass(frozen=True)
class _Run:
    """Submitted under a name of its own, for a bucket is full only at a topic's first grant; sent, recorded,
    removed."""

    cluster: Cluster
    client: DistributorClient
    workload: Workload
    side: Side
    burst: float
    options: PlacementOptions

    async def counted(self) -> PlacementRun:
        """The first that counts, else the last."""
        run = await self._measured(1)
        for number in range(2, TRIES + 1):
            if not run.reasons:
                break
            run = await self._measured(number)
        return run

    async def _measured(self, number: int) -> PlacementRun:
        document = _document(self.workload, self.side, self.burst, self.options.publishers)
        name = document["name"] = f"{document['name']}-{number}"
        view = await self.client.create_or_change_topic(name, document)
        predicted = view["explanation"]["predicted"]["access_ms"]
        view = await self._settled(name, view)
        started_ns = time.monotonic_ns()
        traffic = plan_of(
            name,
            await self.client.publishers(name),
            self._addresses,
            seconds=self.options.seconds,
            warmup_s=WARMUP_S,
            seed=self.options.seed,
            slo_ms=PROMISE_MS,
            percentile=PERCENTILE,
        )
        result = await run_plan(traffic)
        used = {place["broker"] for place in view["brokers"]}
        traces = {
            place.name: await fetch_trace(place.http_address, name)
            for place in self.cluster.brokers
            if place.name in used
        }
        await self.client.remove_topic(name, purge=True)
        measured = without_warmup(traces, started_ns, WARMUP_S)
        return run_of(self.workload, self.side, view, result, measured, predicted)

    async def _settled(self, name: str, view: Json) -> Json:
        """Once every broker has its share in force. Raises Unavailable."""
        with trio.move_on_after(SETTLED_WITHIN_S):
            while not _in_force(view):
                await trio.sleep(_POLL_S)
                view = await self.client.topic(name)
            return view
        raise Unavailable(f"{name} was not in force within {SETTLED_WITHIN_S:g} s: {view['state']}, {view['reason']}")

    @property
    def _addresses(self) -> dict[str, str]:
        return {place.name: place.tcp_address for place in self.cluster.brokers}


def _in_force(view: Json) -> bool:
    places = view["brokers"]
    return view["state"] == "placed" and all(one["applied_version"] == one["share_version"] for one in places)


def run_of(
    workload: Workload,
    side: Side,
    view: Json,
    result: RunResult,
    measured: dict[str, Trace],
    predicted_ms: float | None,
) -> PlacementRun:
    """``measured``: traces of the measured part, by broker."""
    cost = penalty_of(view, measured)
    return PlacementRun(
        workload=workload.name,
        side=side.name,
        brokers=len(measured),
        assigned=[place["rate_assigned"] for place in view["brokers"]],
        burst=view["burst"],
        sent=result.sent,
        received=result.received,
        lost=result.lost,
        duplicates=result.duplicates,
        p50_ms=result.p50_ms,
        p99_ms=result.p99_ms,
        p999_ms=result.p999_ms,
        worst_p99_ms=max(target.p99_ms for target in result.targets),
        access_p99_ms=max(percentile_ms(trace.access_ns, PERCENTILE) for trace in measured.values()),
        processing_p99_ms=max(_processing_ms(trace) for trace in measured.values()),
        predicted_access_p99_ms=predicted_ms,
        penalty_sum_ms=cost.sum_ns / 1e6,
        penalty_mean_ms=cost.mean_ns / 1e6,
        penalty_p99_ms=cost.p99_ns / 1e6,
        one_bucket_p99_ms=cost.one.p99_ns / 1e6,
        lateness_p99_ms=result.lateness_p99_ms,
        histogram=result.histograms.latency,
        reasons=list(result.reasons),
    )


def _processing_ms(trace: Trace) -> float:
    sent = trace.sent_ns > 0
    return percentile_ms(np.maximum(trace.sent_ns[sent] - trace.due_ns[sent], 0), PERCENTILE)


def _line(run: PlacementRun) -> str:
    state = f"does not count: {'; '.join(run.reasons)}" if run.reasons else "kept" if run.kept else "broken"
    return (
        f"{run.workload}, {run.side}: {run.brokers} brokers, p99 {run.worst_p99_ms:.2f} ms (access "
        f"{run.access_p99_ms:.2f}), DRL penalty {run.penalty_mean_ms:.3f} ms a message: {state}"
    )


def _results(options: PlacementOptions, runs: Sequence[PlacementRun], missing: list[str], started: float) -> Results:
    settings = {
        "seconds": options.seconds,
        "publishers": options.publishers,
        "rate_each": EACH,
        "group": GROUP,
        "brokers": BROKERS,
        "mcap": MCAP,
        "reserved": RESERVED,
        "lab_service_time_us": SERVICE_US,
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
