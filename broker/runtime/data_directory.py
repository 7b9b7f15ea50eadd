"""A broker's data directory: one process at a time, a new incarnation at every start, files that are replaced as a
whole.

The lock is ``flock`` on the directory, as nsqd's: a broker and a nsqd exclude each other. The kernel releases it when
the process ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from srtm.errors import BadInput, Conflict

_INCARNATION_FILE = "srtm.incarnation"
_MOST_SKIPPED = 10**9  # a second
_INCARNATION = re.compile(rb"([0-9]{20})-([0-9a-f]{16})")


@contextmanager
def locked(path: Path) -> Iterator[str]:
    """Hold the directory; yields the incarnation. Raises BadInput (no such directory), Conflict (it is in use)."""
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise BadInput("data_path", str(path), f"must be a directory that can be read ({error.strerror})") from None
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("data_path", str(path), "is in use by another broker or nsqd") from None
        yield _next_incarnation(path)
    finally:
        os.close(directory)


def _next_incarnation(path: Path) -> str:
    """``START-DIRECTORY``: 20 digits that sort after all earlier ones of this directory even if the wall clock was set
    back, and a random name of the directory.

    Where the clock was set back, chance says how far behind the last one it is: the next start on a copy of the
    directory has another number. What proves that an earlier process has ended is in ``claims``.
    """
    file = path / _INCARNATION_FILE
    try:
        last = _INCARNATION.fullmatch(file.read_bytes() if file.exists() else b"")
        start = max(time.time_ns(), int(last[1]) + 1 + secrets.randbelow(_MOST_SKIPPED) if last else 0)
        incarnation = f"{start:020d}-{last[2].decode() if last else secrets.token_hex(8)}"
        _overwrite(file, incarnation.encode())
    except OSError as error:
        raise BadInput("data_path", str(path), f"must be readable and writable ({error.strerror})") from None
    return incarnation


def _overwrite(path: Path, content: bytes) -> None:
    """Write ``content``, always of one length, over what the file holds: that takes no room, so a broker starts on a
    full disk, and can be drained. After a power cut the file holds the old content, the new, or digits of both; the
    wall clock then says which start is the later one."""
    if not path.exists() or path.stat().st_size != len(content):
        replace_file(path, content)
        return
    with path.open("r+b") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file with ``content``, for its owner alone to read. After a power cut it holds the old or the new
    content, never a mixture; once this returns, the new one."""
    temporary = path.with_name(f"{path.name}.tmp")  # one name: the directory is locked, so leftovers do not pile up
    temporary.touch(mode=0o600)
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
