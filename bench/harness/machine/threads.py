"""The threads of another process, by their names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

ENGINE = "srtm-engine"  # carries the messages of a broker
ENGINE_THREADS = (ENGINE, "srtm-disk")  # live from the engine's start to its end


def threads_named(pid: int, names: Collection[str]) -> Iterator[Path]:
    """Their folders in /proc. Raises FileNotFoundError where the process is gone."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):  # one that has just ended
            continue
        if name in names:
            yield task
