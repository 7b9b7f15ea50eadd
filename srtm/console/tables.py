"""Tables for people, drawn by ``rich``, that stay readable on a narrow terminal.

Cells wrap between words. If the words do not fit side by side, the table is turned: its rows become columns, as many
side by side as fit. In a file or pipe the frame is of plain characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_FRAME = 3  # characters of a column beside its text: a line, and a space on either side


@dataclass(frozen=True)
class PeopleTable:
    """A table that ``rich`` prints. The first ``left`` columns are text, the others numbers (aligned right)."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - 1 - _FRAME * len(self.columns)
        cells = list(zip(self.columns, *self.rows, strict=True))
        longest_words = [max(map(_longest_word, column)) for column in cells]
        if sum(longest_words) > room:
            yield from self._turned(options)
        else:
            full = [max(map(cell_len, column)) for column in cells]
            widths = _widths(longest_words, full, room)
            yield _table(options, self.title, self.columns, self.rows, self.left, widths)

    def _turned(self, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - 1 - _FRAME - max(map(cell_len, self.columns))
        widest = max((cell_len(cell) for row in self.rows for cell in row), default=0)
        beside = max(1, room // (widest + _FRAME))
        for start in range(0, max(1, len(self.rows)), beside):
            columns, *rows = zip(self.columns, *self.rows[start : start + beside], strict=True)
            yield _table(options, "" if start else self.title, columns, rows, 1, [None] * len(columns))


def _table(
    options: ConsoleOptions,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int,
    widths: Sequence[int | None],
) -> Table:
    frame = box.HEAVY_HEAD if options.is_terminal else box.MARKDOWN
    drawn = Table(title=title or None, title_justify="left", header_style="bold", box=frame)
    for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
        drawn.add_column(Text(column), justify="left" if index < left else "right", overflow="fold", width=width)
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _widths(least: Sequence[int], full: Sequence[int], room: int) -> list[int]:
    """Widths of at least ``least`` whose sum is at most ``room``. The columns that need least more get it first."""
    widths, free = list(least), room - sum(least)
    for index in sorted(range(len(widths)), key=lambda index: full[index] - least[index]):
        more = min(free, full[index] - least[index])
        widths[index] += more
        free -= more
    return widths
