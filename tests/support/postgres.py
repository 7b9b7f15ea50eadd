"""A PostgreSQL for tests: Debian's server in a temporary directory, on a Unix socket, under a user that is not root."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

_DEBIAN = Path("/usr/lib/postgresql")
_PATIENCE_S = 60
MISSING = "PostgreSQL is not installed: apt-get install postgresql"
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # the tests kill distributors, not the server
    "max_connections": "40",
    "shared_buffers": "16MB",
    "autovacuum": "off",
}


def programs() -> Path | None:
    """The folder of the newest server's programs; None: not installed."""
    found = [
        folder for folder in _DEBIAN.glob("*/bin") if (folder / "initdb").exists() and (folder / "postgres").exists()
    ]
    return max(found, key=lambda folder: float(folder.parent.name), default=None)


class Server:
    """A running server. ``directory``: of its Unix socket; ``user``: the owner of everything in it."""

    def __init__(self, directory: Path, user: str) -> None:
        self.directory = directory
        self.user = user
        self._databases = 0

    def url(self, database: str) -> str:
        return f"postgresql://{self.user}@/{database}?host={self.directory}"

    def new_database(self) -> str:
        """The URL of an empty one."""
        self._databases += 1
        name = f"srtm{self._databases}"
        self.ask("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def ask(self, database: str, statement: str) -> list[tuple[object, ...]]:
        """``statement`` in ``database`` (a name or a URL of ours), outside a transaction."""
        url = database if "://" in database else self.url(database)
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running() -> Iterator[Server]:
    """Skips the test where PostgreSQL is missing."""
    folder = programs()
    if folder is None:
        pytest.skip(MISSING)
    user = _ordinary_user()
    directory = Path(tempfile.mkdtemp(prefix="srtm-pg-"))
    shutil.chown(directory, user.pw_uid, user.pw_gid)
    try:
        _run(
            user,
            folder / "initdb",
            "--pgdata",
            directory / "data",
            "--auth=trust",
            "--no-sync",
            f"--username={user.pw_name}",
        )
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [folder / "postgres", "-D", directory / "data", "-k", directory, *settings]
        with (directory / "log").open("wb") as log, subprocess.Popen(command, stderr=log, **_as(user)) as process:
            try:
                _wait_until_ready(directory / "log", process)
                yield Server(directory, user.pw_name)
            finally:
                process.send_signal(signal.SIGINT)  # its "fast" way to stop
                process.wait(_PATIENCE_S)
    finally:
        shutil.rmtree(directory)


def _ordinary_user() -> pwd.struct_passwd:
    """This one, or "nobody" where this is root: the server refuses to run as root."""
    return pwd.getpwuid(os.getuid()) if os.getuid() else pwd.getpwnam("nobody")


def _as(user: pwd.struct_passwd) -> dict[str, object]:
    if os.getuid():
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}


def _run(user: pwd.struct_passwd, *command: object) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S, **_as(user))
    assert done.returncode == 0, done.stderr


def _wait_until_ready(log: Path, process: subprocess.Popen[bytes]) -> None:
    """The server writes it, and then nothing for long: its log is followed by ``tail``, which ends with the server."""
    with subprocess.Popen(
        ["tail", "--lines=+1", "--follow", f"--pid={process.pid}", str(log)], stdout=subprocess.PIPE
    ) as tail:
        assert tail.stdout is not None
        said = []
        for line in tail.stdout:
            said.append(line.decode())
            if re.search("ready to accept connections", said[-1]):
                tail.terminate()
                return
    raise AssertionError("".join(said))
