"""A table for people that stays readable on a narrow terminal: its cells break between words; where not even the words
find room beside each other, it is turned, what were rows are columns then, as many beside each other as there is
room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_FRAME = 3  # characters that a column takes beside its text: a line, a space on either side
_LAST_LINE = 1


@dataclass(frozen=True)
class PeopleTable:
    """Anything that rich prints. The first ``left`` columns are text, the others numbers (aligned right)."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.drawn(options.max_width)

    def drawn(self, width: int) -> Iterator[Table]:
        """One table, or several below each other, of at most ``width`` characters if that is possible at all."""
        room = width - _LAST_LINE - _FRAME * len(self.columns)
        texts = [[column, *(row[at] for row in self.rows)] for at, column in enumerate(self.columns)]
        full = [max(map(cell_len, each)) for each in texts]
        least = [max(map(_longest_word, each)) for each in texts]
        if sum(full) <= room:
            yield self._upright(full)
        elif sum(least) <= room:
            yield self._upright(_between(least, full, room))
        else:
            yield from self._turned(width)

    def _upright(self, widths: Sequence[int]) -> Table:
        drawn = _empty(self.title)
        for at, (column, width) in enumerate(zip(self.columns, widths, strict=True)):
            drawn.add_column(Text(column), justify="left" if at < self.left else "right", width=width)
        for row in self.rows:
            drawn.add_row(*map(Text, row))
        return drawn

    def _turned(self, width: int) -> Iterator[Table]:
        labels = max(map(cell_len, self.columns))
        room = width - _LAST_LINE - _FRAME - labels
        rows, title = list(self.rows), self.title
        while rows:
            taken = _beside(rows, room)
            yield self._records(title, rows[:taken])
            rows, title = rows[taken:], ""

    def _records(self, title: str, rows: Sequence[Sequence[str]]) -> Table:
        drawn = _empty(title)
        drawn.add_column(Text(self.columns[0]))
        for row in rows:
            drawn.add_column(Text(row[0]), justify="right", overflow="fold")
        for at, column in enumerate(self.columns[1:], start=1):
            drawn.add_row(Text(column), *(Text(row[at]) for row in rows))
        return drawn


def _empty(title: str) -> Table:
    return Table(title=title or None, title_justify="left", header_style="bold")


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _between(least: Sequence[int], full: Sequence[int], room: int) -> list[int]:
    """Widths that take up ``room``: those who lack little of their full width get it first."""
    widths, left = list(least), room - sum(least)
    for at in sorted(range(len(widths)), key=lambda at: full[at] - least[at]):
        more = min(left, full[at] - least[at])
        widths[at] += more
        left -= more
    return widths


def _beside(rows: Sequence[Sequence[str]], room: int) -> int:
    """How many records fit beside each other; one at least."""
    taken = 0
    for row in rows:
        room -= _FRAME + max(map(cell_len, row))
        if room < 0:
            break
        taken += 1
    return max(1, taken)
