"""How a store made by an earlier version becomes one of this version: one step a schema, in the transaction that opens
it.

``metadata.create_all`` has made the tables that are new before; a step changes those that were there. Only statements
that SQLite and PostgreSQL both have.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from srtm.errors import Unavailable

STEPS: dict[int, tuple[str, ...]] = {  # {schema: statements that make it of the one before}
    2: (  # timed leases; null is "keep"
        "ALTER TABLE shares ADD COLUMN lease_ms BIGINT",
        "ALTER TABLE shares ADD COLUMN longest_ms BIGINT",
    ),
    3: (),  # fittings, marks: tables of their own
    4: (  # GDRL
        "ALTER TABLE topics ADD COLUMN pool BIGINT DEFAULT 0 NOT NULL",
        "ALTER TABLE topics ADD COLUMN recalling BOOLEAN DEFAULT FALSE NOT NULL",
    ),
}
SCHEMA_VERSION = max(STEPS)


def migrate(connection: Connection, found: int) -> None:
    """From schema ``found`` on. Raises Unavailable for one that is newer than this version."""
    if not 1 <= found <= SCHEMA_VERSION:
        raise Unavailable(f"the store has schema {found}, this version of srtm reads {SCHEMA_VERSION}")
    for schema in range(found + 1, SCHEMA_VERSION + 1):
        for statement in STEPS[schema]:
            connection.execute(text(statement))
