"""``srtm bench figures``: the paper's figures in the simulator, each with its data, its picture and its verdict.

A finished experiment is written at once, so long work can be taken up again where it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.experiments import convergence, eq01, fig06, fig07, fig08, fig09, fig10, fig11, limiters, modes, prop1
from bench.experiments.figure import Effort, Experiment
from bench.experiments.publishing import Shown, make_directory, publish
from bench.results import Results, source_commit
from bench.verdict import Verdict
from srtm.errors import BadInput

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (fig06, fig07, fig08, fig09, fig10, fig11, eq01, prop1, convergence, modes, limiters)
}
QUICK = Effort(seconds=15.0, repetitions=2)


@dataclass(frozen=True, kw_only=True)
class FiguresOptions:
    names: Sequence[str]
    effort: Effort
    directory: Path
    resume: bool = False
    document: bool = False  # write into docs/ as well


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


def chosen(names: Sequence[str]) -> list[str]:
    """All whole figures, or those and the parts that are named. Raises BadInput."""
    for name in names:
        if name not in known():
            raise BadInput("figure", name, f"must be one of {', '.join(known())}")
    return list(dict.fromkeys(names)) or list(EXPERIMENTS)


def figures(options: FiguresOptions, show: Callable[[str], None]) -> list[Verdict]:
    """Raises BadInput for a directory that cannot be written, and where the document is to show a part of a figure."""
    selected = {name: known()[name] for name in options.names}
    for name, one in selected.items():
        if options.document and one.parts:
            raise BadInput("document", name, f"must be of whole figures: name {one.experiment.name}")
    make_directory(options.directory)
    return [_one(name, one, options, show) for name, one in selected.items()]


def _one(name: str, selected: Selected, options: FiguresOptions, show: Callable[[str], None]) -> Verdict:
    experiment = selected.experiment
    data = options.directory / f"{name}.json"
    settings = {
        "seconds": options.effort.seconds,
        "repetitions": options.effort.repetitions,
        "simulated": True,
        "conditions": "",
    }
    if options.resume and (kept := _kept(data, settings, options.effort.seed)) is not None:
        show(f"{kept.line} (kept)")
        return kept
    started = time.time()
    effort = replace(options.effort, parts=selected.parts, step=lambda text: show(f"{name}: {text}"))
    figure = experiment.run(effort)
    settings["conditions"] = figure.conditions
    verdict = Verdict(name, experiment.claim, list(figure.checks), [dict(row) for row in figure.rows], settings)
    publish(
        Shown(name=name, about=experiment, figure=figure, effort=options.effort),
        verdict,
        started,
        options.directory,
        document=options.document,
    )
    show(verdict.line)
    return verdict


def _kept(data: Path, settings: dict[str, object], seed: int) -> Verdict | None:
    """What an earlier run of the same sources and settings found; None: it has to be run."""
    try:
        results = msgspec.json.decode(data.read_bytes(), type=Results)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise BadInput("resume", str(data), f"must be a result of this command ({error})") from error
    same = (
        {**results.settings, "conditions": ""} == settings
        and results.seed == seed
        and results.commit == source_commit()
    )
    if not same or not isinstance(results.result, list):
        return None
    return msgspec.convert({**results.result[0], "claim": "", "settings": results.settings}, Verdict)
