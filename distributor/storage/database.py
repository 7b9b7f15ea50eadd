"""The place of a store: its URL, its SQLAlchemy engine, and error texts that name no password.

SQLite is opened for one process only (exclusive locking): two distributors on one store would both hand out the same
tokens. It writes through to the disk at each commit: a power cut must not forget a share that a broker was told of.
PostgreSQL is for several distributors; the election decides which of them writes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from srtm.errors import BadInput, Unavailable

_RULE = (
    "must be sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE (a Unix socket: postgresql:///DATABASE?host=DIR)"
)
_DRIVER = "postgresql+psycopg"
_MIN_POSTGRES = 14  # the first with idle_session_timeout, which ends the session of a stopped leader
# A silent server or network must not hold a worker thread for long.
_TIMEOUTS = {
    "connect_timeout": 2,  # s
    "keepalives_idle": 1,  # s
    "keepalives_interval": 1,  # s
    "keepalives_count": 2,
    "tcp_user_timeout": 3000,  # ms
}
# A leader that is stopped in a transaction must lose its locks.
_SESSION = "-c idle_in_transaction_session_timeout=2000 -c lock_timeout=5000"
# {SQLite's name of an error: what its text leaves open}
_REMEDIES = {
    "SQLITE_BUSY": ": a distributor uses it, which must be stopped first",
    "SQLITE_CANTOPEN": ": its directory must exist, and be one in which files can be made",
}


@dataclass(frozen=True)
class Database:
    """The place of a store. ``shown``: its URL for people, without a password."""

    url: URL
    shown: str

    @classmethod
    def parse(cls, text: str) -> Database:
        """Raises BadInput."""
        shown = without_password(text)
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):
            raise BadInput("store", shown, _RULE) from None
        if url.drivername in ("postgresql", _DRIVER) and url.database:
            database = cls(url.set(drivername=_DRIVER), shown)
            database._check_options()
            return database
        if not text.startswith("sqlite:///"):
            raise BadInput("store", shown, _RULE)
        return cls(url, shown)

    @property
    def is_shared(self) -> bool:
        """Whether several distributors may have it open, of which one leads."""
        return self.url.drivername == _DRIVER

    def engine(self, role: str, **options: Any) -> Engine:
        """An engine with one connection at a time, unless ``options`` of SQLAlchemy say otherwise.

        ``role``: the name of its sessions in the server's list.
        """
        if not self.is_shared:
            _make_private(self.url.database)
            engine = create_engine(
                self.url, poolclass=StaticPool, connect_args={"check_same_thread": False, "timeout": 0.5}
            )
            event.listen(engine, "connect", _configure_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
            return engine
        arguments = {**_TIMEOUTS, "application_name": role, "options": _SESSION}
        pool = options or {"pool_size": 1, "max_overflow": 0, "pool_pre_ping": True}
        return create_engine(self.url, connect_args=arguments, **pool)

    def trouble(self, error: SQLAlchemyError) -> Unavailable:
        """``error`` as an Unavailable for people."""
        cause = getattr(error, "orig", None) or error
        reason = " ".join(str(cause).split()) + _REMEDIES.get(getattr(cause, "sqlite_errorname", ""), "")
        return Unavailable(f"store {self.shown}: {without_password(reason)}")

    def _check_options(self) -> None:
        from psycopg import ProgrammingError, conninfo  # not needed for SQLite

        try:
            conninfo.make_conninfo("", **{str(name): str(value) for name, value in self.url.query.items()})
        except ProgrammingError as error:
            raise BadInput("store", self.shown, f"{_RULE}: {' '.join(str(error).split())}") from None


def without_password(text: str) -> str:
    """``text`` with the password of every URL in it replaced by stars."""
    hidden = re.sub(r"(//[^:/@\s]*):\S*@", r"\1:***@", text)
    return re.sub(r"(password=)[^&\s]*", r"\1***", hidden)


def check_server(connection: Connection) -> None:
    """Raises Unavailable for a PostgreSQL that is too old."""
    found = int((connection.dialect.server_version_info or (_MIN_POSTGRES,))[0])
    if connection.dialect.name == "postgresql" and found < _MIN_POSTGRES:
        raise Unavailable(f"the store is PostgreSQL {found}; {_MIN_POSTGRES} or newer is needed")


def _make_private(file: str | None) -> None:
    """Make SQLite's file, where there is none, for its owner alone. Its journals take the mode of the file."""
    if file and file != ":memory:":
        with suppress(OSError):  # SQLite says better what is wrong with a place
            Path(file).touch(mode=0o600)


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # left to itself the driver begins no transaction before it alters a table
    for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
