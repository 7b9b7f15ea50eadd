"""Which sources a figure depends on, as a short name: equal where these are equal, whatever else was changed between.

So that long measurements can be made in pieces, while the project goes on elsewhere.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.results import ROOT

_DIGITS = 12
_SUFFIXES = (".py", ".rs", ".toml", ".lock")


def fingerprint(paths: Sequence[str], but: Sequence[str] = (), root: Path = ROOT) -> str | None:
    """Of the sources under ``paths`` (folders, files) as they are now, committed or not, without those under ``but``.
    None: not in a checkout."""
    patterns = [*paths, *(f":(exclude){path}" for path in but)]
    listing = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    try:
        listed = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = hashlib.sha256()
    for name in sorted(set(listed.split("\0"))):
        file = root / name
        if file.suffix in _SUFFIXES and file.is_file():
            found.update(f"{name}\0{file.stat().st_size}\0".encode())
            found.update(file.read_bytes())
    return found.hexdigest()[:_DIGITS]
