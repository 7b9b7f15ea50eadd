"""What a run of the load generator leaves: NAME.json, NAME.hlog and NAME.hgrm, the same for every command.

A command that writes FILE.json leaves those of each of its runs in the folder FILE-runs beside it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness.load.histogram_files import Curves, interval_log, percentile_distribution
from bench.harness.load.run import LISTENER, RunResult
from bench.harness.load.workload import Plan
from bench.harness.results.results import Results, merged, replace_file, write_results
from srtm.errors import BadInput

ENDINGS = ("json", "hlog", "hgrm")
_OWN = re.compile(rf"\d{{4,}}-.*\.({'|'.join(ENDINGS)})")  # of an earlier command that wrote the same FILE.json
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.=_-]+")


def write_run(folder: Path, name: str, title: str, results: Results, curves: Curves) -> list[Path]:
    """``title``: of the log. Each file appears whole or not at all. Raises BadInput for a folder that takes none."""
    document, log, distribution = files = [folder / f"{name}.{ending}" for ending in ENDINGS]
    write_results(str(document), results)
    try:
        replace_file(log, interval_log(title, curves).encode())
        replace_file(distribution, percentile_distribution(merged([curves.histograms.latency])).encode())
    except OSError as error:
        raise no_folder("json", folder, error) from error
    return files


def no_folder(field: str, folder: Path, error: OSError) -> BadInput:
    return BadInput(field, str(folder), f"must be a folder that can be written into ({error.strerror})")


@contextmanager
def runs_beside(json_file: Path | str | None) -> Iterator[None]:
    """Runs that end inside leave their files beside it; None and ``-`` (standard output) have no place for any."""
    if (folder := runs_of(json_file)) is None:
        yield
        return
    token = LISTENER.set(Keeper(folder).keep)
    try:
        yield
    finally:
        LISTENER.reset(token)


def keep_beside(json_file: Path | str | None, name: str, results: Results, curves: Curves) -> None:
    """The one run of a command that runs the load generator elsewhere. Raises BadInput."""
    if (folder := runs_of(json_file)) is not None:
        Keeper(folder).write(name, results, curves)


def runs_of(json_file: Path | str | None) -> Path | None:
    """The folder of its runs; None: there is no place for any."""
    if json_file is None or str(json_file) == "-":
        return None
    return (path := Path(json_file)).with_name(f"{path.stem}-runs")


@dataclass
class Keeper:
    """Numbers runs in the order of their ends. The first one replaces what an earlier command left in ``folder``."""

    folder: Path
    kept: int = 0

    def keep(self, plan: Plan, result: RunResult, name: str) -> None:
        """Raises BadInput for a folder that takes no files."""
        self.write(name, results_of(plan, result, name), Curves.of(result, plan.duration_s))

    def write(self, name: str, results: Results, curves: Curves) -> None:
        """As ``keep``."""
        if not self.kept:
            self._begin()
        self.kept += 1
        number = f"{self.kept:04}-{_NOT_IN_NAMES.sub('-', name)}"
        write_run(self.folder, number, f"Latencies of {name}", results, curves)

    def _begin(self) -> None:
        try:
            self.folder.mkdir(exist_ok=True)
            for file in self.folder.iterdir():
                if _OWN.fullmatch(file.name):
                    file.unlink()
        except OSError as error:
            raise no_folder("json", self.folder, error) from error


def results_of(plan: Plan, result: RunResult, name: str) -> Results:
    """As ``srtm bench run`` writes its own."""
    return Results.of(
        "bench run",
        [{**result.row(name), "valid": result.valid}],
        seed=plan.seed,
        started=result.measured_from_unix_ns / 1e9 or time.time(),
        settings=settings_of(plan),
        reasons=result.reasons,
        result=found_of(result),
    )


def found_of(result: RunResult) -> dict[str, Any]:
    """What is not flat of it."""
    return {
        "errors": result.errors,
        "error_texts": result.error_texts,
        "histograms": result.histograms,
        "targets": [{"target": one.target, "topic": one.topic, "histogram": one.histogram} for one in result.targets],
    }


def settings_of(plan: Plan) -> dict[str, Any]:
    """The plan without its columns: thousands of publishers, by what they have in common."""
    publishers = plan.publishers
    columns = ("publishers", "subscribers")
    return {
        **{field: getattr(plan, field) for field in plan.__struct_fields__ if field not in columns},
        "publishers": len(publishers.ids),
        "rate": sum(publishers.rate),
        "processes": sorted(set(publishers.process)),
        "batches": sorted(set(publishers.batch)),
        "groups": len({group for group in publishers.group if group >= 0}),
        "subscribers": len(plan.subscribers),
    }
