"""The runs of ``srtm bench adaptation``: kept in a file each, until the sources change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.experiments.steps.run import MODES, STEPS, StepRun
from bench.harness.results.results import replace_file
from srtm.errors import BadInput


def file_of(directory: Path, step: str, mode: str, number: int) -> Path:
    """Of a run: ``step`` is its key in ``STEPS``."""
    return directory / f"{step}_{mode.replace(', ', '-').replace(' ', '')}_{number}.json"


def keep(path: Path, run: StepRun) -> None:
    """Whole or not at all."""
    replace_file(path, msgspec.json.format(msgspec.json.encode(run)))


def kept(path: Path) -> StepRun | None:
    """None: there is none. Raises BadInput for a file that holds no run."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=StepRun)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise BadInput("directory", str(path), f"must hold a run ({error})") from error


def kept_in(directory: Path) -> list[StepRun]:
    """All runs, in the order of steps and modes. Raises BadInput."""
    return in_order(run for path in directory.glob("*_*_*.json") if (run := kept(path)) is not None)


def in_order(runs: Iterable[StepRun]) -> list[StepRun]:
    """Of steps and modes."""
    steps = [step.name for step in STEPS.values()]
    return sorted(runs, key=lambda run: (steps.index(run.step), MODES.index(run.mode), run.number))


@dataclass(frozen=True)
class Made:
    """How runs are to be made that may stand in one table."""

    before_s: dict[str, float]  # {mode: ...}
    watched_s: dict[str, float]  # {mode: ...}
    seed: int
    sources: str | None


def is_kept(path: Path, mode: str, made: Made) -> bool:
    """Whether the file holds a run that was made like that: what other sources found has to be found anew. Raises
    BadInput for one with other settings."""
    run = kept(path)
    if run is None:
        return False
    was, now = (run.before_s, run.watched_s, run.seed), (made.before_s[mode], made.watched_s[mode], made.seed)
    if was != now:
        rule = (
            f"must be a run with before, after and seed {now}, is one with {was}: remove it, or name another directory"
        )
        raise BadInput("directory", str(path), rule)
    return run.sources == made.sources


def alike(runs: Sequence[StepRun], seed: int, sources: str | None) -> tuple[list[StepRun], list[str]]:
    """Those of this seed and these sources, and a line for each of the others: they have no place beside them."""
    same, others = [], []
    for run in runs:
        if (run.seed, run.sources) == (seed, sources):
            same.append(run)
        else:
            made = f"seed {run.seed}, commit {run.commit or 'unknown'}"
            others.append(f"left out: {run.mode}, {run.step}, run {run.number}: {made}")
    return same, others
