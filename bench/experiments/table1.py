"""Table 1 of the paper on real brokers: how long it takes to fit a topic whose groups fire together, and what comes of
it.

1,000 publishers of 10 msg/s in batches of 10; groups of 5 to 30 fire together, in turn. Every broker is in the
laboratory: a message takes it as long as one of the paper's took theirs, about, so that k runs from 1 to 6. The
generator follows the assignments: where they change, its connections are made anew.

The pair of service time L and promise P. With the paper's k brokers a burst leaves 50 messages at each; on one broker
fewer 60 (groups of 30) to 100 (of 10). So P lies between 50 L and 60 L. Room is needed on both sides: above 50 L for
what the machine adds to the last message of a burst (0.2 to 0.5 ms end to end, on 2 cores that generator and brokers
share), below 60 L for the 0.2 ms in which the generator sends a burst: for that long its last message has not waited.
L = 72 us and P = 4.2 ms leave 0.6 and 0.1 ms; L = 18 us and P = 1 ms, those of the simulation, 0.1 and 0.08. A longer L
loads the one broker of the first row more (72 %), and it catches up more slowly with what a stop of the machine has
left. With ``realtime`` reactors and generator go before whatever else runs there: the p99 is then that of the layout.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio

from bench.document import markdown_table, write_block
from bench.provenance import provenance
from bench.results import Results, write_results
from bench.run import RunResult, run_plan
from bench.workload import Plan, Publishers, Subscriber
from srtm.distributor_client import DistributorClient, Json
from srtm.errors import Unavailable
from srtm.supervisor import Cluster, cluster

PAPER_S = {5: 64, 10: 189, 15: 558, 20: 745, 25: 871, 30: 1058}  # {group size: Table 1, "time"}
PART = 20  # ours is to take at most one in so many of that
TOPIC, BLOCK = "table1", "table1"
PUBLISHERS, RATE_PER_S, BATCH = 1_000, 10.0, 10
ENVELOPE, BURST = 11_000.0, 1_600.0
PERCENTILE, LATENCY_MS = 99, 1.0
CLAIM = (
    "1,000 publishers of 10 msg/s in batches of 10, groups firing together in turn, r = 11,000, b = 1,600, p99 <= "
    "{promise_ms:g} ms, {brokers} brokers with a service time of {service_us:g} us; p99 end to end over {after_s:g} s "
    "afterwards."
)
REALTIME = " Reactors and generator before all ordinary work of the machine (`--realtime`)."
_LONG_S = 3_600.0  # of a plan that is cut short when assignments change
_LOOK_S = 0.1
_FLOWS_WITHIN_S = 20.0
_ENDED = ("fits", "does not fit", "failed", "off")


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
    json_file: str | None = None
    document: Path | None = None  # to write the table into


@dataclass(frozen=True)
class Fitted:
    """One row fitted one way, and measured afterwards."""

    group: int
    method: str
    found: Json  # the fitting as the distributor shows it
    after: RunResult
    promise_ms: float = LATENCY_MS

    @property
    def brokers(self) -> int:
        return int(self.found["brokers"] or 0)

    @property
    def worst_p99_ms(self) -> float:
        """Of the brokers: the promise is judged by each."""
        return max((one.p99_ms for one in self.after.targets if one.received), default=0.0)

    @property
    def reached(self) -> bool:
        """Whether it fits, keeps the promise afterwards, and was as fast as is asked (the paper's way need not be)."""
        fast = self.method == "paper" or self.found["took_s"] <= PAPER_S[self.group] / PART
        return self.found["state"] == "fits" and fast and self.worst_p99_ms <= self.promise_ms

    def row(self) -> dict[str, Any]:
        return {
            **self.after.row(f"groups of {self.group}, {self.method}"),
            "group": self.group,
            "method": self.method,
            "state": self.found["state"],
            "certain": self.found["certain"],
            "took_s": self.found["took_s"],
            "paper_s": PAPER_S[self.group],
            "rounds": len(self.found["rounds"]),
            "brokers": self.brokers,
            "worst_p99_ms": self.worst_p99_ms,
            "reached": self.reached,
            "explanation": self.found["explanation"],
        }


async def table1(options: Table1Options, show: Callable[[str], None]) -> list[Fitted]:
    """All that is asked for, one after the other; the table is shown at the end."""
    started, found = time.time(), []
    asked = [(group, "sequential") for group in options.rows] + [(group, "paper") for group in options.paper_rows]
    for group, method in asked:
        found.append(await fit_row(group, method, options))
        show(_line(found[-1]))
    claim = claim_of(options)
    text = f"{claim}\n\n{markdown(found, options)}"
    show(text)
    if options.document is not None:
        write_block(options.document, BLOCK, f"{text}\n\n{provenance(started)}")
    if options.json_file is not None:
        reasons = [f"groups of {one.group}: {reason}" for one in found for reason in one.after.reasons]
        rows, settings = [one.row() for one in found], settings_of(options)
        results = Results.of(
            "bench table1", rows, seed=options.seed, started=started, settings=settings, reasons=reasons
        )
        write_results(options.json_file, results)
    return found


def claim_of(options: Table1Options) -> str:
    claim = CLAIM.format(
        brokers=options.brokers,
        service_us=options.service_us,
        after_s=options.after_s,
        promise_ms=options.promise_ms,
    )
    return claim + (REALTIME if options.realtime else "")


def settings_of(options: Table1Options) -> dict[str, float]:
    """What all rows have in common."""
    return {
        "brokers": options.brokers,
        "lab_service_time_us": options.service_us,
        "promise_ms": options.promise_ms,
        "rounds_s": options.rounds_s,
        "after_s": options.after_s,
        "realtime": options.realtime,
        "rate": ENVELOPE,
        "burst": BURST,
    }


async def fit_row(group: int, method: str, options: Table1Options) -> Fitted:
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


async def _fit(group: int, method: str, options: Table1Options, running: Cluster, client: DistributorClient) -> Fitted:
    topic = document(group, options.promise_ms)
    await client.create_or_change_topic(TOPIC, topic, fitting="off")
    async with _traffic(client, running, group, options):
        await _wait_flowing(client)
        rounds_s = options.rounds_s if method == "paper" else None
        await client.create_or_change_topic(TOPIC, topic, fitting=method, rounds_s=rounds_s)
        found = await _ended(client)
    assigned = await client.publishers(TOPIC)
    traffic = plan(assigned, addresses(running), group, options.seed, options.after_s, options.promise_ms)
    after = await run_plan(traffic, realtime=options.realtime)
    return Fitted(group, method, found, after, options.promise_ms)


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
        if found["state"] in _ENDED:
            return found
        await trio.sleep(_LOOK_S)


def document(group: int, promise_ms: float = LATENCY_MS) -> dict[str, object]:
    """The topic as it is submitted."""
    model = {"count": PUBLISHERS, "rate": RATE_PER_S, "group_size": group, "batch": BATCH, "process": "periodic"}
    slo = {"percentile": PERCENTILE, "latency_ms": promise_ms}
    publishers = [{**model, "id_prefix": "p"}]
    return {"name": TOPIC, "rate": ENVELOPE, "burst": BURST, "mode": "static", "slo": slo, "publishers": publishers}


def addresses(running: Cluster) -> dict[str, str]:
    return {broker.name: broker.tcp_address for broker in running.brokers}


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


def markdown(found: Sequence[Fitted], options: Table1Options) -> str:
    paper = {one.group: one for one in found if one.method == "paper"}
    header = ["groups of", "paper, s", "a twentieth, s", "ours, s", "rounds", "brokers", "p99 afterwards, ms"]
    header += [f"its way here (rounds of {options.rounds_s:g} s), s", "brokers"] if paper else []
    rows = []
    for one in found:
        if one.method == "paper":
            continue
        sure = "" if one.found["certain"] else " (by the sample)"
        row = [f"{one.group}", f"{PAPER_S[one.group]}", f"{PAPER_S[one.group] / PART:.3g}", _took(one) + sure]
        row += [f"{len(one.found['rounds'])}", f"{one.brokers}", f"{one.worst_p99_ms:.3g}"]
        if paper:
            other = paper.get(one.group)
            row += ["", ""] if other is None else [_took(other), f"{other.brokers}"]
        rows.append(row)
    return markdown_table(header, rows)


def _took(one: Fitted) -> str:
    took = one.found["took_s"]
    return one.found["state"] if took is None else f"{took:.3g}" + ("" if one.found["state"] == "fits" else " (no fit)")


def _line(one: Fitted) -> str:
    return (
        f"groups of {one.group}, {one.method}: {one.found['state']} on {one.brokers} brokers, {_took(one)} s "
        f"({PAPER_S[one.group]} s in the paper); p99 afterwards {one.worst_p99_ms:.3g} ms"
    )
