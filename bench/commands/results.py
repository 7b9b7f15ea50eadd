"""``srtm bench results``: what is stored under docs/results, and its pages rendered anew."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.harness.results.page import Page
from bench.harness.results.publish import RESULTS, stored_pages, write_page
from bench.harness.results.sources import commits_since
from srtm.console.output import people_console
from srtm.console.tables import PeopleTable

app = typer.Typer()


@app.command("results")
def bench_results(
    render: Annotated[bool, typer.Option("--render", help="Write all pages anew from what is stored.")] = False,
) -> int:
    """What docs/results has, and how many commits since have changed what it is made of.

    Measures nothing: some seconds.
    """
    pages = list(stored_pages(RESULTS))
    if render:
        for name, page in pages:
            write_page(RESULTS, name, page)
    rows = [(name, page.origin.day, page.origin.commit, since(page), page.verdict) for name, page in pages]
    people_console().print(PeopleTable("", ("page", "measured", "commit", "commits since", "verdict"), rows, left=5))
    return 0


def since(page: Page) -> str:
    """The count, or that git cannot tell."""
    count = commits_since(page.origin.commit, page.sources)
    return "unknown here" if count is None else f"{count:,}"
