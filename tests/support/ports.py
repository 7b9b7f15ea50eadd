"""Free ports of loopback for the services that a test starts."""

from __future__ import annotations

import os
from itertools import count

from srtm.cluster import cluster_file
from srtm.errors import Unavailable

# Below the ports that the product itself draws from: nothing that a test starts may get one of these by luck.
_PORTS = range(2_000, 10_000)


def pick_addresses(number: int) -> list[str]:
    """Return ``number`` addresses that nobody listens on, and that no other worker of this run is given.

    Between the pick and the service's start the port is free, for a second and more on a busy machine: so each worker
    has ports of its own, and gives them out in turn.
    """
    return [_next() for _ in range(number)]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def free_port() -> int:
    return port_of(_next())


def ports_of_worker(worker: int, workers: int) -> range:
    """The share of one worker of ``workers``. Shares do not meet."""
    share = len(_PORTS) // workers
    return _PORTS[worker * share : (worker + 1) * share]


def _next() -> str:
    while True:
        port = _OWN[next(_TURN) % len(_OWN)]
        try:
            return cluster_file.pick_addresses(1, {}, range(port, port + 1))[0]
        except Unavailable:
            continue


_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_OWN = ports_of_worker(_WORKER, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
_TURN = count(os.getpid())  # two runs at once on one machine begin at different places
