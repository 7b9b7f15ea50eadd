"""The store: SQL tables (SQLAlchemy Core) and one way to change them.

A change is a list of ``Replace``: these rows take the place of all that match. It is applied in one transaction in a
worker thread, one at a time. ``cluster_rows`` knows what the rows mean. The schema uses only types and statements that
SQLite and PostgreSQL both have.

The store itself decides who may write. The leader has put the number of its term into ``leadership``. Every transaction
that changes something first locks that row, and checks that the term is its own. So a deposed distributor that does not
know it changes nothing. (With SQLite there is only one distributor, which leads from the start.)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

import trio
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    and_,
    func,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from distributor.storage.database import Database, check_server
from distributor.storage.migrations import SCHEMA_VERSION, migrate
from srtm.errors import NotLeader, Unavailable

_T = TypeVar("_T")

IDENTITY = "identity"  # setting: a random number that a store has for good, and its copies too
_LEADER = "leader"
_MAX_NAMED = 1000  # topics in one statement: both databases limit the number of parameters
PREPARING = 0x5352_544D_0001  # advisory lock of PostgreSQL, held while tables are created
_CUT_OFF = text("""
    SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE relation = 'leadership'::regclass AND mode = 'RowShareLock' AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
""")  # ends the sessions that hold the lock which _apply takes
metadata = MetaData()

settings = Table("settings", metadata, Column("name", String, primary_key=True), Column("value", BigInteger))

leadership = Table(  # one row
    "leadership",
    metadata,
    Column("name", String, primary_key=True),
    Column("term", BigInteger, nullable=False),  # counts up with every leader
    Column("url", Text, nullable=False),  # where that leader is asked; empty: nobody else can ask
)

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
    Column("claims", Text),  # JSON list; null: a broker of an earlier version
)

capacities = Table(
    "capacities",
    metadata,
    Column("broker", String, primary_key=True),
    Column("figures", Text, nullable=False),  # JSON list of capacities, one for each promise and traffic class
)

topics = Table(
    "topics",
    metadata,
    Column("name", String, primary_key=True),
    Column("removed", Boolean, nullable=False),  # kept for the shares that brokers may still hold, and for `granted`
    Column("purged", Boolean, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("assignment_version", BigInteger, nullable=False),
    Column("spec", Text, nullable=False),  # JSON, without the publishers
    Column("brokers", Text, nullable=False),  # JSON list: `places.at` counts by it
    Column("channels", Text, nullable=False),  # JSON list
    Column("reasons", Text, nullable=False),  # JSON list: why it is placed as it is
    Column("envelope_rate", BigInteger, nullable=False),  # micro-messages/s
    Column("envelope_burst", BigInteger, nullable=False),  # micro-messages
    Column("granted", Boolean, nullable=False),
    Column("pool", BigInteger, nullable=False),  # above 0: its brokers exchange what they hold
    Column("recalling", Boolean, nullable=False),
)

publishers = Table(  # chunks of columns: a million rows of one publisher each would take a minute
    "publishers",
    metadata,
    Column("topic", String, primary_key=True),
    Column("chunk", BigInteger, primary_key=True),
    Column("columns", LargeBinary, nullable=False),  # msgpack
)

places = Table(  # of publishers, in the same chunks, because they change more often
    "places",
    metadata,
    Column("topic", String, primary_key=True),
    Column("chunk", BigInteger, primary_key=True),
    Column("at", LargeBinary, nullable=False),  # msgpack: for each its broker, as an index into `topics.brokers`
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
    Column("lease_ms", BigInteger),  # of the share issued last; null: "keep"
    Column("longest_ms", BigInteger),  # the longest that may be in force
)

decisions = Table(
    "decisions",
    metadata,
    Column("topic", String, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("wall_ns", BigInteger, nullable=False),
    Column("lines", Text, nullable=False),  # JSON list
)


fittings = Table(
    "fittings",
    metadata,
    Column("topic", String, primary_key=True),
    Column("running", Boolean, nullable=False),  # begun, not ended: the next leader begins it again
    Column("method", String, nullable=False),
    Column("rounds_s", Float, nullable=False),
    Column("outcome", Text, nullable=False),  # JSON, as shown
)

audit = Table(  # a ring: `slot` is `number` modulo the entries that are kept
    "audit",
    metadata,
    Column("slot", BigInteger, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("entry", Text, nullable=False),  # JSON, as shown
)

contracts = Table(
    "contracts",
    metadata,
    Column("namespace", String, primary_key=True),
    Column("subject", String, primary_key=True),  # a pattern
    Column("version", BigInteger, nullable=False),  # of its last change
    Column("document", Text, nullable=False),  # JSON, as its operator wrote it
)

marks = Table(  # caps of full brokers, by promise and traffic class
    "marks",
    metadata,
    Column("broker", String, primary_key=True),
    Column("percentile", Float, primary_key=True),
    Column("latency_ms", Float, primary_key=True),
    Column("process", String, primary_key=True),
    Column("batch", BigInteger, primary_key=True),
    Column("group_size", BigInteger, primary_key=True),
    Column("kept", Float, nullable=False),  # msg/s
)


@dataclass(frozen=True)
class Replace:
    """Delete the rows of ``table`` that match ``where``, then insert ``rows``."""

    table: Table
    where: Mapping[str, object]
    rows: Sequence[Mapping[str, object]] = field(default=())


class Edition(NamedTuple):
    """Identifies a state of the store: two reads with the same edition read the same."""

    term: int
    version: int


class Store:
    """Open with ``Store.open``; close with ``aclose``.

    Every method raises Unavailable, and then nothing was changed, with one exception: see ``doubtful``.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        # Set when everything must be read again: the connection was lost during a change, which may have been made or
        # not; or another distributor has begun a term.
        self.doubtful = trio.Event()
        self._engine = database.engine("srtm store")
        self._one_at_a_time = trio.CapacityLimiter(1)
        self._term: int | None = None  # None: this distributor does not lead

    @classmethod
    async def open(cls, url: str) -> Self:
        """Open a store, and create its tables. With SQLite a term begins at once.

        ``url``: sqlite:///PATH or postgresql://... Raises BadInput for another URL; Unavailable if the store cannot be
        opened or (SQLite) is in use.
        """
        store = cls(Database.parse(url))
        try:
            await store._run(_prepare)
            if not store.database.is_shared:
                await store.lead("")
        except BaseException:
            store._engine.dispose()
            raise
        return store

    async def aclose(self) -> None:
        with trio.CancelScope(shield=True):  # a few milliseconds; the lock on the file must go
            await trio.to_thread.run_sync(self._engine.dispose, limiter=self._one_at_a_time)

    async def lead(self, url: str) -> None:
        """Begin a term: no other distributor can change the store from now on. Only for the winner of the election.

        ``url``: of this distributor.
        """
        self._term = await self._run(partial(_begin_term, url=url))
        self.doubtful = trio.Event()

    def follow(self) -> None:
        """End the term: this distributor changes nothing more."""
        self._term = None

    async def rows(self, table: Table) -> list[dict[str, Any]]:
        """All rows, in the order of the primary key."""
        return await self._run(partial(rows, table=table))

    async def read(self, work: Callable[[Connection], _T]) -> _T:
        """Run ``work`` in a worker thread, on one state of the store."""
        return await self._run(work, "REPEATABLE READ")

    async def apply(self, changes: Iterable[Replace]) -> None:
        """Apply all of ``changes`` in one transaction. They are made in the worker thread.

        When cancelled the transaction still ends, one way or the other. Raises NotLeader if another distributor leads.
        """
        if self.doubtful.is_set():
            raise Unavailable(f"store {self.database.shown}: the connection was lost; what is there is read again")
        try:
            await self._in_thread(partial(self._made_and_applied, changes, self._term))
        except NotLeader:
            if self._term is not None:
                self.doubtful.set()
            raise

    async def edition(self) -> Edition:
        return await self._run(edition)

    async def leader_url(self) -> str | None:
        """URL of the latest leader; None: there was none."""
        return await self._run(_leader_url)

    async def _run(self, work: Callable[[Connection], _T], isolation: str | None = None) -> _T:
        return await self._in_thread(partial(self._in_transaction, work, isolation))

    async def _in_thread(self, run: Callable[[], _T]) -> _T:
        try:
            return await trio.to_thread.run_sync(run, limiter=self._one_at_a_time)
        except SQLAlchemyError as error:
            if isinstance(error, DBAPIError) and error.connection_invalidated and self._term is not None:
                self.doubtful.set()
            raise self.database.trouble(error) from error

    def _made_and_applied(self, changes: Iterable[Replace], term: int | None) -> None:
        made = list(changes)  # before the transaction: the server ends a session that idles in one
        self._in_transaction(partial(_apply, changes=made, term=term))

    def _in_transaction(self, work: Callable[[Connection], _T], isolation: str | None = None) -> _T:
        with self._engine.connect() as connection:
            if isolation is not None and self.database.is_shared:
                connection = connection.execution_options(isolation_level=isolation)
            with connection.begin():
                return work(connection)


def _prepare(connection: Connection) -> None:
    check_server(connection)
    if connection.dialect.name == "postgresql":  # two that start at once must not both create the tables
        connection.execute(select(func.pg_advisory_xact_lock(PREPARING)))
    metadata.create_all(connection)
    found = connection.execute(select(settings.c.value).where(settings.c.name == "schema")).scalar()
    if found is None:
        connection.execute(settings.insert().values(name="schema", value=SCHEMA_VERSION))
    elif found != SCHEMA_VERSION:
        migrate(connection, found)
        connection.execute(settings.update().where(settings.c.name == "schema").values(value=SCHEMA_VERSION))
    if connection.execute(select(settings).where(settings.c.name == IDENTITY)).first() is None:
        connection.execute(settings.insert().values(name=IDENTITY, value=1 + secrets.randbits(62)))
    if connection.execute(select(leadership)).first() is None:
        connection.execute(leadership.insert().values(name=_LEADER, term=0, url=""))


def _begin_term(connection: Connection, *, url: str) -> int:
    if connection.dialect.name == "postgresql":
        # A former leader may hang in the middle of a transaction, which would keep the row below locked.
        connection.execute(_CUT_OFF)
    changed = leadership.update().where(leadership.c.name == _LEADER).values(term=leadership.c.term + 1, url=url)
    connection.execute(changed)
    return int(connection.execute(select(leadership.c.term)).scalar_one())


def _apply(connection: Connection, *, changes: Sequence[Replace], term: int | None) -> None:
    found = connection.execute(select(leadership.c.term, leadership.c.url).with_for_update(read=True)).one()
    if found.term != term:
        raise NotLeader(found.url or None)
    for change in changes:
        matching = and_(*[change.table.c[name] == value for name, value in change.where.items()])
        connection.execute(change.table.delete().where(matching))
        if change.rows:
            connection.execute(change.table.insert(), list(change.rows))


def rows(connection: Connection, table: Table, *, topics: Collection[str] | None = None) -> list[dict[str, Any]]:
    """All rows, or those of ``topics``, in the order of the primary key."""
    query = select(table).order_by(*table.primary_key)
    if topics is not None and len(topics) <= _MAX_NAMED:
        query = query.where(table.c.topic.in_(topics))
    return [dict(row) for row in connection.execute(query).mappings() if topics is None or row["topic"] in topics]


def decisions_after(connection: Connection, last: Mapping[str, int]) -> list[dict[str, Any]]:
    """Decisions after the ``last`` known number of each topic, in the order of the primary key.

    A log that does not reach that number is another one, and is read whole.
    """
    if not last:
        return rows(connection, decisions)
    newest = select(decisions.c.topic, func.max(decisions.c.number)).group_by(decisions.c.topic)
    found: list[dict[str, Any]] = []
    for topic, number in connection.execute(newest).all():
        if (known := last.get(topic, 0)) != number:
            beyond = and_(decisions.c.topic == topic, decisions.c.number > (known if known < number else 0))
            query = select(decisions).where(beyond).order_by(decisions.c.number)
            found += [dict(row) for row in connection.execute(query).mappings()]
    return found


def edition(connection: Connection) -> Edition:
    query = select(leadership.c.term, settings.c.value).select_from(
        leadership.outerjoin(settings, settings.c.name == "version")
    )
    term, version = connection.execute(query).one()
    return Edition(term, version or 0)


def _leader_url(connection: Connection) -> str | None:
    return connection.execute(select(leadership.c.url)).scalar_one() or None
