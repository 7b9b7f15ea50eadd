"""The contracts of a service on disk: a file of SQLite, so that a change costs by its size and is whole or not there.

Methods wait for the disk. Any thread may call them, one at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from srtm.errors import BadInput, Unavailable
from srtm.net.json_file import read_json

FILE = "contracts.sqlite3"
_BEFORE = "contracts.json"  # what services wrote that had no database
_WHAT = "the contracts of a limit service"
_SCHEMA = """
create table if not exists contracts (
    namespace text not null, pattern text not null, version integer not null, document blob not null,
    primary key (namespace, pattern)
) without rowid;
create table if not exists latest (version integer not null);
insert into latest select 0 where not exists (select 1 from latest);
"""


class Row(NamedTuple):
    """A contract: its key, the version that put it in force, and itself as JSON."""

    namespace: str
    pattern: str
    version: int
    document: bytes


class _Before(msgspec.Struct):
    version: int
    contracts: list[tuple[int, dict[str, object]]]


class ContractDatabase:
    """The file in the directory ``data``. Raises BadInput if it cannot be one."""

    def __init__(self, data: Path) -> None:
        self._path = data / FILE
        try:
            data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput("data", str(data), f"must be a directory that can be written ({error.strerror})") from error
        try:
            self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._database.executescript(f"pragma journal_mode = wal; pragma synchronous = full; {_SCHEMA}")
        except sqlite3.Error as error:
            raise BadInput("data", str(self._path), f"must hold {_WHAT} ({error})") from error
        self._take_over(data / _BEFORE)

    def _take_over(self, before: Path) -> None:
        """Read the file of an earlier service, once."""
        saved = read_json(before, _Before, "data", _WHAT)
        if saved is None:
            return
        rows = []
        for number, (version, document) in enumerate(saved.contracts):
            names = document.get("namespace"), document.get("subject")
            if not isinstance(names[0], str) or not isinstance(names[1], str):
                raise BadInput("data", str(before), f"must hold {_WHAT}: number {number} has no namespace and subject")
            rows.append(Row(names[0], names[1], version, msgspec.json.encode(document)))
        self.put(rows, saved.version)
        before.unlink()

    def load(self) -> tuple[int, list[Row]]:
        """The latest version, and all contracts. Raises BadInput."""
        try:
            ((version,),) = self._database.execute("select version from latest")
            rows = self._database.execute("select namespace, pattern, version, document from contracts")
            return version, [Row(*row) for row in rows]
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise BadInput("data", str(self._path), f"must hold {_WHAT} ({error})") from error

    def put(self, rows: Iterable[Row], version: int) -> None:
        """Keep contracts, and that ``version`` is the latest: all or none. Raises Unavailable."""
        with self._change(version):
            self._database.executemany("insert or replace into contracts values (?, ?, ?, ?)", rows)

    def remove(self, namespace: str, pattern: str, version: int) -> None:
        """Forget a contract. Raises Unavailable."""
        with self._change(version):
            self._database.execute("delete from contracts where namespace = ? and pattern = ?", (namespace, pattern))

    @contextmanager
    def _change(self, version: int) -> Iterator[None]:
        try:
            with self._database:
                self._database.execute("begin immediate")
                yield
                self._database.execute("update latest set version = ?", (version,))
        except sqlite3.Error as error:
            raise Unavailable(f"{self._path}: the contracts cannot be kept ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()
