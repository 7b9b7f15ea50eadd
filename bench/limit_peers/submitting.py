"""Submits contract files to a limit service in turns: ``python -m bench.limit_peers.submitting ADDRESS TIMES FILE...``.

A process of its own: it must not delay what measures the service. It prints how long each took, s.
"""

from __future__ import annotations

import http.client
import itertools
import sys
import time
from pathlib import Path

from srtm.errors import PeerError

PATH = "/limit/v1/contracts"


def submit(address: str, body: bytes) -> float:
    """Put the contracts of a body in force, and return how long it took, s. Raises PeerError."""
    begun = time.perf_counter()
    link = http.client.HTTPConnection(address, timeout=120)
    link.request("POST", PATH, body, {"Content-Type": "application/json"})
    answer = link.getresponse()
    content = answer.read()
    link.close()
    if answer.status != http.client.OK:
        raise PeerError(f"{address}{PATH}: {answer.status} {content[:300]!r}")
    return time.perf_counter() - begun


def main(address: str, times: str, *files: str) -> None:
    """Submit ``times`` times, one file after the other."""
    bodies = itertools.cycle([Path(file).read_bytes() for file in files])
    for body in itertools.islice(bodies, int(times)):
        print(f"{submit(address, body):.6f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
