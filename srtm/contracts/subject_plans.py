"""Plans: ``{plan}/`` at the beginning of a subject stands for what a table says of the rest.

So one pattern a plan, such as ``gold/user:*``, is enough for all its subjects, and who asks need not know their plans.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from srtm.errors import BadInput, NotFound, shown

PLACE = "{plan}/"
ALL = "*"  # a row for all subjects of a namespace that have none of their own
MOST_PLANS = 1_000_000  # rows; each takes some 200 bytes
_COLUMNS = ["namespace", "subject", "plan"]
_PLAN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

Rows = Mapping[tuple[str, str], str]  # {(namespace, subject): plan}


class Plans:
    """The table of a CSV file, which may be read anew."""

    def __init__(self, rows: Rows | None = None, file: Path | None = None) -> None:
        self._file = file
        self._rows = rows or {}

    @classmethod
    def of_file(cls, path: Path) -> Plans:
        """Read a CSV file with the columns namespace, subject, plan. Raises BadInput."""
        return cls(_read(path), path)

    def renew(self) -> None:
        """Read the file again. Raises BadInput; then the old table stays."""
        if self._file is not None:
            self._rows = _read(self._file)

    def named(self, namespace: str, subject: str) -> str:
        """Return the subject with its plan in its place. Raises NotFound if nothing is known of it."""
        if not subject.startswith(PLACE):
            return subject
        rest = subject.removeprefix(PLACE)
        plan = self._rows.get((namespace, rest)) or self._rows.get((namespace, ALL))
        if plan is None:
            raise NotFound("subject", rest, f"a plan of namespace {shown(namespace)} must be for it, or for {ALL}")
        return f"{plan}/{rest}"


def _read(path: Path) -> Rows:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return read_plans(file)
    except OSError as error:
        raise BadInput("plans", str(path), f"must be a file that can be read ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput("plans", str(path), f"must be CSV in UTF-8 ({error})") from None


def read_plans(lines: Iterable[str]) -> Rows:
    """Read the lines of a CSV file. Raises BadInput."""
    reader = csv.reader(lines, strict=True)
    head = next(reader, [])
    if head != _COLUMNS:
        raise BadInput("plans line 1", ",".join(head), f"must be the header {','.join(_COLUMNS)}")
    found: dict[tuple[str, str], str] = {}
    for row in reader:
        place = f"plans line {reader.line_num}"
        if len(row) != len(_COLUMNS) or not row[0] or not row[1]:
            raise BadInput(place, ",".join(row), "must be a namespace, a subject and a plan")
        namespace, subject, plan = row
        if _PLAN.fullmatch(plan) is None:
            raise BadInput(place, plan, "a plan must be 1 to 64 letters, digits, dots, dashes or underscores")
        if (namespace, subject) in found:
            raise BadInput(place, subject, f"must have one plan in {namespace}, not two")
        found[namespace, subject] = plan
        if len(found) > MOST_PLANS:
            raise BadInput("plans", f"more than {MOST_PLANS:,}", f"must be at most {MOST_PLANS:,} rows")
    return found
