"""``srtm bench gdrl``: rounds until brokers agree, by their number and the choice of partners. A simulation."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.console.progress import counted
from bench.harness.results.document import markdown_table, refuse_without_block
from bench.harness.results.publish import hand_over
from bench.harness.results.results import Results
from bench.simulation.gdrl_rounds import as_printed, random_rounds, ring, ring_rounds, ring_with_momentum, start

SIZES = (4, 6, 16, 64, 256, 1024)
KINDS = ("random", "random, slack", "ring", "ring, momentum", "as printed")
MOST = {"ring": 500_000, "ring, momentum": 20_000, "as printed": 100_000}  # rounds
MOST_RANDOM = 1_000
REACH = {6: 35, 256: 100}  # {brokers: rounds to reach, worst of the runs, random partners}
BLOCK = "gdrl"
CLAIM = (
    "Rounds until all fill ratios (of the second column, slacks) are within 1 %: median (worst) of {runs} runs; "
    "demand frozen, a tenth of the brokers without any. Ring: {ring_runs} runs. {note}"
)
_NOTE = "Diverged: the spread passed 10^6."
_RING_RUNS = 3


@dataclass(frozen=True)
class GdrlOptions:
    sizes: tuple[int, ...] = SIZES
    runs: int = 20
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # to write the table into


@dataclass(frozen=True)
class GdrlRun:
    kind: str
    brokers: int
    number: int
    rounds: int | None  # None: not within the bound, or never
    spread: float  # at the end, as far as it is known

    def row(self) -> dict[str, Any]:
        return {"name": f"{self.kind}, {self.brokers} brokers", **asdict(self)}


def gdrl(options: GdrlOptions, show: Callable[[str], None]) -> list[GdrlRun]:
    """All runs, counted while they are made; the table is shown at the end."""
    refuse_without_block(options.document, BLOCK)
    started = time.time()
    runs = [run_once(*one, options.seed) for one in counted(_wanted(options), show)]
    text = f"{claim(options)}\n\n{markdown(runs)}"
    show(text)
    settings = {"sizes": options.sizes, "runs": options.runs, "ring_runs": _RING_RUNS}
    rows = [run.row() for run in runs]
    results = Results.of("bench gdrl", rows, seed=options.seed, started=started, settings=settings)
    hand_over(text, results, block=BLOCK, document=options.document, json_file=options.json_file)
    return runs


def claim(options: GdrlOptions) -> str:
    return CLAIM.format(runs=options.runs, ring_runs=min(options.runs, _RING_RUNS), note=_NOTE)


def reached(runs: Sequence[GdrlRun]) -> bool:
    """Whether random partners are as fast as is asked, in every run, and the printed formula never ends."""
    fast = all(
        run.rounds is not None and run.rounds <= REACH.get(run.brokers, MOST_RANDOM)
        for run in runs
        if run.kind.startswith("random")
    )
    return fast and all(run.rounds is None for run in runs if run.kind == "as printed")


def _wanted(options: GdrlOptions) -> list[tuple[str, int, int]]:
    def count(kind: str) -> int:
        return options.runs if kind.startswith("random") else min(options.runs, _RING_RUNS)

    return [(kind, brokers, number) for brokers in options.sizes for kind in KINDS for number in range(count(kind))]


def run_once(kind: str, brokers: int, number: int, seed: int) -> GdrlRun:
    dice = random.Random(f"{seed} {brokers} {number}")  # the same demand for all kinds
    supplies = start(brokers, dice)
    if kind.startswith("random"):
        rounds = random_rounds("slack" if "slack" in kind else "fill", supplies, dice, MOST_RANDOM)
        return GdrlRun(kind, brokers, number, rounds, 0.01 if rounds is not None else float("inf"))
    make = {"ring": ring, "ring, momentum": ring_with_momentum, "as printed": as_printed}[kind]
    return GdrlRun(kind, brokers, number, *ring_rounds(make(supplies), supplies, MOST[kind]))


def markdown(runs: Sequence[GdrlRun]) -> str:
    sizes = dict.fromkeys(run.brokers for run in runs)
    rows = [
        [f"{size:,}", *(_cell([run for run in runs if (run.kind, run.brokers) == (kind, size)]) for kind in KINDS)]
        for size in sizes
    ]
    return markdown_table(["brokers", *KINDS], rows)


def _cell(runs: Sequence[GdrlRun]) -> str:
    counts = [run.rounds for run in runs if run.rounds is not None]
    if len(counts) < len(runs):
        return "diverged" if all(run.kind == "as printed" for run in runs) else "not within the bound"
    return f"{statistics.median(counts):,.0f} ({max(counts):,})"
