"""``srtm bench peers``: options and exit status."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from bench.comparisons.peers.runs import PeersOptions, chosen, compare_peers, loads
from bench.console.options import DocumentOption, RunsJsonOption, SeedOption, console
from bench.harness.results.publish import RESULTS
from bench.harness.systems.systems import OURS
from srtm.console.running import run_trio

app = typer.Typer()


@app.command("peers")
def bench_peers(
    names: Annotated[str, typer.Option("--peers", metavar="NAME,NAME", help="Beside srtm.")] = ",".join(
        PeersOptions.peers
    ),
    rates: Annotated[str, typer.Option(metavar="N,N", help="Loads, msg/s.")] = ",".join(map(str, PeersOptions.rates)),
    seconds: Annotated[float, typer.Option(min=2.0, help="Measured part of a run.")] = PeersOptions.seconds,
    pairs: Annotated[int, typer.Option(min=1, help="Runs of each system at each load, in turns.")] = PeersOptions.pairs,
    seed: SeedOption = PeersOptions.seed,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """Load against latency, processor time and memory: srtm, nsqd, NATS, Mosquitto and Redis, each in its own tongue.

    Twelve minutes. A peer that is not here is named with what brings it, and left out. Status 0 if srtm was measured at
    every load and lost nothing.
    """
    options = PeersOptions(chosen(names), loads(rates), seconds, pairs, seed, json_file, RESULTS if document else None)
    outcome = run_trio(partial(compare_peers, options, console(json_file)))
    return 0 if outcome.whole(OURS) else 1
