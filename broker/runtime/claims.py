"""What one process of a running kernel alone can hold: the lock of its data directory, and its port.

A later process with one of these claims proves to the distributor that the earlier one has ended. The lock is named by
the directory itself, not by its name or content: a copy is another directory. The port is named with its network.
Both are named with the boot of the kernel: other hosts, and this one after its next start, can tell nothing. So is the
instant of the claim, which tells the later of two processes whatever the wall clock says.
"""

from __future__ import annotations

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")


def claims_of(directory: Path, bound: str, *, boot_id: Path = _BOOT_ID) -> list[str]:
    """The claims of the process that has locked ``directory`` and listens at ``bound``, HOST:PORT.

    Empty where the kernel does not say what tells it from others: then only people can say what has ended.
    """
    try:
        boot = boot_id.read_text().strip()
        locked, network = directory.stat(), _NETWORK.stat()
    except OSError:
        return []
    return [
        f"{boot} lock {locked.st_dev}:{locked.st_ino}",
        f"{boot} port {network.st_dev}:{network.st_ino} {bound}",
        f"{boot} since {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}",
    ]
