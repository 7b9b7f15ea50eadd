"""``srtm bench gdrl --real``: rounds until six broker processes agree, by their own count of rounds.

Demand stands still because it is what waits: thousands of messages at each broker, under a limit that lets go a few a
second. They wait before the exchange begins, and brokers that begin to exchange have seen nothing come. Where all lack
supply there is no slack to share, and brokers that go by it (``--indicator slack``, the default of topics) divide
tokens by demand (``adaptor.gdrl.exchange``): so what agrees in the end is the fill ratio, whichever they go by.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import trio

from adaptor.gdrl.exchange import Supply, spread
from bench.experiments.gdrl.simulated import REACH
from bench.harness.cluster_runs.assigned_traffic import settled
from bench.harness.cluster_runs.broker_api import request
from bench.harness.results.document import markdown_table, refuse_without_block
from bench.harness.results.publish import hand_over
from bench.harness.results.results import Results
from bench.simulation.gdrl_rounds import CLOSE, start
from srtm.client.distributor import DistributorClient
from srtm.cluster.cluster_file import BrokerPlace
from srtm.cluster.supervisor import Cluster, cluster
from srtm.topics.adaptation import Indicator
from srtm.units import MICRO, to_micro

BROKERS = 6
RATE, BURST = 0.66, 60.0  # of the topic: in a minute nobody lets more than a few of what waits go
BLOCK = "gdrl-real"
_ROUNDS_METRIC = "srtm_broker_gdrl_rounds_total "
_PUBLISHERS = 60
_MCAP = 10_000.0  # msg/s: nobody is full, also not of what the topic of the run before let go at once
_PATIENCE_S = 60.0
_LOOK_S = 0.02


@dataclass(frozen=True)
class GdrlRealOptions:
    runs: int = 5
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # to write the table into
    indicator: Indicator = "fill"  # that the brokers go by


@dataclass(frozen=True)
class RealRun:
    number: int
    waiting: tuple[int, ...]  # at each broker, messages: its demand
    rounds: int | None  # the most that one of them took; None: they did not agree
    spread: float  # then
    first_spread: float  # of the shares as they were dealt

    def row(self) -> dict[str, Any]:
        return {"name": f"run {self.number}", "brokers": BROKERS, **asdict(self)}


async def gdrl_real(options: GdrlRealOptions, show: Callable[[str], None]) -> list[RealRun]:
    """Raises Unavailable, PeerError where a broker does not answer as it should."""
    refuse_without_block(options.document, BLOCK)
    started = time.time()
    with tempfile.TemporaryDirectory() as data:
        async with (
            cluster(brokers=BROKERS, mcap=_MCAP, data=Path(data), ready_timeout_s=_PATIENCE_S) as running,
            DistributorClient(running.distributor) as client,
        ):
            runs = [await _run(running, client, number, options) for number in range(options.runs)]
    text = f"{claim(runs, options.indicator)}\n\n{markdown(runs)}"
    show(text)
    settings = {"brokers": BROKERS, "rate": RATE, "burst": BURST, "indicator": options.indicator}
    rows = [run.row() for run in runs]
    results = Results.of("bench gdrl --real", rows, seed=options.seed, started=started, settings=settings)
    hand_over(text, results, block=BLOCK, document=options.document, json_file=options.json_file)
    return runs


def reached_really(runs: Sequence[RealRun]) -> bool:
    return all(run.rounds is not None and run.rounds <= REACH[BROKERS] for run in runs)


def claim(runs: Sequence[RealRun], indicator: Indicator) -> str:
    counts = [run.rounds for run in runs if run.rounds is not None]
    middle = f"median {statistics.median(counts):g}, worst {max(counts)}" if len(counts) == len(runs) else "not always"
    return (
        f"{BROKERS} broker processes, indicator `{indicator}`, random partners, a round every 100 ms, demand frozen "
        "(what waits at each: more than there is supply for, so that tokens go by demand under either indicator); "
        f"rounds, as counted by whoever made most, until all fill ratios are within {CLOSE:.0%}: "
        f"{middle} of {len(runs)} runs; at most {REACH[BROKERS]} is asked."
    )


def markdown(runs: Sequence[RealRun]) -> str:
    header = ["run", "demand of the brokers", "spread as dealt", "rounds", "spread then"]
    rows = [
        [
            str(run.number + 1),
            ", ".join(f"{one:,}" for one in run.waiting),
            f"{run.first_spread:.0%}",
            "more" if run.rounds is None else str(run.rounds),
            f"{run.spread:.2%}",
        ]
        for run in runs
    ]
    return markdown_table(header, rows)


async def _run(running: Cluster, client: DistributorClient, number: int, options: GdrlRealOptions) -> RealRun:
    topic, places = f"frozen-{number}", running.brokers
    demand = [round(one.demand) for one in start(BROKERS, random.Random(f"{options.seed} {BROKERS} {number}"))]
    await client.create_or_change_topic(topic, _document(topic))
    await settled(client, topic, brokers=BROKERS, within_s=_PATIENCE_S)
    for place, count, full in zip(places, demand, await _supplies(places, topic), strict=True):
        sent = count + full.burst // MICRO  # so many go at once
        await request(place.http_address, "POST", f"/mpub?topic={topic}", b"\n".join([b"x"] * sent))
    dealt = await _supplies(places, topic)
    before = [await _rounds(place) for place in places]
    adaptation = {"indicator": options.indicator, "partners": "random"}
    await client.set_options(topic, {"mode": "gdrl", "adaptation": adaptation})
    now, rounds = dealt, None
    with trio.move_on_after(_PATIENCE_S):
        while spread("fill", now) > CLOSE:
            await trio.sleep(_LOOK_S)
            now = await _supplies(places, topic)
        rounds = max([await _rounds(place) - base for place, base in zip(places, before, strict=True)])
    await client.remove_topic(topic, purge=True)
    return RealRun(number, tuple(demand), rounds, spread("fill", now), spread("fill", dealt))


def _document(topic: str) -> dict[str, object]:
    return {
        "name": topic,
        "rate": RATE,
        "burst": BURST,
        "mode": "static",
        "placement": "lb",
        "split": "proportional",
        "slo": {"percentile": 99, "latency_ms": 1_000},
        "publishers": [{"count": _PUBLISHERS, "rate": RATE / 1.1 / _PUBLISHERS, "id_prefix": f"{topic}-"}],
    }


async def _supplies(places: Sequence[BrokerPlace], topic: str) -> list[Supply]:
    """Shares in force and what waits, broker by broker: not of one instant, which only makes them differ more."""
    found = []
    for place in places:
        bucket = msgspec.json.decode(await request(place.http_address, "GET", f"/v1/topics/{topic}/bucket"))
        rate, burst = to_micro(bucket["rate"], "rate"), to_micro(bucket["burst"], "burst")
        found.append(Supply(rate=rate, burst=burst, demand=float(bucket["backlog"])))
    return found


async def _rounds(place: BrokerPlace) -> int:
    """Since its start."""
    text = (await request(place.http_address, "GET", "/metrics")).decode()
    line = next(line for line in text.splitlines() if line.startswith(_ROUNDS_METRIC))
    return round(float(line.removeprefix(_ROUNDS_METRIC)))
