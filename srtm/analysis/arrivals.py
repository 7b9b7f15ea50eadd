"""Reads recorded arrivals: a saved answer of a broker's ``GET /v1/topics/NAME/trace``, or a CSV file.

The header of a CSV has ``arrival_ns`` and, if senders matter, ``publisher``. Other columns are ignored. Instants are
whole nanoseconds of one clock.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self, TypeVar

import msgspec
import numpy as np

from srtm.errors import BadInput
from srtm.net.decode_errors import UNREADABLE
from srtm.topics.publishers import Ints

_LIMIT_NS = 2**62


@dataclass(frozen=True)
class Arrivals:
    """Arrivals in order of time, in columns. ``publisher`` holds indices into ``names``."""

    names: tuple[str, ...]
    publisher: Ints
    arrival_ns: Ints

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def seconds(self) -> float:
        """Time from the first to the last arrival, s."""
        return float(self.arrival_ns[-1] - self.arrival_ns[0]) / 1e9 if len(self) else 0.0

    def between(self, first_ns: int, last_ns: int) -> Self:
        """Return the arrivals from ``first_ns`` to ``last_ns``, both included."""
        start, end = np.searchsorted(self.arrival_ns, [first_ns, last_ns + 1]).tolist()
        return replace(self, publisher=self.publisher[start:end], arrival_ns=self.arrival_ns[start:end])


class _TraceColumns(msgspec.Struct):
    publishers: list[str]
    publisher: list[int]
    arrival_ns: list[int]


def read_arrivals(path: Path) -> Arrivals:
    """Read a trace or a CSV file. Raises BadInput."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput("trace", str(path), f"must be a file that can be read ({error.strerror})") from error
    return trace_arrivals(content, str(path)) if content.lstrip()[:1] == b"{" else _csv_arrivals(content, str(path))


def trace_arrivals(body: bytes, where: str) -> Arrivals:
    """Read the arrivals of a broker's trace. ``where`` names it in errors. Raises BadInput."""
    try:
        columns = msgspec.json.decode(body, type=_TraceColumns)
    except UNREADABLE as error:
        raise BadInput("trace", where, f"must be a broker's trace: {error}") from error
    senders, count = columns.publisher, len(columns.publishers)
    if len(senders) != len(columns.arrival_ns):
        raise BadInput("trace", where, f"has {len(senders)} publishers and {len(columns.arrival_ns)} arrivals")
    if senders and not 0 <= min(senders) <= max(senders) < count:
        raise BadInput("trace", where, f"column publisher must hold indices of the {count} publishers")
    return _sorted(columns.publishers, senders, columns.arrival_ns, where)


def merged(parts: Sequence[Arrivals]) -> Arrivals:
    """Merge the arrivals of several brokers of one host, for the time that all of them recorded.

    Each broker keeps a fixed number of arrivals, so a busy one covers less time. Equal names are one publisher. Raises
    BadInput if the recordings have no time in common.
    """
    parts = of_common_time(parts)
    names = tuple(dict.fromkeys(name for part in parts for name in part.names))
    index = {name: number for number, name in enumerate(names)}
    empty = np.zeros(0, dtype=np.int64)
    translated = [np.array([index[name] for name in part.names], dtype=np.int64)[part.publisher] for part in parts]
    arrival_ns = np.concatenate([empty, *(part.arrival_ns for part in parts)])
    order = np.argsort(arrival_ns, kind="stable")
    return Arrivals(names, np.concatenate([empty, *translated])[order], arrival_ns[order])


class _Timed(Protocol):
    @property
    def arrival_ns(self) -> Ints: ...

    def between(self, first_ns: int, last_ns: int) -> Self: ...


_Part = TypeVar("_Part", bound=_Timed)


def of_common_time(parts: Sequence[_Part]) -> list[_Part]:
    """Cut recordings of several brokers to the time that all of them cover. Empty recordings are left out.

    Raises BadInput if there is no such time.
    """
    recorded = [part for part in parts if len(part.arrival_ns)]
    if len(recorded) < 2:
        return recorded
    first_ns = max(int(part.arrival_ns[0]) for part in recorded)
    last_ns = min(int(part.arrival_ns[-1]) for part in recorded)
    if first_ns > last_ns:
        rule = "must have some time in common: ask while messages come to all brokers"
        raise BadInput("trace", f"{len(recorded)} recordings", rule)
    return [part.between(first_ns, last_ns) for part in recorded]


def _csv_arrivals(content: bytes, where: str) -> Arrivals:
    try:
        reader = csv.reader(content.decode("utf-8-sig").splitlines(), strict=True)
        header = [cell.strip() for cell in next(reader, [])]
        if "arrival_ns" not in header:
            raise BadInput("trace", where, "must be a broker's trace, or CSV whose header names arrival_ns")
        instant_column = header.index("arrival_ns")
        sender_column = header.index("publisher") if "publisher" in header else None
        names: dict[str, int] = {}
        senders, instants = [], []
        for row in reader:
            if row:
                instants.append(_instant(row, instant_column, f"{where} line {reader.line_num}"))
                name = "" if sender_column is None else "".join(row[sender_column : sender_column + 1]).strip()
                senders.append(names.setdefault(name, len(names)))
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadInput("trace", where, f"must be CSV in UTF-8: {error}") from error
    return _sorted(list(names), senders, instants, where)


def _instant(row: Sequence[str], column: int, where: str) -> int:
    try:
        return int(row[column])
    except (IndexError, ValueError):
        value = row[column] if column < len(row) else ""
        raise BadInput(f"{where}.arrival_ns", value, "must be a whole number of nanoseconds") from None


def _sorted(names: Sequence[str], senders: Sequence[int], instants: Sequence[int], where: str) -> Arrivals:
    if any(not -_LIMIT_NS < instant < _LIMIT_NS for instant in instants):
        raise BadInput("trace", where, f"instants must be within {_LIMIT_NS} ns of zero")
    arrival_ns = np.array(instants, dtype=np.int64)
    order = np.argsort(arrival_ns, kind="stable")
    return Arrivals(tuple(names), np.array(senders, dtype=np.int64)[order], arrival_ns[order])
