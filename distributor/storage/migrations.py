"""How a store made by an earlier version becomes one of this version: one step a schema, in the transaction that opens
it.

``metadata.create_all`` has made the tables that are new before; a step changes those that were there, or moves what is
in them. Only statements that SQLite and PostgreSQL both have.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sqlalchemy import Connection, text

from srtm.errors import Unavailable


def _places_apart(connection: Connection) -> None:
    """The last column of a chunk of publishers says where they are: it becomes a chunk of its own."""
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
}
SCHEMA_VERSION = max(STEPS)


def migrate(connection: Connection, found: int) -> None:
    """From schema ``found`` on. Raises Unavailable for one that is newer than this version."""
    if not 1 <= found <= SCHEMA_VERSION:
        raise Unavailable(f"the store has schema {found}, this version of srtm reads {SCHEMA_VERSION}")
    for schema in range(found + 1, SCHEMA_VERSION + 1):
        for step in STEPS[schema]:
            if isinstance(step, str):
                connection.execute(text(step))
            else:
                step(connection)
