"""Which files of this checkout a result depends on, and a short name of what they hold: equal where these are equal,
whatever else was changed between.

So that long measurements can be made in pieces, while the project goes on elsewhere.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from bench.harness.machine.checkout import ROOT

OURS = ("adaptor", "bench", "broker", "distributor", "srtm")
# What every simulated message goes through: the extension, what it is linked with, and the parameters.
ALWAYS = ("bench/data", "bench/simulator_engine", "broker/engine", "srtm/native", "Cargo.lock", "requirements.lock")
# What a measurement on real brokers goes through, besides the code of its own.
_PRODUCT = ("broker", "distributor", "adaptor", "srtm", "Cargo.toml", "Cargo.lock")
_GENERATOR = ("bench/loadgen", "bench/harness/load/workload.py")
_NOT_MEASURED = ("broker/fuzz", "srtm/commands", "distributor/web")
_DIGITS = 12
_SUFFIXES = (".py", ".rs", ".toml", ".lock", ".json", ".csv")


def sources_of(modules: Iterable[str], root: Path = ROOT) -> list[str]:
    """Paths below ``root``: of ``modules``, of what they import of ours, and so on, and ``ALWAYS``."""
    found: set[Path] = set()
    waiting = list(modules)
    while waiting:
        path = _file_of(waiting.pop(), root)
        if path is not None and path not in found:
            found.add(path)
            waiting += _imported(ast.parse(path.read_text()))
    return [*sorted(str(path.relative_to(root)) for path in found), *ALWAYS]


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


@cache
def measured_sources(*own: str) -> str | None:
    """The fingerprint of what a measurement on real brokers depends on, as the command found it: the product, the
    load generator, and ``own``, the files that say what is measured. None: not in a checkout."""
    return fingerprint([*_PRODUCT, *_GENERATOR, *own], _NOT_MEASURED)


def _file_of(module: str, root: Path) -> Path | None:
    if module.partition(".")[0] not in OURS:
        return None
    path = root.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _imported(tree: ast.Module) -> Iterator[str]:
    """Names of modules, and of what may be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
