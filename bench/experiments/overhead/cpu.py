"""The processor time that the parts of a cluster have taken."""

from __future__ import annotations

from pathlib import Path

from bench.harness.machine.threads import ENGINE_THREADS, threads_named
from bench.harness.systems.systems import cpu_s
from srtm.cluster.supervisor import Cluster
from srtm.errors import Unavailable

PARTS = ("adaptor", "distributor", "brokers", "engines")


def spent_ms(running: Cluster) -> dict[str, float]:
    """User + system ms so far of each of ``PARTS``: of the brokers' Python apart from their engines, which carry the
    messages. Raises Unavailable where a process is gone."""
    found = dict.fromkeys(PARTS, 0.0)
    for child in running.children():
        if child.pid is None:
            raise Unavailable(f"{child.name} does not run: {child.last_words()}")
        whole = 1000 * cpu_s(child.pid, child.name)
        threads = [] if child.name in found else threads_named(child.pid, ENGINE_THREADS)
        engine = sum(_thread_ms(task) for task in threads)
        found[child.name if child.name in found else "brokers"] += whole - engine
        found["engines"] += engine
    return found


def _thread_ms(task: Path) -> float:
    """proc(5): the first field of schedstat, ns on a processor."""
    return int((task / "schedstat").read_text().split()[0]) / 1e6
