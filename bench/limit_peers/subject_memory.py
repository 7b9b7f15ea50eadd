"""What memory a subject takes in a program, by that of the process: ``python -m bench.limit_peers.subject_memory``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from srtm.contracts.contract import read_contract
from srtm.limiting.limiter import Limiter


def resident_bytes() -> int:
    """Memory of this process in RAM (proc(5): field 2 of statm)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bytes_a_subject(policy: dict[str, object], subjects: int, requests: int) -> float:
    """What ``subjects`` with so many allowed requests each take, each."""
    contract = read_contract({"namespace": "api", "subject": "*", "policies": [policy]})
    limiter = Limiter([contract], max_subjects=2 * subjects)
    before = resident_bytes()
    for _ in range(requests):
        for number in range(subjects):
            limiter.check("api", f"user:{number:024}")
    return (resident_bytes() - before) / subjects


def main(policy: str, subjects: str, requests: str) -> None:
    """Print it."""
    print(bytes_a_subject(msgspec.json.decode(policy), int(subjects), int(requests)))


if __name__ == "__main__":
    main(*sys.argv[1:])
