"""``POST /pub``, ``POST /mpub`` and ``GET /ping`` on 50 keep-alive connections, the next request of each when the last
was answered; messages of 100 bytes.

The topic has no channel: messages wait in memory (``--mem-queue-size``), as nothing is measured here but publishing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.comparisons.rows.turns import in_turn, started
from bench.harness.load.flood import FloodPlan, FloodResult, Http, Mpub, Ping, Pub, run_flood
from bench.harness.results.comparison import Better, Figure, Ratio, Row, Sample, Turn

CONNECTIONS = 50
ROOM = 2_000_000  # messages; what waits must fit into the memory that our broker allows itself
BATCH = 10
KINDS: Mapping[str, tuple[Ping | Pub | Mpub, float]] = {  # what is asked, and its share of the time
    "requests_per_s": (Pub(), 1.0),
    "mpub_per_s": (Mpub(batch=BATCH), 0.5),
    "ping_per_s": (Ping(), 0.5),
}


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    results: dict[str, FloodResult] = {}
    for key, (asks, share) in KINDS.items():
        async with started(name, turn, folder / key, "--mem-queue-size", str(ROOM)) as system:
            duration_s = max(1.0, turn.seconds / 2 * share)
            task = Http(asks=asks, topic="http", connections=CONNECTIONS, duration_s=duration_s)
            results[key] = await run_flood(FloodPlan(target=system.http_address, task=task))
    return sample_of(name, results)


def sample_of(system: str, results: Mapping[str, FloodResult]) -> Sample:
    """``results``: of each of ``KINDS``."""
    rates = {key: result.per_s for key, result in results.items()}
    return Sample(system, rates | {"busy": results["requests_per_s"].busy})


SYSTEMS = ("srtm", "nsqd")
ROW = Row(
    name="http",
    claim=f"HTTP on 50 keep-alive connections, requests per second: POST /pub, POST /mpub of {BATCH} lines, GET /ping.",
    systems=SYSTEMS,
    figures=(
        Figure("requests_per_s", "POST /pub, requests/s", 0, drawn=True, better=Better.HIGHER),
        Figure("mpub_per_s", f"POST /mpub of {BATCH}, requests/s", 0, drawn=True, better=Better.HIGHER),
        Figure("ping_per_s", "GET /ping, requests/s", 0, drawn=True, better=Better.HIGHER),
        Figure("busy", "share of a core that the client used (/pub)", 2),
    ),
    targets=(
        Ratio("requests_per_s", "POST /pub, 50 connections", "nsqd", at_least=2.0),
        Ratio("mpub_per_s", f"POST /mpub of {BATCH} messages, 50 connections", "nsqd", at_least=1.0),
        Ratio("ping_per_s", "GET /ping, 50 connections", "nsqd", at_least=1.0),
    ),
    begin=in_turn(_sample),
    note="Both with a --mem-queue-size that holds all messages.",
)
