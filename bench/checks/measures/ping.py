"""A bare broker answers ``/ping`` within 0.3 s of its start: what a restart costs those who wait for it.

The time runs from before the process is made to the answer; interpreter, imports and sockets are all in it.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from bench.harness.results.verdict import Verdict, at_most
from bench.harness.systems.systems import bare_broker

CLAIM = "A bare broker answers /ping within 0.3 s of its start (median of {starts})."
LIMIT_S = 0.3
STARTS = 10


async def measure(folder: Path, seed: int, quick: bool) -> Verdict:  # noqa: ARG001 (nothing here is random)
    starts = [await _start_s(folder / f"start-{number}") for number in range(3 if quick else STARTS)]
    return judge(starts)


def judge(starts_s: list[float]) -> Verdict:
    return Verdict(
        name="ping",
        claim=CLAIM.format(starts=len(starts_s)),
        checks=[at_most("start to /ping, median", statistics.median(starts_s), LIMIT_S, "s")],
        runs=[{"name": f"start-{number}", "brokers": 1, "start_s": start} for number, start in enumerate(starts_s)],
    )


async def _start_s(folder: Path) -> float:
    before = time.perf_counter()
    async with bare_broker(folder):
        return time.perf_counter() - before
