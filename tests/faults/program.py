"""What the fault programs that need network namespaces have in common: how they begin, and how they end."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from bench.harness.machine import namespaces as own_network
from srtm.console.running import run_trio
from srtm.errors import SrtmError, Unavailable


def check_means() -> None:
    """Whether bad links between network namespaces can be made. Raises Unavailable naming what is missing."""
    own_network.check_privileges()
    lacking = [f"the command {name} (util-linux)" for name in ("unshare", "nsenter") if shutil.which(name) is None]
    lacking += ["/dev/net/tun"] * (not os.access("/dev/net/tun", os.R_OK | os.W_OK))
    if lacking:
        raise Unavailable(f"bad links between network namespaces need {', '.join(lacking)}")


def status_of(
    check: Callable[[], None], work: Callable[[Path], Awaitable[list[str]]], directory: Path | None = None
) -> int:
    """Run ``work`` in a network namespace of its own, print what it says is not as it must be, and return the status.

    ``check`` raises Unavailable naming what is missing. ``directory``: for data and logs; None: one that goes.
    """
    try:
        check()
        own_network.enter()
        with tempfile.TemporaryDirectory(prefix="srtm-faults-") as temporary:
            failures = run_trio(partial(work, directory or Path(temporary)))
    except SrtmError as error:
        print(error, file=sys.stderr)
        return 1
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0
