"""What the runs of ``bench.experiments.steps.step_runs`` say together: the table, and what was reached. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from bench.experiments.steps.run import (
    COUNTED_S,
    MODES,
    MOST_BEFORE_BATCH_MS,
    MOST_BEFORE_MS,
    MOST_BEFORE_WANDERING_MS,
    STEPS,
    TAIL_S,
    UNSETTLED,
    StepRun,
    counted_s,
)
from bench.harness.results.page import Table

REACH_S = {  # {step: fitted drained, and p99 back}
    "50-10": (2.0, 3.0),
    "50-20": (2.0, 3.0),
    "90-10": (4.0, 4.0),
    "50-10-batch": (5.0, 5.0),
}
PROPORTIONAL_S = 60.0  # both, with the paper's window
ENOUGH = 10  # runs of a step under a mode
_EXTRA = "proportional, 2 s"  # none of the five modes; beside them


def missed(runs: Sequence[StepRun]) -> list[str]:
    """What ``fitted`` and ``proportional`` must reach in the median and do not, and whether ``static`` ever was back,
    of what was run."""
    counting, found = [run for run in runs if run.counts], []
    for name, (drained_s, back_s) in REACH_S.items():
        found += _later_than(counting, "fitted", STEPS[name].name, drained_s, back_s)
        found += _later_than(counting, "proportional", STEPS[name].name, PROPORTIONAL_S, PROPORTIONAL_S)
    found += [f"static, {run.step}: back after {run.back_s:g} s" for run in counting if _is_back_under_static(run)]
    lost = sorted({(run.mode, run.step) for run in runs} - {(run.mode, run.step) for run in counting})
    return found + [f"{mode}, {step}: no run counts" for mode, step in lost]


def _later_than(runs: Sequence[StepRun], mode: str, step: str, drained_s: float, back_s: float) -> list[str]:
    here = _of(runs, mode, step)
    if not here:
        return []
    measured = {
        f"not drained within {drained_s:g} s": _median_s(run.drained_s for run in here) <= drained_s,
        f"not back within {back_s:g} s": _median_s(run.back_s for run in here) <= back_s,
    }
    return [f"{mode}, {step}: {what}" for what, kept in measured.items() if not kept]


def _is_back_under_static(run: StepRun) -> bool:
    return run.mode == "static" and run.back_s is not None


def scarce(runs: Sequence[StepRun]) -> list[str]:
    """Modes of which fewer than ten runs of some step count; of each step, how many."""
    counts = {
        mode: [len([run for run in _of(runs, mode, step.name) if run.counts]) for step in STEPS.values()]
        for mode in MODES
        if mode != _EXTRA or _any(runs, mode)
    }
    return [f"{mode} {', '.join(map(str, of_steps))}" for mode, of_steps in counts.items() if min(of_steps) < ENOUGH]


def verdict(runs: Sequence[StepRun]) -> str:
    few, short = scarce(runs), missed(runs)
    line = f"adaptation: fell short: {'; '.join(short)}." if short else "adaptation: reached, of what was run."
    return f"{line} Fewer than {ENOUGH} runs of a step that count: {'; '.join(few)}." if few else line


def conditions(runs: Sequence[StepRun]) -> str:
    watched = {mode: max(run.watched_s for run in runs if run.mode == mode) for mode in MODES if _any(runs, mode)}
    never = ", ".join(f"{seconds:g} s ({mode})" for mode, seconds in watched.items())
    return (
        "10,000 Poisson msg/s on two brokers, r = 11,000, b = 25 (batch 10: 248). A cell has, as medians (worst): "
        "drained / back; p99 before -> at the end; how many runs. Drained: seconds after the step until no more "
        f"messages wait than at most in the {COUNTED_S:g} s before it{_longer(runs)}. Back: seconds until the p99 "
        "access delay of the trailing second is at or under its largest value of that time. At the end: the worse "
        f"broker's p99 in the last {TAIL_S:g} s. Never: not within {never}. Runs with a p99 before the step of more "
        f"than {MOST_BEFORE_MS:g} ms (proportional and gdrl: {MOST_BEFORE_WANDERING_MS:g} ms, batch 10: "
        f"{MOST_BEFORE_BATCH_MS:g} ms) do not count, nor those with late generators. Under central there is no steady "
        "state before the step to be back at."
    )


def _longer(runs: Sequence[StepRun]) -> str:
    """Which modes are compared with more, and how much."""
    more = {mode: counted_s(mode) for mode in MODES if _any(runs, mode) and counted_s(mode) != COUNTED_S}
    named = ", ".join(f"{mode}: {seconds:g} s, its window" for mode, seconds in more.items())
    return f" ({named})" if named else ""


def table(runs: Sequence[StepRun]) -> Table:
    steps = [step.name for step in STEPS.values() if any(run.step == step.name for run in runs)]
    modes = [mode for mode in MODES if _any(runs, mode)]
    rows = [[mode, *(_cell(_of(runs, mode, step)) for step in steps)] for mode in modes]
    return Table(header=["mode", *steps], rows=rows)


def _any(runs: Sequence[StepRun], mode: str) -> bool:
    return any(run.mode == mode for run in runs)


def _of(runs: Sequence[StepRun], mode: str, step: str) -> list[StepRun]:
    return [run for run in runs if (run.mode, run.step) == (mode, step)]


def _cell(runs: Sequence[StepRun]) -> str:
    counting = [run for run in runs if run.counts]
    spoilt = f", {len(runs) - len(counting)} that do not count" if len(counting) < len(runs) else ""
    if not counting:
        return f"0{spoilt}" if runs else ""
    before, after = ([getattr(run, name) for run in counting] for name in ("before_p99_ms", "worst_p99_ms"))
    delays = f"{statistics.median(before):.3g} ({max(before):.3g}) -> {statistics.median(after):.3g} ({max(after):.3g})"
    drained, back = _figures([run.drained_s for run in counting]), _figures([run.back_s for run in counting])
    times = f"{drained} / {back}" if counting[0].mode != UNSETTLED else "not settled before"
    return f"{times}; {delays} ms; {len(counting)}{spoilt}"


def _figures(values: Sequence[float | None]) -> str:
    return f"{seconds(_median_s(values))} ({seconds(max(map(_endless, values)))})"


def _median_s(values: Iterable[float | None]) -> float:
    return statistics.median(map(_endless, values))


def _endless(value: float | None) -> float:
    return float("inf") if value is None else value


def seconds(value: float | None) -> str:
    return "never" if _endless(value) == float("inf") else f"{value:.1f}"
