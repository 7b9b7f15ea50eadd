"""The processor time that the parts of a cluster have taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.systems import cpu_s
from srtm.errors import Unavailable
from srtm.supervisor import Cluster

PARTS = ("adaptor", "distributor", "brokers", "engines")
_ENGINE_THREADS = ("srtm-engine", "srtm-disk")


def spent_ms(running: Cluster) -> dict[str, float]:
    """User + system ms so far of each of ``PARTS``: of the brokers' Python apart from their engines, which carry the
    messages. Raises Unavailable where a process is gone."""
    found = dict.fromkeys(PARTS, 0.0)
    for child in running.children():
        if child.pid is None:
            raise Unavailable(f"{child.name} does not run: {child.last_words()}")
        whole = 1000 * cpu_s(child.pid, child.name)
        engine = sum(_thread_ms(task) for task in _engine_threads(child.pid)) if child.name not in found else 0.0
        found[child.name if child.name in found else "brokers"] += whole - engine
        found["engines"] += engine
    return found


def _engine_threads(pid: int) -> Iterator[Path]:
    """Those live from the engine's start to its end."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except FileNotFoundError:  # a worker thread of Python that has just ended
            continue
        if name in _ENGINE_THREADS:
            yield task


def _thread_ms(task: Path) -> float:
    """proc(5): the first field of schedstat, ns on a processor."""
    return int((task / "schedstat").read_text().split()[0]) / 1e6
