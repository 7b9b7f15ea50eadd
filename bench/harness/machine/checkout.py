"""This checkout, and other built ones: the folder that has ``bench``, ``docs`` and the rest."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from srtm.errors import BadInput

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Build:
    """A checkout whose broker can be started. ``program``: what precedes a command of ``srtm``."""

    root: Path
    program: tuple[str, ...]


THIS = Build(ROOT, (sys.executable, "-m", "srtm"))


def other_build(root: Path) -> Build:
    """Of another checkout, with a .venv of its own. Raises BadInput."""
    program = root.resolve() / ".venv" / "bin" / "srtm"
    if not program.exists():
        raise BadInput("against", str(root), "must be a checkout of this project where `make build` has run")
    return Build(root.resolve(), (str(program),))
