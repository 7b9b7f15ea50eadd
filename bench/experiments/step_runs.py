"""The runs of ``bench.experiments.adaptation``: what each found, kept in a file each, and what they say together."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.document import markdown_table
from srtm.errors import BadInput

MODES = ("fitted", "proportional, 2 s", "proportional", "gdrl", "central", "static")


@dataclass(frozen=True)
class Step:
    """Parts of the load on the first broker, before and after."""

    before: float
    after: float
    batch: int = 1

    @property
    def name(self) -> str:
        return f"{_percent(self.before)} -> {_percent(self.after)}" + (
            f", batch {self.batch}" if self.batch > 1 else ""
        )


STEPS = {
    "50-10": Step(0.5, 0.1),
    "50-20": Step(0.5, 0.2),
    "90-10": Step(0.9, 0.1),
    "50-10-batch": Step(0.5, 0.1, batch=10),
}

REACH_S = {  # {step: fitted drained, and p99 back}
    "50-10": (2.0, 3.0),
    "50-20": (2.0, 3.0),
    "90-10": (4.0, 4.0),
    "50-10-batch": (5.0, 5.0),
}


PART_OF_PROPORTIONAL = 0.2  # the worst broker's p99 at 10:90 under fitted, at most


@dataclass(frozen=True, kw_only=True)
class StepRun:
    """One step under one mode. None: not as long as it was watched."""

    step: str
    mode: str
    number: int
    drained_s: float | None
    back_s: float | None
    worst_p99_ms: float  # at the end
    before_p99_ms: float
    messages: int
    before_s: float
    watched_s: float
    seed: int
    commit: str | None  # of the sources; None: not run from a checkout

    def row(self) -> dict[str, Any]:
        return {"name": f"{self.mode}, {self.step}", **asdict(self)}


def file_of(directory: Path, step: str, mode: str, number: int) -> Path:
    """Of a run: ``step`` is its key in ``STEPS``."""
    return directory / f"{step}_{mode.replace(', ', '-').replace(' ', '')}_{number}.json"


def keep(path: Path, run: StepRun) -> None:
    """Whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(run)))
    fresh.replace(path)


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


def alike(runs: Sequence[StepRun], seed: int, commit: str | None) -> tuple[list[StepRun], list[str]]:
    """Those of this seed and commit; and a line for each of the others, which have no place beside them."""
    same, others = [], []
    for run in runs:
        if (run.seed, run.commit) == (seed, commit):
            same.append(run)
        else:
            made = f"seed {run.seed}, commit {run.commit or 'unknown'}"
            others.append(f"left out: {run.mode}, {run.step}, run {run.number}: {made}")
    return same, others


def missed(runs: Sequence[StepRun]) -> list[str]:
    """What ``fitted`` must reach in the median and does not, and whether ``static`` ever was back, of what was run."""
    found = []
    for name, (drained_s, back_s) in REACH_S.items():
        here = _of(runs, "fitted", STEPS[name].name)
        if here and not (_median_s(run.drained_s for run in here) <= drained_s):
            found.append(f"fitted, {STEPS[name].name}: not drained within {drained_s:g} s")
        if here and not (_median_s(run.back_s for run in here) <= back_s):
            found.append(f"fitted, {STEPS[name].name}: not back within {back_s:g} s")
    found += [f"static, {run.step}: back after {run.back_s:g} s" for run in runs if _is_back_under_static(run)]
    part = steady_part(runs)
    if part is not None and part > PART_OF_PROPORTIONAL:
        found.append(f"worst broker's p99 at 10:90 under fitted {part:.2f} of that under proportional")
    return found


def _is_back_under_static(run: StepRun) -> bool:
    return run.mode == "static" and run.back_s is not None


def steady_part(runs: Sequence[StepRun]) -> float | None:
    """The worst broker's p99 at the end of the first step under fitted, as a part of that under proportional."""
    first = next(iter(STEPS.values())).name
    fitted, proportional = _of(runs, "fitted", first), _of(runs, "proportional", first)
    if not fitted or not proportional:
        return None
    return statistics.median(run.worst_p99_ms for run in fitted) / statistics.median(
        run.worst_p99_ms for run in proportional
    )


def claim(runs: Sequence[StepRun], tail_s: float) -> str:
    watched = {mode: max(run.watched_s for run in runs if run.mode == mode) for mode in MODES if _any(runs, mode)}
    never = ", ".join(f"{seconds:g} s ({mode})" for mode, seconds in watched.items())
    text = (
        "10,000 Poisson msg/s on two brokers, r = 11,000, b = 25 (batch 10: 248): after the step, seconds until the "
        "backlog is gone / until the p99 access delay of the trailing second is back, and the worse broker's p99 in "
        f"the last {tail_s:g} s, ms; median (worst), and of how many runs. never: not within {never}."
    )
    part = steady_part(runs)
    return (
        text
        if part is None
        else f"{text} At 10:90 the worse broker's p99 under fitted is {part:.2f} of proportional's."
    )


def _any(runs: Sequence[StepRun], mode: str) -> bool:
    return any(run.mode == mode for run in runs)


def markdown(runs: Sequence[StepRun]) -> str:
    steps = [step.name for step in STEPS.values() if any(run.step == step.name for run in runs)]
    modes = [mode for mode in MODES if _any(runs, mode)]
    rows = [[mode, *(_cell(_of(runs, mode, step)) for step in steps)] for mode in modes]
    return markdown_table(["mode", *steps], rows)


def _of(runs: Sequence[StepRun], mode: str, step: str) -> list[StepRun]:
    return [run for run in runs if (run.mode, run.step) == (mode, step)]


def _cell(runs: Sequence[StepRun]) -> str:
    if not runs:
        return ""
    p99 = statistics.median(run.worst_p99_ms for run in runs)
    drained, back = _figures([run.drained_s for run in runs]), _figures([run.back_s for run in runs])
    return f"{drained} / {back}; {p99:.3g} ms; {len(runs)}"


def _figures(values: Sequence[float | None]) -> str:
    return f"{seconds(_median_s(values))} ({seconds(max(map(_endless, values)))})"


def _median_s(values: Iterable[float | None]) -> float:
    return statistics.median(map(_endless, values))


def _endless(value: float | None) -> float:
    return float("inf") if value is None else value


def seconds(value: float | None) -> str:
    return "never" if _endless(value) == float("inf") else f"{value:.1f}"


def _percent(part: float) -> str:
    return f"{100 * part:.0f}:{100 - 100 * part:.0f}"
