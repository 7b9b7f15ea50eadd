"""``srtm bench run``: one run of a scenario, its verdict, its files and what people see of it."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from rich.console import Console
from rich.status import Status

from bench.console.exit_status import NOT_VALID
from bench.harness.load.histogram_files import Curves
from bench.harness.load.run import RunProgress, RunResult, TargetResult, run_plan
from bench.harness.load.run_files import no_folder, write_run
from bench.harness.load.validity import why_invalid
from bench.harness.results.results import Results, histogram_ms, merged
from bench.harness.results.verdict import Check, Verdict, at_most
from bench.harness.systems.peer_servers import ALL, missing
from bench.harness.systems.systems import OURS
from bench.scenarios.file import Promise, Scenario
from srtm.console.output import table
from srtm.errors import BadInput, Unavailable

_COLUMNS = ("", "offered", "sent", "received", "lost", "refused", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms")
_ROW = ("offered", "sent", "received", "lost", "refused", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")


@dataclass(frozen=True)
class Outcome:
    scenario: Scenario
    address: str  # of the broker
    started: float  # s since 1970
    result: RunResult
    verdict: Verdict

    @property
    def exit_status(self) -> int:
        """0: valid, and the promise (if any) kept; 1: broken; 3: not valid."""
        if not self.verdict.valid:
            return NOT_VALID
        return 0 if self.verdict.reached else 1


async def run_scenario(scenario: Scenario, console: Console) -> Outcome:
    """Says first how long it will take. Raises Unavailable where the broker cannot be reached, or started."""
    started = time.time()
    console.print(f"{scenario.name}: {scenario.phases}", soft_wrap=True)
    async with _broker(scenario) as address:
        with console.status(scenario.name) as status:
            result = await run_plan(scenario.plan(address), partial(_tell, status, scenario.name))
    return Outcome(scenario, address, started, result, judged(scenario, result))


def judged(scenario: Scenario, result: RunResult) -> Verdict:
    """The promise is one for each topic: the worst one decides."""
    promise = scenario.promise
    reasons = why_invalid(result, scenario.percentile)
    whole = {**result.row(scenario.name), "valid": not reasons}
    return Verdict(
        name=scenario.name,
        claim=f"p{scenario.percentile:g} of every topic as promised" if promise else "none: no promise was given",
        checks=[_check(promise, target) for target in result.targets] if promise else [],
        runs=[whole, *_topics(scenario.name, result)],
        settings=scenario.settings,
        reasons=reasons,
    )


def _check(promise: Promise, target: TargetResult) -> Check:
    measured_ms = histogram_ms(merged([target.histogram]), promise.percentile)
    return at_most(f"p{promise.percentile:g} of {target.topic}", measured_ms, promise.latency_ms, "ms")


def _topics(name: str, result: RunResult) -> list[dict[str, Any]]:
    """Flat, as ``RunResult.row``."""
    return [{"name": f"{name}/{target.topic}", **_flat(target)} for target in result.targets]


def _flat(target: TargetResult) -> dict[str, Any]:
    return {field: value for field, value in msgspec.structs.asdict(target).items() if field != "histogram"}


@asynccontextmanager
async def _broker(scenario: Scenario) -> AsyncIterator[str]:
    """Its address, HOST:PORT."""
    if scenario.address is not None:
        yield scenario.address
        return
    server = ALL[scenario.start or OURS]
    if said := missing(server):
        raise Unavailable(said)
    with TemporaryDirectory(prefix="srtm-bench-") as folder:
        async with server.start(Path(folder) / "broker") as system:
            yield system.tcp_address


def _tell(status: Status, name: str, now: RunProgress) -> None:
    status.update(f"{name}: {now.phase}, {now.elapsed_s:.0f} s, {now.received:,} received, p99 {now.p99_ms:.3g} ms")


def prepare(folder: Path) -> None:
    """Before anything is measured rather than after it. Raises BadInput."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise no_folder("out", folder, error) from error
    if not os.access(folder, os.W_OK):
        raise BadInput("out", str(folder), "must be a folder that can be written into")


def write(outcome: Outcome, folder: Path) -> list[Path]:
    """NAME.json, NAME.hlog and NAME.hgrm. Raises BadInput for a folder that takes no files."""
    scenario = outcome.scenario
    title = f"Latencies of the scenario {scenario.name} against {outcome.address}"
    curves = Curves.of(outcome.result, scenario.duration_s)
    return write_run(folder, scenario.name, title, _results(outcome), curves)


def _results(outcome: Outcome) -> Results:
    scenario, result, verdict = outcome.scenario, outcome.result, outcome.verdict
    return Results.of(
        "bench run",
        verdict.runs,
        seed=scenario.seed,
        started=outcome.started,
        settings={**scenario.settings, "address": outcome.address},
        reasons=verdict.reasons,
        result={
            "promise": verdict.checks,
            "kept": verdict.reached if verdict.checks else None,
            "errors": result.errors,
            "error_texts": result.error_texts,
            "histograms": result.histograms,
            "topics": {target.topic: target.histogram for target in result.targets},
        },
    )


def show(outcome: Outcome, files: list[Path], console: Console) -> None:
    verdict, result = outcome.verdict, outcome.result
    whole, *topics = verdict.runs
    shown = topics if len(topics) == 1 else [{**whole, "topic": "all"}, *topics]
    rows = [[run["topic"], *(run[field] for field in _ROW)] for run in shown]
    console.print(table(f"{outcome.scenario.name} against {outcome.address}", _COLUMNS, rows))
    console.print(
        f"acknowledged: p50 {result.ack_p50_ms:.3g} ms, p99 {result.ack_p99_ms:.3g} ms; "
        f"the generator was late by p99 {result.lateness_p99_ms:.3g} ms; errors: {sum(result.errors.values())}"
    )
    for text in result.error_texts:
        console.print(f"  {text}", markup=False)
    for check in verdict.checks:
        colour = "green" if check.kept else "red"
        console.print(f"{check.what}: {check.measured}, promised {check.bound}", style=colour, markup=False)
    for reason in verdict.reasons:
        console.print(f"not valid: {reason}", style="red", markup=False)
    if verdict.valid:
        console.print("[green]valid[/]")
    console.print(f"written: {', '.join(map(str, files))}", markup=False)
