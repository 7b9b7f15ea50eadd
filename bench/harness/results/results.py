"""What benches and the demo write down: flat runs, whether they count, and where they were made.

Histograms travel as HDR V2 (deflate, base64) of nanoseconds: they can be added, percentiles cannot.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
from hdrh.histogram import HdrHistogram

from bench.harness.machine.host import Host
from bench.harness.results.sources import source_commit
from bench.harness.results.verdict import Verdict
from srtm.errors import BadInput
from srtm.version import __version__

SCHEMA = 1
_RANK_DIGITS = 6  # beyond them is the noise of floating point: 99.9 % of 1,000 is 999
LOWEST_NS, HIGHEST_NS, DIGITS = 1, 3_600_000_000_000, 3  # the load generator's and the engine's


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """One command's result. ``runs`` are flat objects; ``valid`` says whether all of them count."""

    schema: int = SCHEMA
    command: str
    version: str = __version__
    commit: str | None  # of the sources; None: not run from a checkout
    started: str  # ISO 8601, UTC
    seed: int
    host: Host
    settings: dict[str, Any]
    valid: bool
    reasons: list[str]
    runs: list[dict[str, Any]]
    result: Any = None  # what the command shows, where that is more than its runs

    @classmethod
    def of(
        cls,
        command: str,
        runs: Iterable[dict[str, Any]],
        *,
        seed: int,
        started: float,
        settings: dict[str, Any],
        reasons: Iterable[str] = (),
        result: Any = None,
    ) -> Results:
        """With the facts of this machine and sources. ``started``: s since 1970; ``reasons``: why runs do not count."""
        why = list(reasons)
        return cls(
            command=command,
            commit=source_commit(),
            started=datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
            seed=seed,
            host=Host.here(),
            settings=settings,
            valid=not why,
            reasons=why,
            runs=list(runs),
            result=result,
        )

    @classmethod
    def of_verdicts(
        cls, command: str, verdicts: Sequence[Verdict], *, seed: int, started: float, settings: dict[str, Any]
    ) -> Results:
        """Of a bench whose parts each end in a verdict: their runs, what spoils them, and what came of their checks."""
        return cls.of(
            command,
            [run for verdict in verdicts for run in verdict.runs],
            seed=seed,
            started=started,
            settings=settings,
            reasons=[f"{verdict.name}: {reason}" for verdict in verdicts for reason in verdict.reasons],
            result=[{"name": v.name, "reached": v.reached, "line": v.line, "checks": v.checks} for v in verdicts],
        )


def write_results(json_file: str | None, results: Results) -> None:
    """``results`` to ``json_file`` (``-``: standard output; None: nowhere), whole or not at all. Raises BadInput."""
    if json_file is None:
        return
    if json_file == "-":
        sys.stdout.buffer.write(as_json(results))
        sys.stdout.buffer.flush()
        return
    try:
        replace_file(Path(json_file), as_json(results))
    except OSError as error:
        raise BadInput("json", json_file, f"must be a file that can be written ({error.strerror})") from error


def as_json(found: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


def replace_file(path: Path, content: bytes) -> None:
    """``path`` holds ``content`` or what it held before, nothing else. Raises OSError."""
    descriptor, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(fresh).chmod(0o644)  # mkstemp's files are for their owner only
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink()
        raise


def merged(encoded: Iterable[str]) -> HdrHistogram:
    """The sum of histograms. Raises BadInput for text that is none."""
    total = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
    for text in encoded:
        try:
            total.decode_and_add(text)
        except Exception as error:  # hdrh, zlib, base64 and struct have no common class of errors
            raise BadInput("histogram", text, f"must be HDR V2, base64 ({type(error).__name__})") from error
    return total


def histogram_ms(histogram: HdrHistogram, percentile: float) -> float:
    """What ``percentile`` (0..100) per cent of the values do not exceed, as the load generator has it; 0.0 if nothing
    was recorded. hdrh takes the nearest rank, which may be a smaller one."""
    total = histogram.get_total_count()
    if not total:
        return 0.0
    rank = ceil(round(percentile * total / 100, _RANK_DIGITS))
    return float(histogram.get_value_at_percentile(100 * rank / total)) / 1e6


def cdf(histogram: HdrHistogram) -> tuple[list[float], list[float]]:
    """(latencies in ms, share of values that are at most so long), ascending; the last share is 1."""
    recorded = [(b.value_iterated_to, b.count_at_value_iterated_to) for b in histogram.get_recorded_iterator()]
    total, so_far, shares = sum(count for _, count in recorded), 0, []
    for _, count in recorded:
        so_far += count
        shares.append(so_far / total)
    return [value / 1e6 for value, _ in recorded], shares
