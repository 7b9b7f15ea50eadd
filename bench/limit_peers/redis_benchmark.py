"""Runs ``redis-benchmark``, the peer's own load generator (closed loop), and reads what it prints."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from bench.limit_peers.servers import program
from srtm.errors import PeerError, Unavailable

KEYS = 100_000
RANDOM_KEY = "key:__rand_int__"


class Point(NamedTuple):
    """Decisions a second, and latencies as the client saw them, us."""

    per_second: float
    p50_us: float
    p99_us: float


def measured(address: str, words: Sequence[str], *, depth: int, requests: int) -> Point:
    """Ask a server on one connection, ``depth`` commands at once. Raises Unavailable, PeerError."""
    port = address.rpartition(":")[2]
    command = [program("redis-benchmark"), "-p", port, "-c", "1", "-P", str(depth), "-n", str(requests)]
    command += ["-r", str(KEYS), "--csv", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise Unavailable(f"redis-benchmark: {(done.stderr or done.stdout).strip()[-300:]}")
    return read(done.stdout)


def read(text: str) -> Point:
    """Read the CSV of one test. Raises PeerError."""
    rows = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
    try:
        (row,) = rows
        return Point(float(row["rps"]), 1e3 * float(row["p50_latency_ms"]), 1e3 * float(row["p99_latency_ms"]))
    except (ValueError, KeyError) as error:
        raise PeerError(f"redis-benchmark printed something else: {text[-300:]!r}") from error
