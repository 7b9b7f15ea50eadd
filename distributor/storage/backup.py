"""Copies a whole store to a file and back, of either database: JSON lines, a header, the rows of each table, an end.

A copy keeps the store's identity, so brokers take it for the same store, at an earlier time if they know more.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from sqlalchemy import Connection, LargeBinary, Table, func, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from distributor.storage.database import Database, check_server
from distributor.storage.migrations import SCHEMA_VERSION
from distributor.storage.store import PREPARING, metadata, settings
from srtm.errors import BadInput, Conflict, Unavailable
from srtm.version import __version__

_T = TypeVar("_T", bound=msgspec.Struct)
FORMAT = 1
_FEW_ROWS = 500  # inserted at once


class Header(msgspec.Struct, kw_only=True):
    """The first line."""

    srtm_store: int  # FORMAT
    schema: int
    version: str  # of srtm, for people


class Row(msgspec.Struct, kw_only=True):
    """A line between. ``row``: {column: value}, bytes in base64."""

    table: str
    row: dict[str, Any]


class End(msgspec.Struct, kw_only=True):
    """The last line: without it the copy is cut off."""

    rows: int


def export_store(url: str, out: BinaryIO) -> dict[str, int]:
    """Write the store at ``url`` to ``out`` and return {table: number of rows}.

    A SQLite store must not be in use. PostgreSQL is read at one instant, while a distributor may lead. Raises BadInput
    (not such a URL), Unavailable (it cannot be read, or is of another version).
    """
    database = Database.parse(url)
    if not database.is_shared and not _is_file(database):
        raise BadInput("store", database.shown, "must be a store that exists")
    return _in_transaction(database, lambda connection: _export(connection, out), "REPEATABLE READ")


def import_store(url: str, lines: Iterable[bytes]) -> dict[str, int]:
    """Fill the empty store at ``url`` from what ``export_store`` wrote; return {table: number of rows}.

    All or nothing. Raises BadInput (the file is none, or cut off; the line is named), Conflict (there is a store),
    Unavailable.
    """
    return _in_transaction(Database.parse(url), lambda connection: _import(connection, lines))


def _export(connection: Connection, out: BinaryIO) -> dict[str, int]:
    if not inspect(connection).has_table(settings.name):
        raise Unavailable("the database has no store: no distributor has used it")
    found = connection.execute(select(settings.c.value).where(settings.c.name == "schema")).scalar()
    if found != SCHEMA_VERSION:
        rule = "export it with the version that used it last, or start a distributor of this version on it once"
        raise Unavailable(f"the store has schema {found}, this version of srtm writes {SCHEMA_VERSION}: {rule}")
    _write(out, Header(srtm_store=FORMAT, schema=SCHEMA_VERSION, version=__version__))
    counts = {}
    for table in metadata.sorted_tables:
        counts[str(table.name)] = 0
        for row in connection.execute(select(table).order_by(*table.primary_key.columns)).mappings():
            _write(out, Row(table=str(table.name), row=_plain(table, row)))
            counts[str(table.name)] += 1
    _write(out, End(rows=sum(counts.values())))
    return counts


def _import(connection: Connection, lines: Iterable[bytes]) -> dict[str, int]:
    check_server(connection)
    if connection.dialect.name == "postgresql":  # a distributor that starts now must not create the tables too
        connection.execute(select(func.pg_advisory_xact_lock(PREPARING)))
    known = set(inspect(connection).get_table_names())
    if known & set(metadata.tables):
        raise Conflict("store", None, "must be empty: it has the tables of a store; name another database")
    metadata.create_all(connection)
    counts = dict.fromkeys(map(str, metadata.tables), 0)
    waiting: dict[str, list[dict[str, Any]]] = {}
    for table, row in _rows(lines):
        counts[str(table.name)] += 1
        many = waiting.setdefault(str(table.name), [])
        many.append(row)
        if len(many) == _FEW_ROWS:
            connection.execute(table.insert(), waiting.pop(str(table.name)))
    for name, many in waiting.items():
        connection.execute(metadata.tables[name].insert(), many)
    return counts


def _rows(lines: Iterable[bytes]) -> Iterator[tuple[Table, dict[str, Any]]]:
    """Parse the lines. Raises BadInput."""
    numbered = enumerate(lines, start=1)
    header = _decoded(next(numbered, (1, b"")), Header)
    if header.srtm_store != FORMAT or header.schema != SCHEMA_VERSION:
        rule = f"must be of schema {SCHEMA_VERSION}: import it with srtm {header.version}, then upgrade"
        raise BadInput("file line 1", header.schema, rule)
    count, ended = 0, False
    for number, line in numbered:
        place = f"file line {number}"
        if ended:
            raise BadInput(place, None, "must not follow the end")
        if b'"table"' not in line[:10]:
            ended = _decoded((number, line), End).rows == count
            if not ended:
                raise BadInput(place, None, f"the end must count {count} rows: lines are missing")
            continue
        row = _decoded((number, line), Row)
        count += 1
        yield _known(place, row)
    if not ended:
        raise BadInput("file", None, "must have an end: it is cut off")


def _known(place: str, row: Row) -> tuple[Table, dict[str, Any]]:
    table = metadata.tables.get(row.table)
    if table is None or set(row.row) != set(table.columns.keys()):
        raise BadInput(place, row.table, "must be a table of a store, with its columns")
    try:
        return table, {
            str(column.name): base64.b64decode(row.row[column.name], validate=True)
            if isinstance(column.type, LargeBinary)
            else row.row[column.name]
            for column in table.columns
        }
    except (binascii.Error, TypeError, ValueError):
        raise BadInput(place, row.table, "must have its bytes in base64") from None


def _plain(table: Table, row: Any) -> dict[str, Any]:
    return {
        str(column.name): base64.b64encode(row[column.name]).decode()
        if isinstance(column.type, LargeBinary)
        else row[column.name]
        for column in table.columns
    }


def _decoded(numbered: tuple[int, bytes], kind: type[_T]) -> _T:
    number, line = numbered
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"file line {number}", None, f"must be a line of `srtm store export` ({error})") from None


def _write(out: BinaryIO, line: msgspec.Struct) -> None:
    out.write(msgspec.json.encode(line) + b"\n")


def _is_file(database: Database) -> bool:
    return database.url.database is not None and Path(database.url.database).is_file()


def _in_transaction(
    database: Database, work: Callable[[Connection], dict[str, int]], isolation: str | None = None
) -> dict[str, int]:
    engine = database.engine("srtm backup")
    try:
        with engine.connect() as connection:
            if isolation is not None and database.is_shared:
                connection = connection.execution_options(isolation_level=isolation)
            with connection.begin():
                return work(connection)
    except SQLAlchemyError as error:
        raise database.trouble(error) from error
    finally:
        engine.dispose()
