"""What a limit service keeps on disk: contracts, who changed what, and what subjects used of policies with ``persist``.

It is a file of SQLite, so that a change costs by its size, and is whole or not there. Methods wait for the disk. Any
thread may call them.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from srtm.errors import BadInput, Conflict, Unavailable
from srtm.net.json_file import read_json

FILE = "limits.sqlite3"
KEPT_CHANGES = 10_000  # of the audit log; some 10 MB
_BEFORE = "contracts.json"  # what services wrote that had no database
_WHAT = "the contracts of a limit service"
_PRAGMAS = "pragma locking_mode = exclusive; pragma journal_mode = wal; pragma synchronous = full;"
_SCHEMA = """
create table if not exists contracts (
    namespace text not null, pattern text not null, version integer not null, document blob not null,
    primary key (namespace, pattern)
) without rowid;
create table if not exists latest (version integer not null);
insert into latest select 0 where not exists (select 1 from latest);
create table if not exists used (
    namespace text not null, pattern text not null, subject blob not null, version integer not null,
    words blob not null, mono_ns integer not null, wall_ns integer not null,
    primary key (namespace, pattern, subject)
) without rowid;
create table if not exists secret (key blob not null);
create table if not exists audit (
    slot integer primary key, number integer not null, subject text not null, entry blob not null
);
"""


class Row(NamedTuple):
    """A contract: its key, the version that put it in force, and itself as JSON."""

    namespace: str
    pattern: str
    version: int
    document: bytes


class UsedRow(NamedTuple):
    """What a subject, by its hash, had used at an instant under a version of its contract; None: nothing any more."""

    namespace: str
    pattern: str
    subject: bytes
    version: int
    words: bytes | None
    mono_ns: int
    wall_ns: int


class ChangeRow(NamedTuple):
    """An entry of the audit log: its number, what it is about, and itself as JSON."""

    number: int
    subject: str
    entry: bytes


class _Before(msgspec.Struct):
    version: int
    contracts: list[tuple[int, dict[str, object]]]


class Database:
    """The file in the directory ``data``, for one process at a time: another would count the same quotas again.

    Raises BadInput if it cannot be one, Conflict if another process has it.
    """

    def __init__(self, data: Path) -> None:
        self._path = data / FILE
        self._changing = threading.Lock()
        try:
            data.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))  # it holds the key of the hash of subjects
        except OSError as error:
            raise BadInput("data", str(data), f"must be a directory that can be written ({error.strerror})") from error
        try:
            self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=0.5)
            self._database.executescript(f"{_PRAGMAS} {_SCHEMA}")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
                rule = "is in use by another limit service; stop that one or choose another directory"
                raise Conflict("data", str(data), rule) from None
            raise self._unreadable(error) from error
        self._take_over(data / _BEFORE)

    def _unreadable(self, error: Exception) -> BadInput:
        return BadInput("data", str(self._path), f"must hold {_WHAT} ({error})")

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
            raise self._unreadable(error) from error

    def put(self, rows: Iterable[Row], version: int) -> None:
        """Keep contracts, and that ``version`` is the latest: all or none. Raises Unavailable."""
        with self._change():
            self._database.executemany("insert or replace into contracts values (?, ?, ?, ?)", rows)
            self._database.execute("update latest set version = ?", (version,))

    def remove(self, namespace: str, pattern: str, version: int) -> None:
        """Forget a contract, and what its subjects have used. Raises Unavailable."""
        with self._change():
            for table in ("contracts", "used"):
                where = "where namespace = ? and pattern = ?"
                self._database.execute(f"delete from {table} {where}", (namespace, pattern))
            self._database.execute("update latest set version = ?", (version,))

    def subjects_key(self) -> bytes:
        """The key of the hash of subjects, 16 secret bytes: always the same one. Raises BadInput, Unavailable."""
        with self._change():
            if self._database.execute("select count(*) from secret").fetchone() == (0,):
                self._database.execute("insert into secret values (?)", (secrets.token_bytes(16),))
            (key,) = self._database.execute("select key from secret limit 1").fetchone()
        if not isinstance(key, bytes) or len(key) != 16:
            raise BadInput("data", str(self._path), "must hold a key of 16 bytes")
        return key

    def used(self) -> Iterator[UsedRow]:
        """What subjects had used. Raises BadInput."""
        try:
            for row in self._database.execute(f"select {', '.join(UsedRow._fields)} from used"):
                yield UsedRow(*row)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def put_used(self, rows: Iterable[UsedRow]) -> None:
        """Keep what subjects have used. Raises Unavailable."""
        with self._change():
            for row in rows:
                if row.words is None:
                    where = "where namespace = ? and pattern = ? and subject = ?"
                    self._database.execute(f"delete from used {where}", row[:3])
                else:
                    self._database.execute("insert or replace into used values (?, ?, ?, ?, ?, ?, ?)", row)

    def latest_change(self) -> int:
        """The number of the latest entry of the audit log; 0: it has none. Raises BadInput."""
        try:
            ((number,),) = self._database.execute("select coalesce(max(number), 0) from audit")
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        return int(number)

    def changes(self, most: int, subject: str | None) -> list[ChangeRow]:
        """At most ``most`` entries of the audit log, newest first; of one ``subject``, if named. Raises Unavailable."""
        where = "" if subject is None else "where subject = ?"
        query = f"select number, subject, entry from audit {where} order by number desc limit ?"
        try:
            with self._changing:
                found = self._database.execute(query, (*([] if subject is None else [subject]), most)).fetchall()
        except sqlite3.Error as error:
            raise Unavailable(f"{self._path}: changes cannot be read ({error})") from error
        return [ChangeRow(*row) for row in found]

    def put_changes(self, rows: Iterable[ChangeRow]) -> None:
        """Keep entries of the audit log in the places of the oldest. Raises Unavailable."""
        placed = [(row.number % KEPT_CHANGES, *row) for row in rows]
        with self._change():
            self._database.executemany("insert or replace into audit values (?, ?, ?, ?)", placed)

    @contextmanager
    def _change(self) -> Iterator[None]:
        try:
            with self._changing, self._database:
                self._database.execute("begin immediate")
                yield
        except sqlite3.Error as error:
            raise Unavailable(f"{self._path}: changes cannot be kept ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()
