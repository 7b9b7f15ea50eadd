"""The runs of ``bench.experiments.steps.step_runs``: kept in a file each, until sources of what is measured change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.experiments.steps.run import MODES, STEPS, StepRun
from bench.harness.results.results import replace_file
from bench.harness.results.sources import measured_sources
from srtm.errors import BadInput

_OWN = (
    *("bench/harness/cluster_runs/trace.py", "bench/harness/cluster_runs/recovery.py"),
    *("bench/experiments/steps/run.py", "bench/experiments/steps/traffic.py"),
)


def run_sources() -> str | None:
    """The fingerprint of what a run depends on."""
    return measured_sources(*_OWN)


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
    """Those of this seed and, mode by mode, of one state of the sources: of these, or where no run of the mode is, of
    those that most of its runs were made of. And a line for each of the others, which have no place beside them."""
    same, others, chosen = [], [], {mode: _sources_of(runs, seed, mode, sources) for mode in MODES}
    for run in runs:
        if run.seed == seed and run.sources == chosen[run.mode]:
            same.append(run)
        else:
            made = f"seed {run.seed}, sources {run.sources or 'unknown'}"
            others.append(f"left out: {run.mode}, {run.step}, run {run.number}: {made}")
    return same, others


def _sources_of(runs: Sequence[StepRun], seed: int, mode: str, sources: str | None) -> str | None:
    """Which runs of that mode stand together."""
    counts = Counter(run.sources for run in runs if (run.mode, run.seed) == (mode, seed) and run.sources is not None)
    return sources if sources in counts or not counts else counts.most_common(1)[0][0]


def made_at(runs: Sequence[StepRun]) -> str:
    """A sentence: at which commits, of which sources of what was measured."""
    states: dict[str, list[StepRun]] = {}
    for run in runs:
        states.setdefault(run.sources or "unknown", []).append(run)
    if len(states) == 1:
        same = f"the sources of what was measured are the same in all ({next(iter(states))})"
        return f"Runs were made at commit {_commits(runs)}; {same}."
    told = [f"{_modes(those)} of {sources}, at commit {_commits(those)}" for sources, those in states.items()]
    return f"Each mode was measured with one state of the sources of what was measured: {'; '.join(told)}."


def _commits(runs: Sequence[StepRun]) -> str:
    counts = Counter(run.commit or "unknown" for run in runs)
    return ", ".join(f"{commit} ({count})" for commit, count in counts.most_common())


def _modes(runs: Sequence[StepRun]) -> str:
    return ", ".join(mode for mode in MODES if any(run.mode == mode for run in runs))
