"""``srtm bench overhead``: what it costs in processor time that shares follow the traffic.

Six real brokers, 1,000 topics, two kinds of traffic. *Steady*: every topic has some, which stays as it is; what is
spent then is spent on looking, and it is this that has a limit. *Shifting*: a few topics have much, which goes on to
the next broker every few seconds; what is spent then is told by the change of shares. Each is played under ``static``,
where nobody reports histories or proposes shares, and under ``fitted``. What adaptor, distributor and brokers take more
under ``fitted`` is the price of reports and updates; the rest is that of the messages and of a cluster of so many
topics. User and system time of the processes.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import trio

from bench.document import MEASURED, markdown_table, write_block
from bench.experiments.overhead_cpu import PARTS, spent_ms
from bench.experiments.overhead_traffic import (
    BROKERS,
    LOAD,
    STEADY_LOADS,
    Playing,
    part_of_traffic,
    play,
    steady_load,
    steady_traffic,
    topic_document,
)
from bench.provenance import provenance
from bench.results import Results, write_results
from bench.verdict import Check, Verdict
from srtm.distributor_client import DistributorClient
from srtm.errors import Unavailable
from srtm.http_client import HttpClient
from srtm.supervisor import Cluster, cluster

BLOCK = "overhead"
LIMIT_PART = 0.01  # of the machine's cores
MODES = ("static", "fitted")
STEADY, SHIFTING = "steady", "shifting"
SCENARIOS = (STEADY, SHIFTING)
_MCAP = 50_000.0
_AT_ONCE = 4  # topics that are made or changed at a time; the distributor places one after the other
_READY_S = 120.0
# Before what counts. Under fitted, until rare messages too are known to be steady: 12 s after the first one. Under
# static as long, for the same traffic costs more after a minute of it than at its beginning.
_SETTLE_S = {STEADY: 35.0, SHIFTING: 5.0}
_SENT_SHARE = 0.99
_DEVIATIONS = 3  # of a Poisson number, below its mean: one turn of a thousand


@dataclass(frozen=True)
class OverheadOptions:
    topics: int = 1_000
    moving: int = 20  # of these, under shifting traffic
    every_s: float = 5.0  # it stays with a broker
    seconds: float = 20.0  # of a turn
    turns: int = 1  # of each kind of traffic under each mode
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # to write the table into


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Processor time while it lasted, in ms a second."""

    scenario: str
    mode: str
    number: int
    adaptor: float
    distributor: float
    brokers: float  # Python of all together
    engines: float  # which carry the messages
    changes: float  # of shares, a second
    sent: int  # messages, as the generators say
    planned: int  # in the mean: traffic is Poisson

    @property
    def total(self) -> float:
        return self.control + self.engines

    @property
    def control(self) -> float:
        """All but the engines."""
        return self.adaptor + self.distributor + self.brokers

    @property
    def reasons(self) -> list[str]:
        """Why it does not count: less traffic than planned costs less, and chance does not explain it."""
        if self.sent >= _SENT_SHARE * self.planned - _DEVIATIONS * math.sqrt(self.planned):
            return []
        rule = f"less than {100 * _SENT_SHARE:g} % of the plan by more than {_DEVIATIONS} standard deviations"
        return [f"{self.scenario}, {self.mode}, turn {self.number}: sent {self.sent:,} of {self.planned:,}, {rule}"]


COLUMNS = (*PARTS, "control", "total")


async def overhead(options: OverheadOptions, show: Callable[[str], None]) -> Verdict:
    """All turns on one cluster. Raises Unavailable."""
    started = time.time()
    cores = len(os.sched_getaffinity(0))
    turns = []
    async with _cluster() as (running, client):
        stage = Stage(running, client, options)
        await stage.make_topics()
        for mode in MODES:
            await stage.set_mode(mode)
            for number in range(options.turns):
                for scenario in SCENARIOS:
                    turn = await stage.turn(scenario, mode, number)
                    turns.append(turn)
                    shown = ", ".join(f"{part} {getattr(turn, part):.1f}" for part in COLUMNS)
                    show(f"{scenario}, {mode}, turn {number}: {shown} ms/s; {turn.changes:.1f} changes/s")
    verdict = judged(turns, cores)
    text = f"{claim(options)}\n\n{markdown(turns)}\n\n{said_of_changes(turns)}\n\n{verdict.line}."
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
    still = options.topics - options.moving
    return (
        f"{options.topics:,} topics on {BROKERS} real brokers, each topic on all of them. Steady: {still:,} have "
        f"{STEADY_LOADS[0]} to {STEADY_LOADS[-1]} msg/s each, Poisson, a sixth on every broker. Shifting: "
        f"{options.moving} have {LOAD:g} msg/s, which go on to the next broker every {options.every_s:g} s. User and "
        f"system time in ms a second, median of {options.turns} turns of {options.seconds:g} s; brokers: their Python, "
        "engines: the threads that carry their messages; control: all but these."
    )


def judged(turns: Sequence[Turn], cores: int) -> Verdict:
    """What ``fitted`` takes more than ``static`` where traffic is steady, against its limit; and whether there was
    anything to follow where it shifts."""
    more, limit = _more(turns, STEADY, "total"), 1000 * LIMIT_PART * cores
    changes = min(turn.changes for turn in turns if (turn.scenario, turn.mode) == (SHIFTING, "fitted"))
    checks = [
        Check(
            "reports and updates of steady traffic",
            f"{more:.1f} ms/s ({more / 10 / cores:.2f} % of {cores} cores)",
            f"below {limit:g} ms/s ({100 * LIMIT_PART:g} %)",
            more < limit,
        ),
        Check("changes of shares a second where it shifts", f"{changes:.2g}", "more than 0", changes > 0),
    ]
    rows: list[dict[str, object]] = [
        {"name": f"{turn.scenario}, {turn.mode}, {turn.number}", **asdict(turn)} for turn in turns
    ]
    reasons = [reason for turn in turns for reason in turn.reasons]
    return Verdict(BLOCK, "following the traffic costs next to nothing", checks, rows, reasons=reasons)


def markdown(turns: Sequence[Turn]) -> str:
    rows = []
    for scenario in SCENARIOS:
        for mode in MODES:
            figures = [f"{_median(turns, scenario, mode, column):.1f}" for column in COLUMNS]
            rows.append([scenario, mode, *figures, f"{_median(turns, scenario, mode, 'changes'):.1f}"])
        more = [f"{_more(turns, scenario, column):.1f}" for column in COLUMNS]
        rows.append([scenario, "more under fitted", *more, ""])
    return markdown_table(["traffic", "mode", *COLUMNS, "changes of shares a second"], rows)


def said_of_changes(turns: Sequence[Turn]) -> str:
    """What a change of shares costs."""
    changes = _median(turns, SHIFTING, "fitted", "changes")
    if changes == 0:
        return "Shares did not change."
    parts = ", ".join(f"{part} {_more(turns, SHIFTING, part) / changes:.1f}" for part in COLUMNS)
    return f"A change of shares, where traffic shifts, in ms: {parts}."


def _more(turns: Sequence[Turn], scenario: str, column: str) -> float:
    """Under ``fitted`` than under ``static``."""
    return _median(turns, scenario, "fitted", column) - _median(turns, scenario, "static", column)


def _median(turns: Sequence[Turn], scenario: str, mode: str, column: str) -> float:
    return statistics.median(
        float(getattr(turn, column)) for turn in turns if (turn.scenario, turn.mode) == (scenario, mode)
    )


class Stage:
    """The cluster with its topics, on which turns are played."""

    def __init__(self, running: Cluster, client: DistributorClient, options: OverheadOptions) -> None:
        self._running = running
        self._client = client
        self._options = options
        names = [f"topic-{number}" for number in range(options.topics)]
        self._moving = names[: options.moving]
        self._loads = {name: steady_load(number) for number, name in enumerate(names) if number >= options.moving}
        self._names = names
        self._mode = "static"
        self._addresses = {place.name: place.tcp_address for place in running.brokers}

    async def make_topics(self) -> None:
        """Raises Unavailable."""

        async def make(name: str) -> None:
            await self._client.create_or_change_topic(name, topic_document(name, self._loads.get(name, LOAD)))

        await _for_each(self._names, make)
        await _until_in_force(self._client)

    async def set_mode(self, mode: str) -> None:
        if mode != self._mode:
            await _for_each(self._names, lambda name: self._client.set_options(name, {"mode": mode}))
            self._mode = mode

    async def turn(self, scenario: str, mode: str, number: int) -> Turn:
        """Raises Unavailable."""
        seed = self._options.seed * 1_000_000 + number * 10_000
        play_turn = self._steady if scenario == STEADY else self._shifting
        load, before, after, sent = await play_turn(seed, _SETTLE_S[scenario])
        took_s = after.at_s - before.at_s
        return Turn(
            scenario=scenario,
            mode=mode,
            number=number,
            changes=(after.changes - before.changes) / took_s,
            sent=sent,
            planned=round(load * took_s),
            **{part: (after.spent[part] - before.spent[part]) / took_s for part in PARTS},
        )

    async def _steady(self, seed: int, settle_s: float) -> tuple[float, Moment, Moment, int]:
        """Load (msg/s), beginning and end of what counts, messages in between; so does the next one."""
        homes = {name: await self._homes(name) for name in self._loads}
        lasting_s = settle_s + self._options.seconds + _READY_S
        with Playing([steady_traffic(homes, self._loads, lasting_s, seed)]) as playing:
            await trio.sleep(settle_s)
            before, sent = await self._begin(), playing.sent
            await trio.sleep(self._options.seconds)
            sent = playing.sent - sent
            return sum(self._loads.values()), before, await self._end(), sent

    async def _shifting(self, seed: int, settle_s: float) -> tuple[float, Moment, Moment, int]:
        await trio.sleep(settle_s)
        addresses, every_s = list(self._addresses.values()), self._options.every_s
        before, sent = await self._begin(), 0
        for leg in range(round(self._options.seconds / every_s)):
            plans = [
                part_of_traffic(topic, (at + leg) % BROKERS, addresses, every_s, seed + leg * 100 + at)
                for at, topic in enumerate(self._moving)
            ]
            sent += await play(plans, before.at_s + (leg + 1) * every_s)
        return LOAD * len(self._moving), before, await self._end(), sent

    async def _begin(self) -> Moment:
        """Asking for changes costs the distributor more than a moment's work: before the one, after the other."""
        changes = await _changes(self._running)
        return Moment(trio.current_time(), spent_ms(self._running), changes)

    async def _end(self) -> Moment:
        at_s, spent = trio.current_time(), spent_ms(self._running)
        return Moment(at_s, spent, await _changes(self._running))

    async def _homes(self, name: str) -> Mapping[str, str]:
        """{publisher: address of its broker}."""
        listed = await self._client.publishers(name)
        return {
            publisher: self._addresses[broker]
            for publisher, broker in zip(listed["ids"], listed["brokers"], strict=True)
        }


@dataclass(frozen=True)
class Moment:
    """What had been so far."""

    at_s: float  # trio time
    spent: Mapping[str, float]  # ms
    changes: int


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
