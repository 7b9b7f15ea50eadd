"""A table for people keeps its values whole on any terminal that has room for the longest of them."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from srtm.console.output import people_console, table
from srtm.console.tables import PeopleTable

SHARES = table(
    "Shares",
    ["broker", "address", "publishers", "demand msg/s", "access p99 ms", "processing p99 ms"],
    [[f"broker-{number}", f"127.0.0.1:{23_500 + number}", 104, 1_040.0, None, 12.5] for number in range(1, 6)],
    left=2,
)
WORDS = st.text("abc 1.", max_size=30)


def printed(drawn: PeopleTable, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, record=True, markup=False, emoji=False)
    console.print(drawn)
    return console.export_text().splitlines()


def cells(lines: list[str]) -> list[str]:
    """What stands between the lines of the frame, without the room around it."""
    return [cell.strip() for line in lines for cell in re.split("[┃│|]", line)]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 240])
def test_no_value_is_broken_and_no_line_is_longer_than_the_terminal(width: int) -> None:
    lines = printed(SHARES, width)
    assert max(map(cell_len, lines)) <= width
    shown = cells(lines)
    assert {f"127.0.0.1:{23_500 + number}" for number in range(1, 6)} <= set(shown)
    assert shown.count("12.5") == 5


def test_with_room_for_all_there_is_one_line_a_row() -> None:
    lines = printed(SHARES, 240)
    assert [line for line in lines if "broker-3" in line and "127.0.0.1:23503" in line]


def test_headings_break_between_words_before_the_table_is_turned() -> None:
    lines = printed(SHARES, 84)
    assert [line for line in lines if "broker-3" in line and "127.0.0.1:23503" in line]
    assert "processing" in cells(lines)


def test_where_the_words_find_no_room_rows_become_columns_below_each_other() -> None:
    lines = printed(SHARES, 60)
    heads = [line for line in lines if "broker-" in line]
    assert [line.count("broker-") for line in heads] == [2, 2, 1]
    assert sum("processing p99 ms" in line for line in lines) == 3
    assert sum("Shares" in line for line in lines) == 1


def test_a_pipe_gets_plain_characters_and_a_terminal_a_frame() -> None:
    assert all(line.isascii() for line in printed(SHARES, 80))
    terminal = Console(file=io.StringIO(), width=80, force_terminal=True)
    with terminal.capture() as capture:
        terminal.print(SHARES)
    assert "┃" in capture.get()


@pytest.mark.parametrize(("columns", "width"), [(None, 80), ("120", 120), ("0", 80), ("wide", 80)])
def test_a_pipe_is_80_columns_wide_or_as_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert people_console().width == width


def test_a_table_without_rows_says_what_would_be_there() -> None:
    for columns in (["name", "rate"], [f"a rather long column {number}" for number in range(9)]):
        lines = printed(table("Sessions", columns, []), 80)
        assert "Sessions" in lines[0]
        assert all(any(column in line for line in lines) for column in columns)


@given(rows=st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=4), width=st.integers(30, 120))
def test_any_words_are_all_there_at_any_width(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = printed(table("", ["first", "second", "third"], rows), width)
    kept = sorted("".join(row).replace(" ", "") for row in rows)
    told = "".join(cell for cell in cells(lines))
    assert all(told.count(letter) >= sum(row.count(letter) for row in kept) for letter in "abc1")


def test_names_are_shown_as_they_are_whatever_they_look_like(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["[/red]x", "[bold]b", ":bug:"]
    console = people_console()
    console.print(table("", ["publisher"], [[name] for name in names]))
    console.print("of [/red]x and :bug:")
    shown = capsys.readouterr().out
    assert all(name in shown for name in [*names, "of [/red]x and :bug:"])
