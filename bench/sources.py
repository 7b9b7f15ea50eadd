"""Which files of this checkout a module is made of, and whether they are what they were at a commit."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.document import ROOT

OURS = ("adaptor", "bench", "broker", "distributor", "srtm")
# What every simulated message goes through: the extension, what it is linked with, and the parameters.
ALWAYS = ("bench/data", "bench/simulator_engine", "broker/engine", "srtm/native", "Cargo.lock", "requirements.lock")


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


def unchanged_since(commit: str | None, paths: Sequence[str], root: Path = ROOT) -> bool:
    """Whether ``paths`` are what they were at ``commit``, as ``bench.results.commit`` tells it. Of sources that were
    changed besides, or are of no commit, nobody knows what they were: no."""
    if commit is None or commit.endswith("-dirty"):
        return False
    command = ["git", "-C", str(root), "diff", "--quiet", commit, "--", *paths]
    try:
        return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


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
