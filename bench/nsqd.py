"""``srtm bench nsqd``: one broker of ours beside the real nsqd 1.3.0, the same load in turns on the same machine.

Claim: 1,000 publishers at 10 msg/s (Poisson, 100 bytes) to one subscriber lose nothing, their p99 is no worse than
nsqd's and a message costs the broker at most half of nsqd's processor time. Runs alternate (ours, nsqd, ours, ...), so
that a busy neighbour meets both; what is compared are medians. Each run has a fresh process and an empty data folder.
A pair in which the generator was late is recorded, does not count and is measured again, at most as often as pairs were
asked for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from bench.document import markdown_table, write_block
from bench.provenance import provenance
from bench.results import Results, write_results
from bench.run import RunProgress, run_plan
from bench.systems import System, bare_broker, nsqd, peer
from bench.verdict import Check, Verdict, none_of
from bench.workload import Plan, Subscriber, modelled
from srtm.errors import InternalError

CLAIM = (
    "1,000 publishers x 10 msg/s (Poisson, 100 B), one subscriber, one broker: nothing lost, p99 no worse than nsqd's, "
    "processor time a message at most half of nsqd's."
)
PUBLISHERS = 1_000
RATE_PER_S = 10.0
SYSTEMS: dict[str, Callable[[Path], AbstractAsyncContextManager[System]]] = {"srtm": bare_broker, "nsqd": nsqd}


@dataclass(frozen=True)
class Sample:
    """One run of one system."""

    name: str  # key of SYSTEMS
    brokers: int
    offered: int
    sent: int
    received: int
    lost: int
    duplicates: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    lateness_p99_ms: float
    cpu_us: float  # user + system time of the broker process, a message received
    reasons: list[str]  # why the run does not count


def plan(address: str, seconds: float, seed: int) -> Plan:
    return Plan(
        topic="bench-nsqd",
        targets=[address],
        publishers=modelled([0] * PUBLISHERS, RATE_PER_S),
        subscribers=[Subscriber(target=0)],
        duration_s=seconds,
        seed=seed,
    )


def judge(samples: Sequence[Sample], settings: dict[str, object]) -> Verdict:
    """Medians of ours against medians of nsqd's, over the pairs that count."""
    ours, theirs = sides(samples)
    lost = sum(s.lost for s in samples if s.name == "srtm")  # a late generator excuses no loss
    checks = [none_of("messages lost by our broker", lost), *(_checks(ours, theirs) if ours else [])]
    return Verdict("nsqd", CLAIM, checks, _rows(samples), settings, _too_few(len(ours), settings))


def _checks(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[Check]:
    p99_ms, their_p99_ms = (statistics.median(s.p99_ms for s in side) for side in (ours, theirs))
    cpu_us, half_us = statistics.median(s.cpu_us for s in ours), statistics.median(s.cpu_us for s in theirs) / 2
    cpu = Check(
        "processor time a message", f"{cpu_us:.1f} us", f"at most half of nsqd's: {half_us:.1f} us", cpu_us <= half_us
    )
    p99 = Check("p99", f"{p99_ms:.3f} ms", f"at most nsqd's: {their_p99_ms:.3f} ms", p99_ms <= their_p99_ms)
    return [p99, cpu]


def sides(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Ours and nsqd's of the pairs that count: both runs of them are valid."""
    pairs = [pair for pair in zip(samples[::2], samples[1::2], strict=True) if not any(s.reasons for s in pair)]
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]


def _rows(samples: Sequence[Sample]) -> list[dict[str, object]]:
    return [{**asdict(sample), "valid": not sample.reasons} for sample in samples]


def _too_few(count: int, settings: dict[str, object]) -> list[str]:
    wanted = settings["pairs"]
    return [] if count == wanted else [f"only {count} of {wanted} pairs were valid"]


def comparison(samples: Sequence[Sample]) -> list[list[str]]:
    """Rows of a table: each figure's median with the smallest and largest run, ours and nsqd's; none without a pair."""
    ours, theirs = sides(samples)
    if not ours:
        return []
    figures: list[tuple[str, Callable[[Sample], float], int]] = [
        ("p50, ms", lambda s: s.p50_ms, 3),
        ("p99, ms", lambda s: s.p99_ms, 3),
        ("p99.9, ms", lambda s: s.p999_ms, 3),
        ("processor time a message, us", lambda s: s.cpu_us, 1),
        ("messages lost", lambda s: s.lost, 0),
        ("generator's lateness p99, ms", lambda s: s.lateness_p99_ms, 3),
    ]
    return [
        [name, *(_spread([value(s) for s in side], digits) for side in (ours, theirs))]
        for name, value, digits in figures
    ]


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


@dataclass(frozen=True)
class NsqdOptions:
    pairs: int = 5
    seconds: float = 15.0
    seed: int = 1
    json_file: str | None = None
    document: Path | None = None  # to write the figures into


class CpuMeter:
    """Processor time of a system between the first and the last look at a run that was measuring."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._first_s: float | None = None
        self._last_s = 0.0
        self._sent = (0, 0)

    def look(self, progress: RunProgress) -> None:
        if progress.phase != "measuring":
            return
        self._last_s = self._system.cpu_s()
        if self._first_s is None:
            self._first_s, self._sent = self._last_s, (progress.received, progress.received)
        self._sent = (self._sent[0], progress.received)

    def us_per_message(self) -> float:
        """Raises InternalError if nothing was seen: the run was too short."""
        messages = self._sent[1] - self._sent[0]
        if self._first_s is None or messages <= 0:
            raise InternalError("a run too short to see the processor time of a message")
        return 1e6 * (self._last_s - self._first_s) / messages


async def compare(options: NsqdOptions, console: Console) -> Verdict:
    """All runs in turn, shown. Raises Unavailable where nsqd is not built."""
    peer("nsqd")
    started = time.time()
    samples: list[Sample] = []
    with TemporaryDirectory(prefix="srtm-nsqd-") as folder:
        for turn in range(2 * options.pairs):
            if len(sides(samples)[0]) == options.pairs:
                break
            for name in SYSTEMS:
                with console.status(f"{name}, turn {turn + 1}"):
                    samples.append(await _sample(name, Path(folder) / f"{name}-{turn}", options, options.seed + turn))
                console.print(_line(samples[-1]))
    verdict = judge(samples, {"pairs": options.pairs, "seconds": options.seconds})
    show(console, verdict, samples)
    if options.document is not None:
        write_block(options.document, "nsqd", markdown(verdict, samples, started))
    if options.json_file is not None:
        _write_json(options, verdict, started, options.json_file)
    return verdict


async def _sample(name: str, folder: Path, options: NsqdOptions, seed: int) -> Sample:
    async with SYSTEMS[name](folder) as system:
        meter = CpuMeter(system)
        result = await run_plan(plan(system.tcp_address, options.seconds, seed), meter.look)
    return Sample(
        name=name,
        brokers=1,
        offered=result.offered,
        sent=result.sent,
        received=result.received,
        lost=result.lost,
        duplicates=result.duplicates,
        p50_ms=result.p50_ms,
        p99_ms=result.p99_ms,
        p999_ms=result.p999_ms,
        lateness_p99_ms=result.lateness_p99_ms,
        cpu_us=meter.us_per_message(),
        reasons=result.reasons,
    )


def _line(sample: Sample) -> str:
    figures = f"p50 {sample.p50_ms:.3f} ms, p99 {sample.p99_ms:.3f} ms, {sample.cpu_us:.1f} us a message"
    doubt = f" (does not count: {'; '.join(sample.reasons)})" if sample.reasons else ""
    return f"{sample.name}: {figures}, {sample.lost} lost{doubt}"


def show(console: Console, verdict: Verdict, samples: Sequence[Sample]) -> None:
    drawn = Table("", *SYSTEMS, header_style="bold")
    for row in comparison(samples):
        drawn.add_row(*row)
    if drawn.rows:
        console.print(f"Medians (smallest to largest run) of {verdict.settings['pairs']} pairs")
        console.print(drawn)
    console.print(f"[bold {'green' if verdict.reached else 'red'}]{verdict.line}[/]")


def markdown(verdict: Verdict, samples: Sequence[Sample], started: float) -> str:
    table = markdown_table(["median (smallest to largest run)", *SYSTEMS], comparison(samples))
    turns = f"{verdict.settings['pairs']} alternating pairs of {verdict.settings['seconds']:g} s"
    return f"{verdict.claim}\n\n{table}\n\n**{verdict.line}.** {turns}. {provenance(started)}"


def _write_json(options: NsqdOptions, verdict: Verdict, started: float, json_file: str) -> None:
    results = Results.of(
        "bench nsqd",
        verdict.runs,
        seed=options.seed,
        started=started,
        settings=verdict.settings,
        reasons=verdict.reasons,
        result={"reached": verdict.reached, "line": verdict.line, "checks": verdict.checks},
    )
    write_results(json_file, results)
