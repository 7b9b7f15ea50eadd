"""``srtm bench overhead``: what it costs in processor time that shares follow the traffic.

Six real brokers, 1,000 topics. Some have traffic that goes on to the next broker every few seconds; the others are
there and idle. The same traffic is played in turns under ``static``, where nobody reports histories or proposes shares,
and under ``fitted``. What adaptor, distributor and brokers take more under ``fitted`` is the price of reports and
updates; the rest is that of the messages and of a cluster of so many topics. User and system time of the processes.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import msgspec
import trio

from bench.document import MEASURED, markdown_table, write_block
from bench.provenance import provenance
from bench.results import Results, write_results
from bench.run import RunProgress
from bench.systems import cpu_s
from bench.verdict import Check, Verdict
from bench.workload import Plan, Publishers, Subscriber
from srtm._native import LoadGen
from srtm.distributor_client import DistributorClient, Json
from srtm.errors import Unavailable
from srtm.http_client import HttpClient
from srtm.supervisor import Cluster, cluster

BLOCK = "overhead"
BROKERS = 6
LIMIT_PERCENT = 1.0  # of one core
MODES = ("static", "fitted")
RATE, BURST = 110.0, 24.0  # of each topic
LOAD = 100.0  # msg/s of one with traffic
_MCAP = 50_000.0
_AT_ONCE = 4  # topics that are made or changed at a time
_READY_S = 120.0
_SETTLE_S = 5.0  # after a change of mode
_SENT_SHARE = 0.99
_DEVIATIONS = 3  # of a Poisson number, below its mean: one turn of a thousand


@dataclass(frozen=True)
class OverheadOptions:
    topics: int = 1_000
    moving: int = 20  # of these, with traffic
    every_s: float = 5.0  # it stays with a broker
    seconds: float = 30.0  # of a turn
    turns: int = 3  # of each mode
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # to write the table into


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Processor time while it lasted, in percent of one core."""

    mode: str
    number: int
    adaptor: float
    distributor: float
    brokers: float  # all together
    changes: int  # of shares
    sent: int  # messages, as the generators say
    planned: int  # in the mean: traffic is Poisson

    @property
    def total(self) -> float:
        return self.adaptor + self.distributor + self.brokers

    @property
    def reasons(self) -> list[str]:
        """Why it does not count: less traffic than planned costs less, and chance does not explain it."""
        if self.sent >= _SENT_SHARE * self.planned - _DEVIATIONS * math.sqrt(self.planned):
            return []
        rule = f"less than {100 * _SENT_SHARE:g} % of the plan by more than {_DEVIATIONS} standard deviations"
        return [f"{self.mode}, turn {self.number}: sent {self.sent:,} of {self.planned:,} messages, {rule}"]


PARTS = ("adaptor", "distributor", "brokers", "total")


async def overhead(options: OverheadOptions, show: Callable[[str], None]) -> Verdict:
    """All turns on one cluster. Raises Unavailable."""
    started = time.time()
    names = [f"topic-{number}" for number in range(options.topics)]
    turns = []
    async with _cluster() as (running, client):
        await _for_each(names, lambda name: client.create_or_change_topic(name, topic_document(name)))
        await _until_in_force(client)
        for number in range(options.turns):
            for mode in MODES:
                await _for_each(names, partial(_set_mode, client, mode))
                await trio.sleep(_SETTLE_S)
                turn = await _turn(running, mode, number, names[: options.moving], options)
                turns.append(turn)
                show(", ".join([f"{mode}, turn {number}", *(f"{part} {getattr(turn, part):.2f} %" for part in PARTS)]))
    verdict = judged(turns)
    text = f"{claim(options)}\n\n{markdown(turns)}\n\n{verdict.line}."
    show(f"\n{text}")
    settings = {key: value for key, value in asdict(options).items() if key not in ("json_file", "document")}
    results = Results.of_verdicts("bench overhead", [verdict], seed=options.seed, started=started, settings=settings)
    if options.document is not None:
        write_results(str(MEASURED / "overhead.json"), results)
        write_block(options.document, BLOCK, f"{text}\n\n{provenance(started)}")
    if options.json_file is not None:
        write_results(options.json_file, results)
    return verdict


def claim(options: OverheadOptions) -> str:
    return (
        f"{options.topics:,} topics on {BROKERS} real brokers, each topic on all of them; {options.moving} have "
        f"{LOAD:g} msg/s, which go on to the next broker every {options.every_s:g} s. User and system time in percent "
        f"of one core, median of {options.turns} turns of {options.seconds:g} s."
    )


def judged(turns: Sequence[Turn]) -> Verdict:
    """What ``fitted`` takes more than ``static``, against its limit; and whether there was anything to follow."""
    more = _median(turns, "fitted", "total") - _median(turns, "static", "total")
    changes = min(turn.changes for turn in turns if turn.mode == "fitted")
    checks = [
        Check(
            "reports and updates",
            f"{more:.2f} % of a core",
            f"below {LIMIT_PERCENT:g} % of a core",
            more < LIMIT_PERCENT,
        ),
        Check("changes of shares in the quietest turn", f"{changes}", "at least 1", changes > 0),
    ]
    rows: list[dict[str, object]] = [{"name": f"{turn.mode}, {turn.number}", **asdict(turn)} for turn in turns]
    reasons = [reason for turn in turns for reason in turn.reasons]
    return Verdict(BLOCK, "following the traffic costs next to nothing", checks, rows, reasons=reasons)


def markdown(turns: Sequence[Turn]) -> str:
    rows = [
        [mode, *(f"{_median(turns, mode, part):.2f}" for part in PARTS), f"{_median(turns, mode, 'changes'):,.0f}"]
        for mode in MODES
    ]
    more = [_median(turns, "fitted", part) - _median(turns, "static", part) for part in PARTS]
    rows.append(["more under fitted", *(f"{value:.2f}" for value in more), ""])
    return markdown_table(["mode", *PARTS, "changes of shares"], rows)


def _median(turns: Sequence[Turn], mode: str, part: str) -> float:
    return statistics.median(float(getattr(turn, part)) for turn in turns if turn.mode == mode)


def topic_document(name: str) -> Json:
    """A publisher for each broker, so that it is on all."""
    return {
        "name": name,
        "rate": RATE,
        "burst": BURST,
        "mode": "static",
        "placement": "lb",
        "slo": {"percentile": 99, "latency_ms": 50},
        "publishers": [{"count": BROKERS, "rate": LOAD / BROKERS, "id_prefix": "declared-"}],
    }


def part_of_traffic(topic: str, at: int, addresses: Sequence[str], seconds: float, seed: int) -> Plan:
    """All of a topic's traffic on broker ``at``, of publishers that it does not name."""
    return Plan(
        topic=topic,
        targets=[addresses[at]],
        publishers=Publishers(
            ids=[f"moving-{number}" for number in range(10)],
            target=[0] * 10,
            rate=[LOAD / 10] * 10,
            batch=[1] * 10,
            group=[-1] * 10,
            process=["poisson"] * 10,
        ),
        subscribers=[Subscriber(target=0)],
        duration_s=seconds,
        warmup_s=0.0,
        drain_s=0.0,
        seed=seed,
    )


async def _turn(running: Cluster, mode: str, number: int, moving: Sequence[str], options: OverheadOptions) -> Turn:
    addresses = [place.tcp_address for place in running.brokers]
    before, changes, started_s = _cpu(running), await _changes(running), trio.current_time()
    sent = 0
    for leg in range(_legs(options)):
        seed = options.seed * 1_000_000 + number * 10_000 + leg * 100
        plans = [
            part_of_traffic(topic, (at + leg) % BROKERS, addresses, options.every_s, seed + at)
            for at, topic in enumerate(moving)
        ]
        sent += await play(plans, started_s + (leg + 1) * options.every_s)
    took_s, after = trio.current_time() - started_s, _cpu(running)
    return Turn(
        mode=mode,
        number=number,
        changes=await _changes(running) - changes,
        sent=sent,
        planned=round(LOAD * options.every_s) * len(moving) * _legs(options),
        **{part: 100 * (after[part] - before[part]) / took_s for part in before},
    )


def _legs(options: OverheadOptions) -> int:
    return round(options.seconds / options.every_s)


async def play(plans: Sequence[Plan], until_s: float) -> int:
    """All at once, stopped at ``until_s`` of trio's clock; how many messages were sent by then."""
    with ExitStack() as stops:
        generators = []
        for plan in plans:
            generator = LoadGen(msgspec.json.encode(plan))
            stops.callback(generator.stop)
            generator.start()
            generators.append(generator)
        await trio.sleep_until(until_s)
        return sum(msgspec.json.decode(one.progress(), type=RunProgress).sent for one in generators)


def _cpu(running: Cluster) -> dict[str, float]:
    """Seconds so far. Raises Unavailable where a process is gone."""
    found = {"adaptor": 0.0, "distributor": 0.0, "brokers": 0.0}
    for child in running.children():
        if child.pid is None:
            raise Unavailable(f"{child.name} does not run: {child.last_words()}")
        found[child.name if child.name in found else "brokers"] += cpu_s(child.pid, child.name)
    return found


async def _changes(running: Cluster) -> int:
    """Of shares, on the adaptor's proposals, since the distributor's start."""
    client = HttpClient(running.distributor)
    try:
        _, body = await client.request("GET", "/metrics", timeout_s=_READY_S)
    finally:
        await client.aclose()
    lines = [line for line in body.decode().splitlines() if line.startswith("srtm_share_changes_total{")]
    return round(sum(float(line.rpartition(" ")[2]) for line in lines))


async def _for_each(names: Sequence[str], do: Callable[[str], Awaitable[object]]) -> None:
    """A few at a time."""
    queue = iter(names)

    async def work() -> None:
        for name in queue:
            await do(name)

    async with trio.open_nursery() as nursery:
        for _ in range(_AT_ONCE):
            nursery.start_soon(work)


async def _set_mode(client: DistributorClient, mode: str, name: str) -> None:
    await client.set_options(name, {"mode": mode})


async def _until_in_force(client: DistributorClient) -> None:
    """Raises Unavailable."""
    with trio.move_on_after(_READY_S):
        while True:
            views = await client.topics()
            if all(
                place["applied_version"] == place["share_version"] for view in views for place in view["brokers"]
            ) and all(len(view["brokers"]) == BROKERS for view in views):
                return
            await trio.sleep(1.0)
    raise Unavailable(f"not all shares were in force within {_READY_S:g} s")


@asynccontextmanager
async def _cluster() -> AsyncIterator[tuple[Cluster, DistributorClient]]:
    with tempfile.TemporaryDirectory(prefix="srtm-overhead-") as folder:
        async with (
            cluster(brokers=BROKERS, mcap=_MCAP, data=Path(folder)) as running,
            DistributorClient(running.distributor, timeout_s=_READY_S) as client,
        ):
            yield running, client
