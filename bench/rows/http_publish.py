"""``POST /pub`` on 50 keep-alive connections, the next request of each when the last was answered; 100 bytes each.

The topic has no channel: messages wait in memory (``--mem-queue-size``), as nothing is measured here but publishing.
"""

from __future__ import annotations

from pathlib import Path

from bench.comparison import Figure, Ratio, Row, Sample, Turn
from bench.flood import FloodPlan, FloodResult, HttpPublish, run_flood
from bench.rows.turns import in_turn, started

CONNECTIONS = 50
ROOM = 1_000_000  # messages; what waits must fit into the memory that our broker allows itself


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    async with started(name, folder, "--mem-queue-size", str(ROOM)) as system:
        task = HttpPublish(topic="http", connections=CONNECTIONS, duration_s=max(1.0, turn.seconds / 2))
        return sample_of(name, await run_flood(FloodPlan(target=system.http_address, task=task)))


def sample_of(system: str, result: FloodResult) -> Sample:
    return Sample(system, {"requests_per_s": result.per_s, "busy": result.busy})


SYSTEMS = ("srtm", "nsqd")
ROW = Row(
    name="http",
    claim="HTTP POST /pub on 50 keep-alive connections: requests per second.",
    systems=SYSTEMS,
    figures=(
        Figure("requests_per_s", "POST /pub, requests/s", 0, drawn=True),
        Figure("busy", "share of a core that the client used", 2),
    ),
    targets=(Ratio("requests_per_s", "POST /pub, 50 connections", "nsqd", at_least=2.0),),
    begin=in_turn(SYSTEMS, _sample),
    note="Both with a --mem-queue-size that holds all messages.",
)
