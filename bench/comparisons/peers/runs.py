"""``srtm bench peers``: our broker and others under the same load in turns, each run with a fresh process.

Publishers at 10 msg/s (Poisson, 100 bytes), one subscriber, at each of a few loads. A run that the machine spoilt is
made again once. Latency counts from the intended instants; processor time is that of the server's process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from rich.console import Console

from bench.comparisons.peers.document import page_of, picture, table
from bench.comparisons.peers.load_points import FIGURES, About, Outcome, Point, order, point
from bench.comparisons.rows import steady
from bench.harness.load.cpu import CpuMeter
from bench.harness.load.run import RunResult, run_plan
from bench.harness.results.comparison import Sample, Turn
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import hand_over, refuse_unpublishable
from bench.harness.results.results import Results
from bench.harness.systems.peer_servers import ALL, Peer, missing, version
from bench.harness.systems.systems import OURS, System
from srtm.errors import BadInput, SrtmError

PER_PUBLISHER = 10  # msg/s
HIGHEST = 100_000  # msg/s: 10,000 connections
TRIES = 2  # of a run that the machine spoilt


@dataclass(frozen=True)
class PeersOptions:
    peers: Sequence[str] = tuple(name for name in ALL if name != OURS)
    rates: Sequence[int] = (1_000, 5_000, 10_000, 20_000)
    seconds: float = 3.0
    pairs: int = 3  # runs of each system at each load
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # of pages, to write there as well


def chosen(text: str) -> tuple[str, ...]:
    """Peers by name, separated by commas. Raises BadInput."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    others = [name for name in ALL if name != OURS]
    if not names or not set(names) <= set(others):
        raise BadInput("peers", text, f"must be of {', '.join(others)}, separated by commas")
    return names


def loads(text: str) -> tuple[int, ...]:
    """msg/s, separated by commas, ascending. Raises BadInput."""
    rule = f"must be multiples of {PER_PUBLISHER} from {PER_PUBLISHER} to {HIGHEST:,}, separated by commas"
    try:
        rates = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        raise BadInput("rates", text, rule) from None
    if not rates or not all(PER_PUBLISHER <= rate <= HIGHEST and rate % PER_PUBLISHER == 0 for rate in rates):
        raise BadInput("rates", text, rule)
    return tuple(rates)


async def compare_peers(options: PeersOptions, console: Console) -> Outcome:
    """Everything that was asked for and is here, shown as it comes. Raises Unavailable where a program that is here
    does not run."""
    refuse_unpublishable(options.document)
    asked = [ALL[name] for name in (OURS, *options.peers)]
    absent = [said for peer in asked if (said := missing(peer)) is not None]
    for said in absent:
        console.print(f"left out: {said}", soft_wrap=True)
    here = [peer for peer in asked if missing(peer) is None]
    abouts = [await _about(peer) for peer in here]
    started = time.time()
    samples = {rate: await _at_load(here, rate, options, console) for rate in options.rates}
    outcome = Outcome(
        systems=abouts,
        absent=absent,
        points=[_point(peer, rate, samples[rate]) for rate in options.rates for peer in here],
        runs=options.pairs,
        seconds=options.seconds,
    )
    console.print(table(outcome))
    _write(options, outcome, [sample for one in samples.values() for sample in one], started)
    return outcome


async def _about(peer: Peer) -> About:
    said = await version(peer)
    return About(name=peer.name, version=said, speaks=peer.speaks, promises=peer.promises, settings=peer.settings)


def _point(peer: Peer, rate: int, samples: Sequence[Sample]) -> Point:
    return point(peer.name, rate, [sample for sample in samples if sample.system == peer.name])


async def _at_load(peers: Sequence[Peer], rate: int, options: PeersOptions, console: Console) -> list[Sample]:
    samples = []
    for number in range(options.pairs):
        for name in order([peer.name for peer in peers], number):
            with (
                TemporaryDirectory(prefix="srtm-peers-") as folder,
                console.status(f"{rate:,} msg/s, {name}, run {number + 1} of {options.pairs}"),
            ):
                turn = Turn(Path(folder), options.seconds, options.seed + number)
                samples.append(await _first_that_counts(ALL[name], rate, turn))
            console.print(_line(rate, samples[-1]), soft_wrap=True)
    return samples


async def _first_that_counts(peer: Peer, rate: int, turn: Turn) -> Sample:
    for number in range(TRIES):
        taken = await _sample(peer, rate, turn, turn.folder / f"{peer.name}-{number}")
        if not taken.reasons or taken.values.get("lost"):
            break
    return taken


async def _sample(peer: Peer, rate: int, turn: Turn, folder: Path) -> Sample:
    try:
        async with peer.start(folder) as system:
            meter = CpuMeter(system)
            plan = steady.plan(system.tcp_address, turn, rate // PER_PUBLISHER)
            plan = msgspec.structs.replace(plan, protocol=peer.protocol, qos=peer.qos)
            result = await run_plan(plan, meter.look, name=f"{peer.name} {rate}")
            return sample_of(peer.name, result, meter, system)
    except SrtmError as error:
        return Sample(peer.name, {}, [str(error)])


def sample_of(name: str, result: RunResult, meter: CpuMeter, system: System) -> Sample:
    found = steady.sample_of(name, result, meter.us_per_message())
    values = {**found.values, "resident_mib": system.resident_bytes() / 2**20, "acknowledged": result.acknowledged}
    return Sample(name, values, found.reasons)


def _line(rate: int, sample: Sample) -> str:
    shown = [figure for figure in FIGURES if figure.key in sample.values]
    said = ", ".join(f"{figure.label} {sample.values[figure.key]:,.{figure.digits}f}" for figure in shown)
    lost = sample.values.get("lost", 0)
    doubt = f" (does not count: {'; '.join(sample.reasons)})" if sample.reasons else ""
    return f"{rate:,} msg/s, {sample.system}: {said}{f', {lost:g} lost' if lost else ''}{doubt}"


def _write(options: PeersOptions, outcome: Outcome, samples: Sequence[Sample], started: float) -> None:
    if options.document is not None:
        picture(options.document, outcome)
    settings = {"pairs": options.pairs, "seconds": options.seconds, "rates": list(options.rates)}
    runs = [{"name": one.system, **one.values, "reasons": "; ".join(one.reasons)} for one in samples]
    reasons = [
        f"{one.system} at {one.rate:,} msg/s: {'; '.join(one.refused)}" for one in outcome.points if not one.runs
    ]
    results = Results.of(
        "bench peers", runs, seed=options.seed, started=started, settings=settings, reasons=reasons, result=outcome
    )
    page = page_of(outcome, Origin.here(started))
    hand_over(page, results, name="peers", folder=options.document, json_file=options.json_file)
