"""Who may read the files that a service has made."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OWNER_ALONE = 0o600


def modes(folder: Path) -> dict[str, int]:
    """{path below ``folder``: permissions} of all files there."""
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()
    }


@contextmanager
def no_umask() -> Iterator[None]:
    """The process's umask takes nothing away: a new file has the mode that its maker asks for."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)
