"""A wall clock of one process's own, set by the harness; the machine's clock stays as it is.

A preloaded library adds an offset to what the process reads (``wall_clock.c``). Kernel stamps of received bytes keep
the machine's clock. So a broker sees stamps hours off its own clock, which is harsher than a clock that was set.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

from srtm.errors import Unavailable

_SOURCE = Path(__file__).with_suffix(".c")


def check_compiler() -> None:
    """Raises Unavailable naming what is missing."""
    if shutil.which("cc") is None:
        raise Unavailable("a wall clock of a process's own needs a C compiler as cc (Debian: apt-get install gcc)")


def build(folder: Path) -> Path:
    """Compile the library into ``folder``. Raises Unavailable with what the compiler said."""
    library = folder / "wall_clock.so"
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")
    return library


class WallClock:
    """The offset that processes started with ``environment`` add to the machine's wall clock."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self._file.write_bytes(struct.pack("=q", 0))
        self.environment = {"LD_PRELOAD": str(library), "SRTM_WALL_CLOCK_OFFSET": str(file)}

    def set(self, offset_s: float) -> None:
        """Take effect at the next reading of the clock, in running processes too."""
        with self._file.open("r+b") as file:  # not truncated: it is mapped
            file.write(struct.pack("=q", round(offset_s * 1e9)))
