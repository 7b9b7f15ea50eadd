"""Table 1 of the paper on real brokers: how long it takes to fit a topic whose groups fire together, and what comes of
it.

1,000 publishers of 10 msg/s in batches of 10; groups of 5 to 30 fire together, in turn. Every broker is in the
laboratory: a message takes it as long as one of the paper's took theirs, about, so that k runs from 1 to 6. The
generator follows the assignments: where they change, its connections are made anew.

The pair of service time L and promise P. With the paper's k brokers a burst leaves 50 messages at each; on one broker
fewer 60 (groups of 30) to 100 (of 10). So P lies between 50 L and 60 L. Room is needed on both sides: above 50 L for
what the machine adds to the last message of a burst (0.2 to 0.5 ms end to end, on 2 cores that generator and brokers
share), below 60 L for the 0.2 ms in which the generator sends a burst: for that long its last message has not waited.
L = 84 us and P = 4.95 ms leave 0.75 and 0.09 ms, 72 us and 4.2 ms 0.6 and 0.1; L = 18 us and P = 1 ms, those of the
simulation, 0.1 and 0.08. A longer L loads the one broker on which all begins more (84 and 72 %), and it catches up more
slowly with what a stop of the machine has left. With ``realtime`` reactors and generator go before whatever else runs
there: the p99 is then that of the layout.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from bench.comparisons.rows.turns import TRIES
from bench.experiments.table1.rows import (
    BATCH,
    ENVELOPE,
    LATENCY_MS,
    PAPER,
    PAPER_S,
    PERCENTILE,
    PUBLISHERS,
    RATE_PER_S,
    SEQUENTIAL,
    Row,
    burst_of,
    file_of,
    keep,
    kept,
)
from bench.experiments.table1.view import Shown, conditions_of, line, show_and_write
from bench.harness.cluster_runs.placed_run import addresses
from bench.harness.load.run import RunResult, run_plan
from bench.harness.load.run_files import runs_beside
from bench.harness.load.workload import Plan, Publishers, Subscriber
from bench.harness.results.publish import refuse_unpublishable
from bench.harness.results.sources import source_commit, source_fingerprint
from srtm.client.distributor import DistributorClient, Json
from srtm.cluster.supervisor import Cluster, cluster
from srtm.control import FITTING_ENDED
from srtm.errors import BadInput, Unavailable

TOPIC, BLOCK = "table1", "table1"
_LONG_S = 3_600.0  # of a plan that is cut short when assignments change
_LOOK_S = 0.1
_AFTERWARDS = "afterwards"  # the run that is measured, among its files
_FLOWS_WITHIN_S = 20.0


@dataclass(frozen=True)
class Table1Options:
    rows: Sequence[int] = tuple(PAPER_S)  # group sizes
    paper_rows: Sequence[int] = ()  # those that are fitted as in the paper besides
    rounds_s: float = 60.0  # of the paper's fitting
    after_s: float = 60.0
    brokers: int = 8
    service_us: float = 18.0
    promise_ms: float = LATENCY_MS  # a machine that stops for parts of a ms cannot show the paper's 1 ms
    realtime: bool = False  # reactors and generator go before all ordinary work of the machine
    seed: int = 1
    directory: Path = Path("table1")  # a file for each row
    resume: bool = False  # keep those that are there, of these sources
    json_file: str | None = None
    document: Path | None = None  # of pages, to write there as well

    @property
    def asked(self) -> Iterator[tuple[int, str]]:
        """(group size, method)"""
        yield from ((group, SEQUENTIAL) for group in self.rows)
        yield from ((group, PAPER) for group in self.paper_rows)

    def check(self) -> None:
        """Raises BadInput where there is nothing to do, or no place for what is found."""
        if not (self.rows or self.paper_rows):
            raise BadInput("rows", "", "must name a row at least, or paper-rows must")


async def table1(options: Table1Options, show: Callable[[str], None]) -> bool:
    """All that is asked for, one after the other; the table is shown at the end. Whether every row is reached. Raises
    BadInput (a row that is kept was made with other settings, or is none), Unavailable."""
    options.check()
    refuse_unpublishable(options.document)
    started, sources, settings = time.time(), source_fingerprint(), settings_of(options)
    options.directory.mkdir(parents=True, exist_ok=True)
    found = {
        asked: row
        for asked in options.asked
        if options.resume and (row := kept(options.directory, *asked, settings, sources)) is not None
    }
    for row in found.values():
        show(f"{line(row)} (kept)")
    for group, method in options.asked:
        if (group, method) not in found:
            with runs_beside(file_of(options.directory, group, method)):
                found[group, method] = await fit_row(group, method, options)
            keep(options.directory, found[group, method])
            show(line(found[group, method]))
    rows = [found[asked] for asked in options.asked]
    conditions = conditions_of(settings, "end to end")
    shown = Shown(name=BLOCK, conditions=conditions, rows=rows, settings=settings, seed=options.seed, started=started)
    return show_and_write(shown, show, options.json_file, options.document)


def settings_of(options: Table1Options) -> dict[str, float | bool]:
    """What all rows have in common; a row that is kept was made with the same."""
    return {
        "brokers": options.brokers,
        "service_us": options.service_us,
        "promise_ms": options.promise_ms,
        "rounds_s": options.rounds_s,
        "after_s": options.after_s,
        "realtime": options.realtime,
        "rate": ENVELOPE,
        "seed": options.seed,
    }


async def fit_row(group: int, method: str, options: Table1Options) -> Row:
    with TemporaryDirectory(prefix="srtm-table1-") as folder:
        laboratory = ["--lab-service-time", f"{options.service_us:g}", *(["--realtime"] if options.realtime else [])]
        capacity = 100 * ENVELOPE  # no limit: it is found by measurement
        async with (
            cluster(
                brokers=options.brokers, mcap=capacity, data=Path(folder) / "data", broker_options=laboratory
            ) as running,
            DistributorClient(running.distributor) as client,
        ):
            return await _fit(group, method, options, running, client)


async def _fit(group: int, method: str, options: Table1Options, running: Cluster, client: DistributorClient) -> Row:
    topic = document(group, options.promise_ms)
    await client.create_or_change_topic(TOPIC, topic, fitting="off")
    async with _traffic(client, running, group, options):
        await _wait_flowing(client)
        rounds_s = options.rounds_s if method == PAPER else None
        await client.create_or_change_topic(TOPIC, topic, fitting=method, rounds_s=rounds_s)
        found = await _ended(client)
    assigned = await client.publishers(TOPIC)
    traffic = plan(assigned, addresses(running), group, options.seed, options.after_s, options.promise_ms)
    after, tries = await _measured(traffic, options)
    return row_of(group, method, found, assigned, after, tries, options)


async def _measured(traffic: Plan, options: Table1Options) -> tuple[RunResult, int]:
    """The first run that counts, and how many it took. One in which brokers lost or refused something stands."""
    after, tries = await run_plan(traffic, name=_AFTERWARDS, realtime=options.realtime), 1
    while tries < TRIES and not (after.valid or after.lost or after.refused):
        after, tries = await run_plan(traffic, name=_AFTERWARDS, realtime=options.realtime), tries + 1
    return after, tries


def row_of(
    group: int, method: str, found: Json, assigned: Json, after: RunResult, tries: int, options: Table1Options
) -> Row:
    """``found``: the fitting as the distributor shows it; ``assigned``: publishers, in columns; ``after``: the time
    afterwards."""
    rates: dict[str, float] = {}
    for name, rate in zip(assigned["brokers"], assigned["rates"], strict=True):
        if name is not None:
            rates[name] = rates.get(name, 0.0) + rate
    heard = bool(after.targets) and all(one.received for one in after.targets)
    run = after.row("")
    return Row(
        group=group,
        method=method,
        state=found["state"],
        certain=found["certain"],
        took_s=found["took_s"],
        rounds=tuple((one["brokers"], one["took_s"]) for one in found["rounds"]),
        assigned=tuple(rates[name] for name in sorted(rates)),
        worst_p99_ms=max(one.p99_ms for one in after.targets) if heard else None,
        service_us=options.service_us,
        promise_ms=options.promise_ms,
        lost=after.lost + after.refused,
        reasons=tuple(after.reasons),
        tries=tries,
        explanation=tuple(found["explanation"]) or (found["reason"],),
        run=run,
        settings=settings_of(options),
        commit=source_commit(),
        sources=source_fingerprint(),
    )


@asynccontextmanager
async def _traffic(
    client: DistributorClient, running: Cluster, group: int, options: Table1Options
) -> AsyncIterator[None]:
    """Publishers send from the brokers that they are assigned to, while the block runs."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_follow, client, running, group, options)
        yield
        nursery.cancel_scope.cancel()


async def _follow(client: DistributorClient, running: Cluster, group: int, options: Table1Options) -> None:
    while True:
        assigned = await client.publishers(TOPIC)
        traffic = plan(assigned, addresses(running), group, options.seed, _LONG_S)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(run_plan, traffic, realtime=options.realtime))
            while (await client.publishers(TOPIC))["brokers"] == assigned["brokers"]:  # noqa: ASYNC110 - another process
                await trio.sleep(_LOOK_S)
            nursery.cancel_scope.cancel()


async def _wait_flowing(client: DistributorClient) -> None:
    """Until a broker has told of messages. Raises Unavailable."""
    with trio.move_on_after(_FLOWS_WITHIN_S):
        while True:
            reports = [part["report"] for part in (await client.topic(TOPIC))["brokers"]]
            if any(report and report["last_60s"]["total"]["count"] for report in reports):
                return
            await trio.sleep(_LOOK_S)
    raise Unavailable(f"no message of topic {TOPIC} arrived within {_FLOWS_WITHIN_S:g} s")


async def _ended(client: DistributorClient) -> Json:
    while True:
        found = await client.fitting(TOPIC)
        if found["state"] in FITTING_ENDED:
            return found
        await trio.sleep(_LOOK_S)


def document(group: int, promise_ms: float = LATENCY_MS) -> dict[str, object]:
    """The topic as it is submitted."""
    model = {"count": PUBLISHERS, "rate": RATE_PER_S, "group_size": group, "batch": BATCH, "process": "periodic"}
    slo = {"percentile": PERCENTILE, "latency_ms": promise_ms}
    bucket = {"rate": ENVELOPE, "burst": burst_of(group)}
    return {"name": TOPIC, **bucket, "mode": "static", "slo": slo, "publishers": [{**model, "id_prefix": "p"}]}


def plan(
    assigned: Json, where: dict[str, str], group: int, seed: int, duration_s: float, promise_ms: float = LATENCY_MS
) -> Plan:
    """What the generator sends: of every publisher that has a broker, there. ``assigned``: columns."""
    used = sorted({name for name in assigned["brokers"] if name is not None})
    index = {name: at for at, name in enumerate(used)}
    at = [number for number, name in enumerate(assigned["brokers"]) if name is not None]
    return Plan(
        topic=TOPIC,
        targets=[where[name] for name in used],
        publishers=Publishers(
            ids=[assigned["ids"][number] for number in at],
            target=[index[assigned["brokers"][number]] for number in at],
            rate=[RATE_PER_S] * len(at),
            batch=[BATCH] * len(at),
            group=[number // group for number in at],
            process=["staggered"] * len(at),
        ),
        subscribers=[Subscriber(target=number) for number in range(len(used))],
        duration_s=duration_s,
        seed=seed,
        slo_ms=promise_ms,
        percentile=PERCENTILE,
    )
