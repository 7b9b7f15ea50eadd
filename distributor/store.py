"""What the distributor must not forget: tables (SQLAlchemy Core) and one way to change them. Everything survives a
restart.

A change is a list of ``Replace``: "these rows instead of all that match", applied in one transaction in a worker
thread, one at a time. The store knows nothing of what the rows mean; ``records`` does. The schema uses only types and
statements that PostgreSQL has too.

SQLite is opened for one process only (exclusive locking), because two distributors on one store would both hand out the
same tokens, and writes through to the disk at each commit: an answer that told a broker of a share must not be
forgotten by a power cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import trio
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    and_,
    create_engine,
    event,
    select,
)
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from srtm.errors import BadInput, Unavailable

SCHEMA_VERSION = 1
metadata = MetaData()

settings = Table("settings", metadata, Column("name", String, primary_key=True), Column("value", BigInteger))

brokers = Table(
    "brokers",
    metadata,
    Column("name", String, primary_key=True),
    Column("incarnation", String, nullable=False),
    Column("srtm_version", String, nullable=False),
    Column("tcp_address", String, nullable=False),
    Column("http_address", String, nullable=False),
    Column("mcap", Float, nullable=False),  # msg/s; 0: not stated
    Column("accepting", Boolean, nullable=False),
    Column("dead", Boolean, nullable=False),  # proof of death of this incarnation
)

topics = Table(
    "topics",
    metadata,
    Column("name", String, primary_key=True),
    Column("removed", Boolean, nullable=False),  # kept for what brokers may still hold and for `granted`
    Column("purged", Boolean, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("assignment_version", BigInteger, nullable=False),
    Column("spec", Text, nullable=False),  # JSON, without the publishers
    Column("brokers", Text, nullable=False),  # JSON list: what the placement of publishers counts by
    Column("channels", Text, nullable=False),  # JSON list
    Column("reasons", Text, nullable=False),  # JSON list: why it is placed as it is
    Column("envelope_rate", BigInteger, nullable=False),  # micro-messages/s
    Column("envelope_burst", BigInteger, nullable=False),  # micro-messages
    Column("granted", Boolean, nullable=False),
)

publishers = Table(  # in chunks of columns: a million rows of one publisher each would take a minute
    "publishers",
    metadata,
    Column("topic", String, primary_key=True),
    Column("chunk", BigInteger, primary_key=True),
    Column("columns", LargeBinary, nullable=False),  # msgpack
)

shares = Table(
    "shares",
    metadata,
    Column("topic", String, primary_key=True),
    Column("broker", String, primary_key=True),
    Column("target_rate", BigInteger, nullable=False),  # all in micro-units
    Column("target_burst", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),  # 0: targeted, nothing issued yet
    Column("rate", BigInteger, nullable=False),
    Column("burst", BigInteger, nullable=False),
    Column("bound_rate", BigInteger, nullable=False),
    Column("bound_burst", BigInteger, nullable=False),
    Column("applied", BigInteger, nullable=False),
    Column("starts_full", Boolean, nullable=False),
)

decisions = Table(
    "decisions",
    metadata,
    Column("topic", String, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("wall_ns", BigInteger, nullable=False),
    Column("lines", Text, nullable=False),  # JSON list
)


@dataclass(frozen=True)
class Replace:
    """Delete the rows of ``table`` that match ``where``, then insert ``rows``."""

    table: Table
    where: Mapping[str, object]
    rows: Sequence[Mapping[str, object]] = field(default=())


class Store:
    """Open with ``Store.open``; close with ``aclose``. Every method raises Unavailable, and then nothing was
    changed."""

    def __init__(self, engine: Engine, url: str) -> None:
        self._engine = engine
        self._url = url
        self._one_at_a_time = trio.CapacityLimiter(1)

    @classmethod
    async def open(cls, url: str) -> Self:
        """``url``: sqlite:///PATH. Creates the tables. Raises BadInput for another URL, Unavailable if it cannot be
        opened or is in use."""
        store = cls(_engine(url), url)
        try:
            await store._run(_prepare)
        except BaseException:
            store._engine.dispose()
            raise
        return store

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):  # a few milliseconds; the lock on the file must go
            await trio.to_thread.run_sync(self._engine.dispose, limiter=self._one_at_a_time)

    async def rows(self, table: Table) -> list[dict[str, Any]]:
        """All rows, in the order of the primary key."""
        return list(await self._run(partial(_rows, table=table)))

    async def apply(self, changes: Sequence[Replace]) -> None:
        """All of ``changes`` in one transaction. When cancelled it still ends, one way or the other."""
        await self._run(partial(_apply, changes=changes))

    async def _run(self, work: Any) -> Any:
        try:
            return await trio.to_thread.run_sync(self._in_transaction, work, limiter=self._one_at_a_time)
        except SQLAlchemyError as error:
            reason = getattr(error, "orig", None) or error
            raise Unavailable(f"store {self._url}: {reason}") from error

    def _in_transaction(self, work: Any) -> Any:
        with self._engine.begin() as connection:
            return work(connection)


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite:///"):
        raise BadInput("store", url, "must be sqlite:///PATH")
    try:
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False, "timeout": 0.5})
    except ArgumentError as error:
        raise BadInput("store", url, "must be sqlite:///PATH") from error
    event.listen(engine, "connect", _configure)
    return engine


def _configure(connection: Any, _record: object) -> None:
    for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _prepare(connection: Connection) -> None:
    metadata.create_all(connection)
    found = connection.execute(select(settings.c.value).where(settings.c.name == "schema")).scalar()
    if found is None:
        connection.execute(settings.insert().values(name="schema", value=SCHEMA_VERSION))
    elif found != SCHEMA_VERSION:
        raise Unavailable(f"the store has schema {found}, this version of srtm reads {SCHEMA_VERSION}")


def _rows(connection: Connection, *, table: Table) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()]


def _apply(connection: Connection, *, changes: Sequence[Replace]) -> None:
    for change in changes:
        matching = and_(*[change.table.c[name] == value for name, value in change.where.items()])
        connection.execute(change.table.delete().where(matching))
        if change.rows:
            connection.execute(change.table.insert(), list(change.rows))
