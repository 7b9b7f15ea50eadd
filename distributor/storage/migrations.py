"""Migrations: how a store of an earlier version becomes one of this version.

One step a schema, in the transaction that opens the store. ``metadata.create_all`` has created new tables before. A
step changes older tables, or moves their content, by statements that SQLite and PostgreSQL both have.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sqlalchemy import Connection, text

from srtm.errors import Unavailable


def _places_apart(connection: Connection) -> None:
    """Move the places of publishers, the last column of a chunk, to a table of their own."""
    key = "topic = :topic AND chunk = :chunk"
    for topic, chunk in connection.execute(text("SELECT topic, chunk FROM publishers")).all():
        where = {"topic": topic, "chunk": chunk}
        found = connection.execute(text(f"SELECT columns FROM publishers WHERE {key}"), where).scalar_one()
        *columns, at = msgspec.msgpack.decode(found)
        connection.execute(
            text(f"UPDATE publishers SET columns = :columns WHERE {key}"),
            {**where, "columns": msgspec.msgpack.encode(columns)},
        )
        connection.execute(
            text("INSERT INTO places (topic, chunk, at) VALUES (:topic, :chunk, :at)"),
            {**where, "at": msgspec.msgpack.encode(at)},
        )


STEPS: dict[int, tuple[str | Callable[[Connection], None], ...]] = {  # {schema: what makes it of the one before}
    2: (  # timed leases; null is "keep"
        "ALTER TABLE shares ADD COLUMN lease_ms BIGINT",
        "ALTER TABLE shares ADD COLUMN longest_ms BIGINT",
    ),
    3: (),  # fittings, marks: tables of their own
    4: (  # GDRL
        "ALTER TABLE topics ADD COLUMN pool BIGINT DEFAULT 0 NOT NULL",
        "ALTER TABLE topics ADD COLUMN recalling BOOLEAN DEFAULT FALSE NOT NULL",
    ),
    5: (_places_apart,),
    6: ("ALTER TABLE brokers ADD COLUMN claims TEXT",),
    7: (),  # contracts: a table of their own; chunks of publishers of schema 6 have no column of them
}
SCHEMA_VERSION = max(STEPS)


def migrate(connection: Connection, found: int) -> None:
    """Migrate from schema ``found``. Raises Unavailable if that is newer than this version."""
    if not 1 <= found <= SCHEMA_VERSION:
        raise Unavailable(f"the store has schema {found}, this version of srtm reads {SCHEMA_VERSION}")
    for schema in range(found + 1, SCHEMA_VERSION + 1):
        for step in STEPS[schema]:
            if isinstance(step, str):
                connection.execute(text(step))
            else:
                step(connection)
