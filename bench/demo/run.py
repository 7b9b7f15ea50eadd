"""``srtm demo``: 207 real road sensors on three real brokers, twice: spread evenly over all, and placed by SRTM.

Every detector publishes 10 msg/s (Poisson); the detectors of one group fire together: one Poisson process of 10/s for
the group, all its members at each of its instants. Three brokers of ``MCAP`` make exactly two of them necessary.
Arrival, due instant and delivery of every message are measured; the verdict on the promise is shown as it came out.

A run is a sample: with groups this large the p99 of 40 s scatters, whatever the placement. The burst is sized for
that (``burst = "auto"``): of 200 simulated minutes SRTM keeps the promise in at least 184.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import trio
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from bench.console.options import DocumentOption, RunsJsonOption, SeedOption, console
from bench.data.sensors import TOPIC_TOML
from bench.demo.placement_result import Side, shortcomings, side_of
from bench.demo.view import draw, plain, show
from bench.harness.cluster_runs.assigned_traffic import plan_of
from bench.harness.cluster_runs.placed_run import addresses, mqtt_addresses, placed_run
from bench.harness.load.run import RunProgress, RunResult, run_plan
from bench.harness.results.page import Page, Picture
from bench.harness.results.plot import Promise
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import RESULTS, hand_over, refuse_unpublishable
from bench.harness.results.results import Results
from bench.harness.results.sources import PRODUCT
from srtm.client.distributor import DistributorClient, Json
from srtm.cluster.supervisor import Cluster, cluster
from srtm.console.output import refuse_unwritable
from srtm.console.running import run_trio
from srtm.topics.file import read_topic_file
from srtm.topics.spec import Strategy

BLOCK = "demo"
CLAIM = "Every message arrives, and SRTM's p99 access delay is at most that of an even spread (lb)."
BROKERS = 3
MCAP = 1_300.0  # msg/s a broker: 2,070 msg/s need two, and two have room for r = 2,277
PLACEMENTS: tuple[Strategy, ...] = ("lb", "srtm")
TRIES = 2  # of a run that does not count
WARMUP_S = 2.0  # the second topic's bucket starts empty (nothing mints tokens) and fills at r - load: 207 tokens/s
PLACED_WITHIN_S = 10.0
_PLANNED_WITHIN_S = 300.0  # sizing the burst takes 3 s of a processor that has nothing else to do


class Protocol(Enum):
    """What the detectors speak. ``mqtt``: 3.1.1, each with a name of its own, QoS 1."""

    nsq = "nsq"
    mqtt = "mqtt"


@dataclass(frozen=True)
class DemoOptions:
    seconds: float = 40.0  # of measured traffic for each placement
    seed: int = 20
    png: Path = Path("demo.png")
    json_file: str | None = None
    document: Path | None = None  # of pages, to write there as well
    protocol: Protocol = Protocol.nsq


async def demonstrate(options: DemoOptions, people: Console) -> list[str]:
    """Both placements, shown. Returns ``shortcomings``. Raises Unavailable, PeerError, BadInput."""
    refuse_unpublishable(options.document)
    started, sides = time.time(), []
    document = {**read_topic_file(TOPIC_TOML), "mode": "static"}  # placements are compared, nothing else
    mqtt = options.protocol is Protocol.mqtt
    if mqtt:
        document["mqtt"] = {"filters": [f"{document['name']}/+"]}
    promise = Promise(document["slo"]["percentile"] / 100, document["slo"]["latency_ms"])
    with TemporaryDirectory(prefix="srtm-demo-") as data, _progress(people) as progress:
        step = progress.add_task(f"starting {BROKERS} brokers", total=None)
        async with cluster(brokers=BROKERS, mcap=MCAP, data=Path(data), mqtt=mqtt) as running:
            progress.update(step, description="sizing the burst")
            document["burst"] = await _burst(running, document)  # that of SRTM's placement: both have one envelope
            progress.remove_task(step)
            for placement in PLACEMENTS:
                run = _PlacementRun(running, {**document, "placement": placement}, promise, options, progress)
                sides.append(await first_that_counts(run.measure, people))
    missing = shortcomings(*sides)
    await trio.to_thread.run_sync(draw, options.png, sides, promise)
    show(people, sides, promise)
    people.print(f"picture: {options.png}")
    if options.document is not None:
        await trio.to_thread.run_sync(draw, options.document / f"{BLOCK}.png", sides, promise)
    results = _results(options, document, sides, promise, missing, started)
    page = page_of(sides, promise, missing, started)
    hand_over(page, results, name=BLOCK, folder=options.document, json_file=options.json_file)
    return missing


async def first_that_counts(measure: Callable[[], Awaitable[Side]], people: Console) -> Side:
    """The first run that counts, else the last: what a busy machine did says nothing of a placement."""
    side = await measure()
    for _ in range(1, TRIES):
        if not side.reasons:
            break
        people.print(f"{side.placement}: this run does not count ({'; '.join(side.reasons)}), so there is another")
        side = await measure()
    return side


async def _burst(running: Cluster, document: Json) -> float:
    async with DistributorClient(running.distributor, timeout_s=_PLANNED_WITHIN_S) as client:
        return float((await client.plan(document))["burst"])


def page_of(sides: Sequence[Side], promise: Promise, missing: Sequence[str], started: float) -> Page:
    about = "Latency of the same 207 sensors, spread evenly over three brokers and placed by SRTM"
    return Page(
        title="The demo",
        claim=CLAIM,
        verdict=f"{BLOCK}: {'; '.join(missing) or 'reached'}.",
        body=[plain(sides, promise), Picture(file=f"{BLOCK}.png", about=about)],
        sources=[*PRODUCT, "bench/demo"],
        origin=Origin.here(started),
    )


@dataclass(frozen=True)
class _PlacementRun:
    """One placement of the topic on the running cluster: submitted, run, removed."""

    cluster: Cluster
    document: Json
    promise: Promise
    options: DemoOptions
    progress: Progress

    @property
    def topic(self) -> str:
        return str(self.document["name"])

    async def measure(self) -> Side:
        """Raises Unavailable, PeerError."""
        placing = self.progress.add_task(f"{self.document['placement']}: placing {self.topic}", total=None)

        async def send(assignments: Json) -> RunResult:
            self.progress.remove_task(placing)
            return await self._send(assignments)

        async with DistributorClient(self.cluster.distributor, timeout_s=_PLANNED_WITHIN_S) as client:
            run = await placed_run(
                self.cluster, client, self.document, send, warmup_s=WARMUP_S, within_s=PLACED_WITHIN_S
            )
        brokers = list(addresses(self.cluster))
        return side_of(self.document["placement"], run.view, run.assignments, run.result, run.measured, brokers)

    async def _send(self, assignments: Json) -> RunResult:
        mqtt = self.options.protocol is Protocol.mqtt
        plan = plan_of(
            self.topic,
            assignments,
            mqtt_addresses(self.cluster) if mqtt else addresses(self.cluster),
            seconds=self.options.seconds,
            warmup_s=WARMUP_S,
            seed=self.options.seed,
            slo_ms=self.promise.latency_ms,
            percentile=100 * self.promise.share,
        )
        if mqtt:
            plan = msgspec.structs.replace(plan, protocol="mqtt", qos=1, own_names=True)
        step = self.progress.add_task(
            f"{self.document['placement']}: connecting", total=plan.warmup_s + plan.duration_s
        )

        def show(now: RunProgress) -> None:
            heard = f"{now.phase}, {now.received:,} received, p99 {now.p99_ms:.1f} ms"
            text = f"{self.document['placement']}: {heard}"
            self.progress.update(step, description=text, completed=now.elapsed_s)

        result = await run_plan(plan, show, name=self.document["placement"])
        done = (
            f"{self.document['placement']}: {result.received:,} of {result.sent:,} received, p99 {result.p99_ms:.1f} ms"
        )
        self.progress.update(step, description=done, completed=plan.warmup_s + plan.duration_s)
        return result


def _progress(people: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=people)


def _results(
    options: DemoOptions, document: Json, sides: Sequence[Side], promise: Promise, missing: list[str], started: float
) -> Results:
    topic = {name: document[name] for name in ("name", "rate", "slo")}
    return Results.of(
        "demo",
        [side.row(promise) for side in sides],
        seed=options.seed,
        started=started,
        settings={
            "seconds": options.seconds,
            "brokers": BROKERS,
            "mcap": MCAP,
            "protocol": options.protocol.value,
            "topic": topic,
        },
        reasons=[f"{side.placement}: {reason}" for side in sides for reason in side.reasons],
        result={
            "passed": not missing,
            "shortcomings": missing,
            "kept": {side.placement: side.kept(promise) for side in sides},
            "parts": [row for side in sides for row in side.part_rows()],
        },
    )


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def demo(
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Of measured traffic for each placement.")
    ] = DemoOptions.seconds,
    seed: SeedOption = DemoOptions.seed,
    png: Annotated[Path, typer.Option(help="Where the picture goes.")] = DemoOptions.png,
    protocol: Annotated[
        Protocol, typer.Option(help="What the sensors speak; mqtt: 3.1.1, QoS 1, a name each.")
    ] = Protocol.nsq,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """Two minutes: 207 sensors on three brokers, spread evenly and placed by SRTM, side by side."""
    return run_demo(DemoOptions(seconds, seed, png, json_file, RESULTS if document else None, protocol))


def run_demo(options: DemoOptions) -> int:
    """0 if every message arrived, both runs are valid and SRTM's p99 access delay is at most that of lb; else 1.

    A run that does not count is measured once more. If that does not count either nothing is shown, which is said.

    Raises BadInput at once for a file that cannot be written.
    """
    refuse_unwritable("png", str(options.png))
    refuse_unwritable("json", options.json_file)
    people = console(options.json_file)
    missing = run_trio(partial(demonstrate, options, people))
    for reason in missing:
        people.print(f"[bold red]failed:[/] {reason}")
    return 1 if missing else 0
