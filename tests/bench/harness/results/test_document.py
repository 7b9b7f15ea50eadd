"""Verdicts, and how they are written into documents."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from bench.commands.main import app
from bench.harness.results.document import markdown_table, with_block, write_block
from bench.harness.results.verdict import Verdict, at_most, none_of, within
from srtm.errors import BadInput


def test_bounds_are_kept_at_their_edge() -> None:
    assert at_most("x", 1.0, 1.0, "ms").kept
    assert within("x", 110.0, 100.0, 0.1, "ms").kept
    assert not within("x", 89.0, 100.0, 0.1, "ms").kept
    assert not none_of("x", 1).kept


def test_a_verdict_that_fell_short_says_by_what() -> None:
    verdict = Verdict("x", "claim", [at_most("p99", 2.0, 1.0, "ms"), none_of("lost", 0)])
    assert verdict.line == "x: fell short: p99 2 ms, must be at most 1 ms"


DOCUMENT = "before\n<!-- a:begin -->\nold\n<!-- a:end -->\nbetween\n<!-- b:begin -->\n<!-- b:end -->\nafter\n"


def test_a_block_is_replaced_and_nothing_else() -> None:
    written = with_block(DOCUMENT, "a", "new \\1 figures")
    assert written == DOCUMENT.replace("old\n", "\nnew \\1 figures\n\n")
    assert with_block(written, "a", "new \\1 figures") == written


@pytest.mark.parametrize("document", ["no blocks", DOCUMENT + DOCUMENT])
def test_a_document_without_exactly_one_block_of_the_name_is_refused(document: str) -> None:
    with pytest.raises(BadInput, match="exactly one block"):
        with_block(document, "a", "text")


def test_a_document_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="run from a checkout"):
        write_block(tmp_path / "none.md", "a", "text")


@pytest.mark.parametrize("file", ["", "none/x.json"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path, file: str) -> None:
    command = typer.main.get_command(app)
    with pytest.raises(BadInput, match="json"):
        command.main(["nsqd", "--json", str(tmp_path / file)], standalone_mode=False)


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert markdown_table(["a"], [["x|y"]]).splitlines()[-1] == "| x\\|y |"
