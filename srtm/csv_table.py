"""Reads lists that people keep as CSV: some columns by name, in any order, or without a header in a fixed one. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from srtm.errors import BadInput


class Shape(NamedTuple):
    """The columns of a list."""

    columns: Mapping[str, Sequence[str]]  # {column: its names in a header}; without a header they stand in this order
    needed: int  # the first so many must be there
    numeric: Sequence[str]  # columns that tell a line of values, where they hold numbers, from a header
    others: bool = False  # whether a header may name other columns; they are left out


def read_table(text: str, field: str, shape: Shape) -> Iterator[tuple[int, list[str]]]:
    """Yield line and cells, one for each of ``shape.columns``: empty where the list does not have it.

    Raises BadInput, which names ``field`` and the line.
    """
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    at: list[int | None] | None = None  # where each column stands
    width = 0
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            where = f"{field} line {reader.line_num}"
            if at is None:
                width = len(cells)
                at = _header(cells, where, shape)
                if at is not None:
                    continue
                at = _bare(cells, where, shape)
            if len(cells) != width:
                raise BadInput(where, ",".join(cells), f"must have {width} fields, as the first line")
            yield reader.line_num, ["" if place is None else cells[place] for place in at]
        if at is None:
            raise BadInput(f"{field} line 1", "", _rule(shape))
    except csv.Error as error:
        raise BadInput(f"{field} line {reader.line_num}", None, f"is not CSV: {error}") from error


def _header(cells: Sequence[str], where: str, shape: Shape) -> list[int | None] | None:
    """Return where each column stands if ``cells`` is a header; None: it is not. Raises BadInput."""
    names = [cell.lower() for cell in cells]
    at = [next((names.index(name) for name in known if name in names), None) for known in shape.columns.values()]
    if None in at[: shape.needed]:
        return None
    if not shape.others:
        _refuse_others(names, where, shape)
    return at


def _refuse_others(names: Sequence[str], where: str, shape: Shape) -> None:
    known = {name for names in shape.columns.values() for name in names}
    for position, name in enumerate(names):
        if name not in known or name in names[:position]:
            raise BadInput(where, name, f"must be one of {', '.join(shape.columns)}, each once")


def _bare(cells: Sequence[str], where: str, shape: Shape) -> list[int | None]:
    """Return where each column stands in a list without a header, whose first line is ``cells``. Raises BadInput."""
    at: list[int | None] = [place if place < len(cells) else None for place in range(len(shape.columns))]
    columns = dict(zip(shape.columns, at, strict=True))
    numbers = [place for name in shape.numeric if (place := columns[name]) is not None]
    if shape.needed <= len(cells) <= len(shape.columns) and all(is_number(cells[place]) for place in numbers):
        return at
    raise BadInput(where, ",".join(cells), _rule(shape))


def _rule(shape: Shape) -> str:
    names = list(shape.columns)
    more = f" and, where known, {','.join(names[shape.needed :])}" if names[shape.needed :] else ""
    return f"must be {','.join(names[: shape.needed])}{more}, or a header that names these columns"


def is_number(text: str) -> bool:
    """Whether ``text`` is one; infinity and NaN are."""
    try:
        float(text)
    except ValueError:
        return False
    return True
