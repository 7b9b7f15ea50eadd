"""A page as Markdown: one renderer for every result."""

from __future__ import annotations

import msgspec

from bench.harness.results.page import Items, Notes, Page, Picture, Table, checked
from bench.harness.results.provenance import Origin
from bench.harness.results.verdict import none_of

LONG = "word " * 40
PAGE = Page(
    title="One",
    claim="It is.",
    verdict="one: reached.",
    body=[
        Picture(file="one.png", about="What was found"),
        LONG.strip(),
        "```text\n" + LONG + "\n```",
        Items(items=[LONG.strip()]),
        checked([none_of("lost", 1)]),
        Table(header=["a"], rows=[["x|y"]], folded="rows"),
    ],
    sources=[
        "broker",
        "distributor",
        "adaptor",
        "srtm",
        "bench/loadgen",
        "bench/harness/load",
        "bench/comparisons/one",
    ],
    origin=Origin(command="srtm bench one --document", day="2026-11-25", commit="c0ffee", host="2 cores"),
)
TEXT = PAGE.markdown("one", Notes(weaknesses=["Few runs."]))


def test_a_page_has_its_parts_in_one_order() -> None:
    parts = ["# One", "**Claim.** It is.", "**Verdict.** one: reached.", "![What was found](one.png)", "* Few runs."]
    parts += ["`srtm bench one --document` wrote this page and [its data](data/one.json).", "Measured 2026-11-25"]
    places = [TEXT.index(part) for part in parts]
    assert places == sorted(places)


def test_paragraphs_and_lists_are_wrapped_and_blocks_of_several_lines_are_not() -> None:
    assert f"\n{LONG}\n```" in TEXT
    beyond = [line for line in TEXT.splitlines() if len(line) > 120]
    assert beyond == [LONG]


def test_the_command_that_lists_later_commits_can_be_pasted() -> None:
    block = TEXT.partition("```sh\n")[2].partition("\n```")[0]
    words = block.replace("\\\n", "").split()
    assert words == ["git", "log", "--oneline", "c0ffee..", "--", *PAGE.sources]


def test_a_bar_in_a_cell_does_not_end_it_and_a_check_that_failed_stands_out() -> None:
    assert "\n| x\\|y |\n" in TEXT
    assert "<summary>rows</summary>" in TEXT
    assert "| lost | 1 | 0 | **no** |" in TEXT


def test_a_terminal_is_shown_no_pictures() -> None:
    assert "one.png" not in PAGE.text
    assert "| lost | 1 | 0 |" in PAGE.text


def test_what_is_stored_reads_back() -> None:
    assert msgspec.json.decode(msgspec.json.encode(PAGE), type=Page) == PAGE
