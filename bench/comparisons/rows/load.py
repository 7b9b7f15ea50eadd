"""The highest load that keeps the promise: p99 within 1 ms and nothing lost.

Publishers at 10 msg/s each (Poisson, 100 bytes), one subscriber, on a ladder of loads 8 % apart. Each round starts
near where the first ended, some rungs off by its seed, and climbs or descends in growing steps, then halves, until one
rung keeps the promise and the next does not. A rung is kept if one of three tries keeps it, for every system alike: the
machine itself stops now and then for longer than the promise bears. Systems alternate at every step of a round. Latency
counts from intended instants, so what the generator is late counts as well: a rung that was kept was kept in spite of
it, and of one that was not the lateness is shown, for the generator shares the processors.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.comparisons.rows import steady
from bench.comparisons.rows.turns import started
from bench.harness.load.run import RunResult, run_plan
from bench.harness.results.comparison import Begin, Figure, Ratio, Round, Row, Sample, Turn
from srtm.errors import SrtmError, Unavailable

PROMISE_MS = 1.0
LOWEST, STEP, RUNGS = 2_000, 1.08, 56  # up to 138,000 msg/s
START = 22  # 10,900 msg/s
FARTHEST = 2  # rungs that a round starts off
TRIES = 3  # of a rung: the machine stops now and then for longer than a promise of 1 ms bears
SPARE_FILES = 200  # besides the publishers' connections


@dataclass(frozen=True)
class Rung:
    """What one system did at one load."""

    kept: bool
    late_ms: float  # generator's, p99


Search = Generator[int, Rung, tuple[int, Rung | None]]


def load_of(rung: int) -> int:
    """msg/s; whole publishers."""
    return round(LOWEST * STEP**rung / 10) * 10


def search(start: int) -> Search:
    """Yields the rung to try, is sent what happened there; returns (highest kept, or -1; the first not kept).

    From ``start`` in steps of 1, 2, 4, ... rungs, up while they are kept or down until one is; then by halving.
    """
    kept, missed, at_missed = -1, RUNGS, None
    rung, step = min(max(start, 0), RUNGS - 1), 1
    while missed - kept > 1:
        found = yield rung
        if found.kept:
            kept = rung
        else:
            missed, at_missed = rung, found
        if kept >= 0 and missed < RUNGS:
            rung = (kept + missed) // 2
        else:
            rung = min(kept + step, RUNGS - 1) if found.kept else max(missed - step, 0)
            step *= 2
    return kept, at_missed


@dataclass
class Climber:
    """One system's search of one round. ``next``: the rung to try; None: done."""

    search: Search
    next: int | None = None
    found: tuple[int, Rung | None] = (-1, None)

    def start(self) -> None:
        self.next = next(self.search)

    def tell(self, rung: Rung) -> None:
        try:
            self.next = self.search.send(rung)
        except StopIteration as end:
            self.next, self.found = None, end.value


Try = Callable[[str, int, Turn, Path], Awaitable[Rung]]


async def one_round(searches: dict[str, Search], turn: Turn, attempt: Try) -> dict[str, tuple[int, Rung | None]]:
    """All searches, a step of each in turn."""
    climbers = {name: Climber(search) for name, search in searches.items()}
    for climber in climbers.values():
        climber.start()
    step = 0
    while any(climber.next is not None for climber in climbers.values()):
        for name, climber in climbers.items():
            if climber.next is not None:
                climber.tell(await attempt(name, climber.next, turn, turn.folder / f"{name}-{step}"))
        step += 1
    return {name: climber.found for name, climber in climbers.items()}


Run = Callable[[str, int, Turn, Path], Awaitable[RunResult]]


async def _attempt(run: Run, name: str, rung: int, turn: Turn, folder: Path) -> Rung:
    """The first of ``TRIES`` that keeps the promise, or the last."""
    for number in range(TRIES):
        try:
            load = load_of(rung)
            tried = rung_of(await run(name, load // 10, turn, folder.with_name(f"{folder.name}-{number}")))
        except Unavailable:  # more connections, or more load, than it takes
            tried = Rung(False, 0.0)
        if tried.kept:
            break
    return tried


async def _run(name: str, publishers: int, turn: Turn, folder: Path) -> RunResult:
    async with started(name, turn, folder) as system:
        return await run_plan(steady.plan(system.tcp_address, turn, publishers), name=f"load {name} {publishers}")


def rung_of(result: RunResult) -> Rung:
    whole = result.sent >= 0.999 * result.offered and result.lost == 0 and result.received > 0
    return Rung(whole and result.p99_ms <= PROMISE_MS, result.lateness_p99_ms)


def sample_of(system: str, kept: int, missed: Rung | None) -> Sample:
    late_ms = missed.late_ms if missed is not None else 0.0
    values = {"load": load_of(kept) if kept >= 0 else 0, "late_ms": late_ms}
    return Sample(system, values, [] if kept >= 0 else ["not even the lowest load kept the promise"])


def begin(run: Run) -> Begin:
    """The ``begin`` of a row. ``run(system, publishers, turn, folder)``: of a fresh process at one load."""
    return lambda systems: _searching(run, systems)


def _searching(run: Run, systems: Sequence[str]) -> Callable[[Turn], Awaitable[Round]]:
    """Raises Unavailable where the generator may not open as many files as the highest load needs: that would count as
    the broker's limit."""
    needed, (_, allowed) = load_of(RUNGS - 1) // 10 + SPARE_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        raise Unavailable(f"{needed} open files are needed and {allowed} allowed: ulimit -Hn {needed}")
    first: dict[str, int] = {}

    async def measure(turn: Turn) -> Round:
        shorter = replace(turn, seconds=max(2.0, turn.seconds / 2))
        off = random.Random(turn.seed).randint(-FARTHEST, FARTHEST)
        searches = {name: search(first.get(name, START) + off) for name in systems}
        try:
            found = await one_round(searches, shorter, partial(_attempt, run))
        except SrtmError as error:
            return [Sample("every system", {}, [str(error)])]
        for name, (kept, _) in found.items():
            first.setdefault(name, kept)
        return [sample_of(name, *found[name]) for name in systems]

    return measure


SYSTEMS = ("srtm", "nsqd", "floor")
FIGURES = (
    Figure("load", "highest load, msg/s", 0, drawn=True),
    Figure("late_ms", "generator's lateness p99 one rung above, ms", 3),
)
NOTE = (
    f"A ladder of loads {100 * (STEP - 1):.0f} % apart, runs half as long as the others; a rung is kept if one of "
    f"{TRIES} tries keeps it, for every system alike. Latency includes the "
    "generator's lateness: where that is over 0.2 ms one rung above, the generator may have been the limit."
)
ROW = Row(
    name="load",
    claim="The highest load (publishers x 10 msg/s, Poisson, 100 B, one subscriber) with p99 <= 1 ms and nothing lost.",
    systems=SYSTEMS,
    figures=FIGURES,
    targets=(
        Ratio("load", "highest load with p99 <= 1 ms", "nsqd", at_least=3.0),
        Ratio("load", "highest load with p99 <= 1 ms", "floor", at_least=0.9),
    ),
    begin=begin(_run),
    note=NOTE,
)
