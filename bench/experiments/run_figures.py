"""``srtm bench figures``: the paper's figures in the simulator, each with its data, its picture and its verdict.

A finished experiment is written at once, so long work can be taken up again where it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.experiments.figures import (
    eq01,
    fig06,
    fig07,
    fig08,
    fig09,
    fig10,
    fig11,
    laboratory,
    limiters,
    modes,
    prop1,
    split_study,
)
from bench.experiments.lab.figure import Effort, Experiment
from bench.experiments.lab.publishing import Shown, make_directory, publish
from bench.experiments.lab.stored_figure import Finished
from bench.experiments.limits import (
    envoy,
    hot_subject,
    limit_peers,
    limit_service,
    limit_tables,
    real_brokers,
    real_nodes,
    replicated,
    windows,
)
from bench.experiments.promises import plan_minutes
from bench.harness.results.publish import refuse_unpublishable
from bench.harness.results.sources import source_fingerprint
from bench.harness.results.verdict import Verdict
from srtm.errors import BadInput

_MODULES = (
    *(laboratory, fig06, fig07, fig08, fig09, fig10, fig11),
    *(eq01, prop1, modes, limiters, split_study, replicated, hot_subject, windows),
    *(real_nodes, real_brokers, limit_peers, limit_service, limit_tables, envoy, plan_minutes),
)
EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES}
QUICK = Effort(seconds=15.0, repetitions=2)


@dataclass(frozen=True, kw_only=True)
class FiguresOptions:
    names: Sequence[str]
    effort: Effort
    directory: Path
    resume: bool = False  # keep what is finished there
    document: Path | None = None  # of pages, to write there as well


@dataclass(frozen=True, kw_only=True)
class Selected:
    """A figure, or one of its parts (``parts``; none: the whole)."""

    experiment: Experiment
    parts: tuple[str, ...] = ()


def known() -> dict[str, Selected]:
    """By name, the parts of a figure after it."""
    found = {}
    for name, experiment in EXPERIMENTS.items():
        found[name] = Selected(experiment=experiment)
        for part_name, part in experiment.parts.items():
            found[part_name] = Selected(experiment=experiment, parts=(part,))
    return found


def figures(options: FiguresOptions, show: Callable[[str], None]) -> list[Verdict]:
    """Raises BadInput for a directory that cannot be written, and where a page is to show a part of a figure."""
    selected = {name: known()[name] for name in options.names}
    for name, one in selected.items():
        if options.document is not None and one.parts:
            raise BadInput("document", name, f"must be of whole figures: name {one.experiment.name}")
    refuse_unpublishable(options.document)
    make_directory(options.directory)
    source_fingerprint()  # before hours in which they may change
    made = [_one(name, one, options, show) for name, one in selected.items()]
    show(lasted(made, options.effort))
    return [one.verdict for one in made]


@dataclass(frozen=True, kw_only=True)
class Made:
    """``took_s``: of its runs, on the clock and of a processor, whenever that was."""

    verdict: Verdict
    took_s: float
    processor_s: float


def lasted(made: Sequence[Made], effort: Effort) -> str:
    """The closing line."""
    clock_s, processor_s = sum(one.took_s for one in made), sum(one.processor_s for one in made)
    return (
        f"{len(made)} of {len(EXPERIMENTS)} figures, {effort.repetitions} runs of {effort.seconds:g} s a point: "
        f"{clock_s / 60:.1f} min, {processor_s / 60:.1f} min of one processor; what was kept counts as it took then."
    )


def _one(name: str, selected: Selected, options: FiguresOptions, show: Callable[[str], None]) -> Made:
    finished = Finished(options.directory, name)
    if options.resume and (kept := _kept(finished, selected.experiment, options.effort)) is not None:
        show(f"{kept.verdict.line} (kept)")
        if options.document is not None:
            finished.publish(options.document, selected.experiment.name)
        return kept
    made = _made(name, selected, options, show)
    show(made.verdict.line)
    return made


def _made(name: str, selected: Selected, options: FiguresOptions, show: Callable[[str], None]) -> Made:
    experiment, started = selected.experiment, time.time()
    clock_s, processor_s = time.monotonic(), time.process_time()
    effort = replace(options.effort, parts=selected.parts, step=lambda text: show(f"{name}: {text}"))
    figure = experiment.run(effort)
    took_s, processor_s = time.monotonic() - clock_s, time.process_time() - processor_s
    settings = {
        **_settings(experiment, effort),
        "sources": source_fingerprint(),
        "conditions": figure.conditions,
        "took_s": round(took_s, 3),
        "processor_s": round(processor_s, 3),
    }
    verdict = Verdict(name, experiment.claim, list(figure.checks), [dict(row) for row in figure.rows], settings)
    shown = Shown(name=name, about=experiment, figure=figure, effort=options.effort)
    publish(shown, verdict, started, options.directory, options.document)
    return Made(verdict=verdict, took_s=took_s, processor_s=processor_s)


def _settings(experiment: Experiment, effort: Effort) -> dict[str, object]:
    return {"seconds": effort.seconds, "repetitions": effort.repetitions, "simulated": experiment.how == "Simulated"}


def _kept(finished: Finished, experiment: Experiment, effort: Effort) -> Made | None:
    """What an earlier run of the same sources and settings found; None: it has to be run."""
    stored, sources = finished.stored(), source_fingerprint()
    results = None if stored is None else stored.results
    if results is None or results.seed != effort.seed:
        return None
    if any(results.settings.get(key) != value for key, value in _settings(experiment, effort).items()):
        return None
    if sources is None or results.settings.get("sources") != sources or not isinstance(results.result, list):
        return None
    settings = results.settings
    verdict = msgspec.convert({**results.result[0], "claim": "", "settings": settings}, Verdict)
    return Made(verdict=verdict, took_s=settings["took_s"], processor_s=settings["processor_s"])
