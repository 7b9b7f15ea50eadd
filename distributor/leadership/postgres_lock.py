"""The lock of the election as a session of PostgreSQL: an ``election.Session``."""

from __future__ import annotations

import select
import socket

from sqlalchemy import TextClause, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from distributor.leadership.election import SESSION_TIMEOUT_S
from distributor.storage.database import Database
from srtm.errors import Unavailable

_LOCK = text(f"SELECT pg_try_advisory_lock({0x5352_544D_0002})")
_BEAT = text("SELECT 1")
_LIMIT = text(f"SET idle_session_timeout = {SESSION_TIMEOUT_S * 1000:.0f}")


class PostgresLock:
    """One session. Making it raises Unavailable if there is no connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        engine = database.engine("srtm election", poolclass=NullPool)
        try:
            self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            self._connection.execute(_LIMIT)
        except SQLAlchemyError as error:
            raise database.trouble(error) from error
        driver = self._connection.connection.driver_connection
        if driver is None:
            raise Unavailable("the store's connection has ended")
        self._fd = int(driver.fileno())
        self._waker, self._woken = socket.socketpair()

    def try_lock(self) -> bool:
        return bool(self._ask(_LOCK))

    def beat(self) -> None:
        self._ask(_BEAT)

    def wait(self, max_s: float) -> None:
        waiting = select.poll()  # not select(): a process with many clients has descriptors above 1,023
        waiting.register(self._fd, select.POLLIN)
        waiting.register(self._woken, select.POLLIN)
        ready = {fd for fd, _ in waiting.poll(max_s * 1000)}
        if self._fd in ready:  # unasked, a server sends its settings, or the end of the session
            self.beat()

    def wake(self) -> None:
        try:
            self._waker.send(b"\0")
        except OSError:
            return  # closed: no thread waits

    def close(self) -> None:
        self._waker.close()
        self._woken.close()
        try:
            self._connection.close()
        except SQLAlchemyError:
            self._connection.invalidate()

    def _ask(self, question: TextClause) -> object:
        try:
            return self._connection.execute(question).scalar()
        except SQLAlchemyError as error:
            raise self._database.trouble(error) from error
