"""An experiment's data, picture and section of the document, the same for all."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.experiments.lab.figure import About, Effort, Figure, Row
from bench.experiments.lab.stored_figure import Finished
from bench.harness.results.document import markdown_table
from bench.harness.results.panels import draw
from bench.harness.results.provenance import provenance
from bench.harness.results.results import Results
from bench.harness.results.verdict import Verdict
from srtm.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Shown:
    """``name``: of the files in the directory; in the document they and the block have that of ``about``."""

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


def make_directory(directory: Path) -> None:
    """Raises BadInput."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput("directory", str(directory), f"must be one that can be made ({error.strerror})") from error


def publish(shown: Shown, verdict: Verdict, started: float, directory: Path, *, document: bool) -> None:
    """Raises BadInput for what cannot be written."""
    finished = Finished(directory, shown.name)
    results = Results.of_verdicts(
        f"bench {shown.name}", [verdict], seed=shown.effort.seed, started=started, settings=verdict.settings
    )
    finished.begin()
    finished.rows.write_text(as_csv(verdict.runs))
    draw(finished.picture, shown.figure.panels, shown.made)
    finished.block.write_text(section(shown, started))
    finished.end(results)
    if document:
        finished.show_in_document(shown.about.name)


def section(shown: Shown, started: float) -> str:
    """What the document shows of it."""
    about, figure = shown.about, shown.figure
    table = markdown_table(list(about.columns), [_cells(row, about) for row in figure.rows])
    checks = markdown_table(["checked", "found", "must be", ""], [one.cells for one in figure.checks])
    picture = f"![{about.title}](img/{about.name}.png)"
    claim = f"Claim: {about.claim}"
    return "\n\n".join(
        [
            claim,
            picture,
            f"{shown.made}.",
            checks,
            f"<details><summary>rows</summary>\n\n{table}\n\n</details>",
            provenance(started),
        ]
    )


def _cells(row: Row, about: About) -> list[str]:
    return [_cell(row.get(key)) for key in about.columns.values()]


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
