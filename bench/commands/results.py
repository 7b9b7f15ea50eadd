"""``srtm bench results``: what is stored under docs/results, and its pages rendered anew."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.harness.results.page import Page
from bench.harness.results.publish import RESULTS, stored_pages, write_page
from bench.harness.results.sources import commits_since

app = typer.Typer()


@app.command("results")
def bench_results(
    render: Annotated[bool, typer.Option("--render", help="Write all pages anew from what is stored.")] = False,
) -> int:
    """What docs/results has, and how many commits since have changed what it is made of.

    Measures nothing: some seconds.
    """
    table = Table(header_style="bold")
    for column in ("page", "measured", "commit", "commits since"):
        table.add_column(column, no_wrap=True)
    table.add_column("verdict")
    for name, page in stored_pages(RESULTS):
        if render:
            write_page(RESULTS, name, page)
        table.add_row(name, page.origin.day, page.origin.commit, since(page), page.verdict)
    Console(highlight=False).print(table)
    return 0


def since(page: Page) -> str:
    """The count, or that git cannot tell."""
    count = commits_since(page.origin.commit, page.sources)
    return "unknown here" if count is None else f"{count:,}"
