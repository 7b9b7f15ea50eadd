"""The threads of another process, by their names; the open files that this process and its children may have."""

from __future__ import annotations

import resource
from collections.abc import Collection, Iterator
from pathlib import Path

from srtm.errors import Unavailable

ENGINE = "srtm-engine"  # carries the messages of a broker


def threads_named(pid: int, names: Collection[str]) -> Iterator[Path]:
    """Their folders in /proc. Raises FileNotFoundError where the process is gone."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):  # one that has just ended
            continue
        if name in names:
            yield task


def allow_descriptors(needed: int) -> None:
    """Raise the soft limit, which child processes inherit. Raises Unavailable where the hard one is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Unavailable(
            f"{needed} open files are needed and {hard} allowed: raise the limit (ulimit -Hn), then again"
        )
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
