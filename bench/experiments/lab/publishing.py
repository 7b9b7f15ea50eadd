"""An experiment's data, picture and page, the same for all."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.experiments.lab.figure import About, Effort, Figure, Row
from bench.experiments.lab.stored_figure import Finished
from bench.harness.results.page import Page, Picture, Table, checked
from bench.harness.results.panels import draw
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import Stored
from bench.harness.results.results import Results
from bench.harness.results.verdict import Verdict
from srtm.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Shown:
    """``name``: of the files in the directory; the page has that of ``about``."""

    name: str
    about: About
    figure: Figure
    effort: Effort

    @property
    def made(self) -> str:
        """How, whether coarse, in which runs, under which conditions, from which seed."""
        about, effort = self.about, self.effort
        coarse = "coarse: " if effort.less_than(about.full) else ""
        runs = about.runs.format(repetitions=effort.repetitions, seconds=effort.seconds)
        return f"{about.how}, {coarse}{runs}; {self.figure.conditions}; seed {effort.seed}"

    def page(self, verdict: str, origin: Origin) -> Page:
        """``verdict``: its line."""
        about, figure = self.about, self.figure
        columns = {name: key for name, key in about.columns.items() if any(_cell(row.get(key)) for row in figure.rows)}
        rows = [[_cell(row.get(key)) for key in columns.values()] for row in figure.rows]
        return Page(
            title=about.title,
            claim=about.claim,
            verdict=f"{verdict}.",
            body=[
                Picture(file=f"{about.name}.png", about=about.title),
                f"{self.made}.",
                checked(figure.checks),
                Table(header=list(columns), rows=rows, folded="rows"),
            ],
            sources=list(about.sources),
            origin=origin,
        )


def make_directory(directory: Path) -> None:
    """Raises BadInput."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput("directory", str(directory), f"must be one that can be made ({error.strerror})") from error


def publish(shown: Shown, verdict: Verdict, started: float, directory: Path, document: Path | None) -> None:
    """Into ``directory``; into the folder ``document`` too, if one was asked for. Raises BadInput for what cannot be
    written."""
    finished = Finished(directory, shown.name)
    results = Results.of_verdicts(
        f"bench {shown.name}", [verdict], seed=shown.effort.seed, started=started, settings=verdict.settings
    )
    finished.begin()
    finished.rows.write_text(as_csv(verdict.runs))
    draw(finished.picture, shown.figure.panels, shown.made)
    finished.end(Stored(page=shown.page(verdict.line, Origin.here(started)), results=results))
    if document is not None:
        finished.publish(document, shown.about.name)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def as_csv(rows: Sequence[Row]) -> str:
    fields = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
