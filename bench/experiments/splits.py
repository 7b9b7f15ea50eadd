"""``srtm bench splits``: what the proportional and the fitted split of one bucket cost, in simulation.

Poisson traffic of 10,000 msg/s on two brokers in unequal parts, under exact buckets (``srtm.token_bucket.replay``).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.console.progress import counted
from bench.harness.results.document import markdown_table, refuse_without_block
from bench.harness.results.publish import hand_over
from bench.harness.results.results import Results
from srtm.token_bucket.exact_split import MICRO, split_bucket
from srtm.token_bucket.fitted_split import Shares, Traffic, fitted_bucket
from srtm.token_bucket.replay import worst_delay_ns

LOAD, RATE = 10_000, 11_000  # msg/s
BURSTS = {1: 25, 10: 243}  # {batch: b, messages}: no access delay at p99 on one broker
PARTS = (0.1, 0.2, 0.3, 0.4, 0.5)  # of the traffic, on the smaller broker
BLOCK = "splits"
CLAIM = (
    f"{LOAD:,} Poisson msg/s on two brokers, r = {RATE:,}, b = "
    f"{' and '.join(f'{burst} (batch {batch})' for batch, burst in BURSTS.items())}: p99 access delay of the worse "
    "broker, ms; mean of {runs} recordings of {seconds:g} s (smallest to largest)."
)

Column = npt.NDArray[np.int64]
Figure = Callable[["SplitsRun"], float]


@dataclass(frozen=True)
class SplitsOptions:
    seconds: float = 120.0  # of traffic in a recording
    runs: int = 5  # recordings
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # to write the table into


@dataclass(frozen=True)
class SplitsRun:
    """One recording split. Worst broker's p99 access delay, ms."""

    batch: int
    part: float  # of the traffic on the smaller broker
    proportional_ms: float
    fitted_ms: float
    one_ms: float  # of the one bucket that was split

    def row(self) -> dict[str, Any]:
        name = f"batch {self.batch}, {percent(self.part)}"
        return {"name": name, **{field: getattr(self, field) for field in self.__dataclass_fields__}}


COLUMNS: dict[str, Figure] = {
    "proportional": lambda run: run.proportional_ms,
    "fitted": lambda run: run.fitted_ms,
    "one bucket": lambda run: run.one_ms,
}


def splits(options: SplitsOptions, show: Callable[[str], None]) -> list[SplitsRun]:
    """All of them, counted while they are made, the table shown at the end."""
    refuse_without_block(options.document, BLOCK)
    started = time.time()
    runs = [_run(options, *one) for one in counted(_wanted(options), show)]
    text = f"{claim(options)}\n\n{markdown(runs)}"
    show(text)
    settings = {"seconds": options.seconds, "runs": options.runs, "load": LOAD, "rate": RATE, "bursts": BURSTS}
    rows = [run.row() for run in runs]
    results = Results.of("bench splits", rows, seed=options.seed, started=started, settings=settings)
    hand_over(text, results, block=BLOCK, document=options.document, json_file=options.json_file)
    return runs


def no_worse(runs: Sequence[SplitsRun]) -> bool:
    """Whether the fitted split waits no longer than the proportional one, in the mean of each kind of traffic."""
    kinds = {(run.batch, run.part) for run in runs}
    return all(
        sum(run.fitted_ms - run.proportional_ms for run in runs if (run.batch, run.part) == kind) <= 0 for kind in kinds
    )


def claim(options: SplitsOptions) -> str:
    return CLAIM.format(runs=options.runs, seconds=options.seconds)


def _wanted(options: SplitsOptions) -> list[tuple[int, float, int]]:
    return [(batch, part, number) for batch in BURSTS for part in PARTS for number in range(options.runs)]


def _run(options: SplitsOptions, batch: int, part: float, number: int) -> SplitsRun:
    rng = np.random.default_rng([options.seed, batch, round(100 * part), number])
    return judged(batch, part, options.seconds, rng)


def judged(batch: int, part: float, seconds: float, rng: np.random.Generator) -> SplitsRun:
    """One recording under each split."""
    recorded = arrivals(batch, part, seconds, rng)
    traffic = [Traffic(rate=LOAD * one, dispersion=batch, batch=batch) for one in (part, 1 - part)]
    rate, burst = RATE * MICRO, BURSTS[batch] * MICRO
    merged = np.sort(np.concatenate(recorded))
    return SplitsRun(
        batch=batch,
        part=part,
        proportional_ms=_worst_ms(recorded, split_bucket(rate, burst, [one.rate for one in traffic])),
        fitted_ms=_worst_ms(recorded, fitted_bucket(rate, burst, traffic)),
        one_ms=_worst_ms([merged], [(rate, burst)]),
    )


def arrivals(batch: int, part: float, seconds: float, rng: np.random.Generator) -> list[Column]:
    """Arrival instants, ns, on each of two brokers: independent Poisson batches."""
    found = []
    for load in (LOAD * part, LOAD * (1 - part)):
        count = rng.poisson(load * seconds / batch)
        found.append(np.repeat(np.sort(rng.integers(0, round(seconds * 1e9), count)), batch))
    return found


def _worst_ms(arrivals_ns: Sequence[Column], shares: Shares) -> float:
    return worst_delay_ns(arrivals_ns, shares) / 1e6


def markdown(runs: Sequence[SplitsRun]) -> str:
    rows = []
    for batch, part in dict.fromkeys((run.batch, run.part) for run in runs):
        here = [run for run in runs if (run.batch, run.part) == (batch, part)]
        rows.append([f"{batch}", percent(part), *(_cell([figure(run) for run in here]) for figure in COLUMNS.values())])
    return markdown_table(["batch", "shares", *COLUMNS], rows)


def _cell(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def percent(part: float) -> str:
    return f"{100 * part:.0f}:{100 - 100 * part:.0f}"
