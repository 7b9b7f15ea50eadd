"""What git says of the sources that a result is made of: their commit, changes since, and a name for what is not
committed. What commands write, ``docs``, is no source."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from bench.harness.machine.checkout import ROOT

# What results are made of, besides code of their own.
SIMULATED = (
    *("bench/experiments", "bench/simulation", "bench/simulator_engine", "bench/data"),
    *("broker/engine", "srtm/token_bucket"),
)
PRODUCT = ("broker", "distributor", "adaptor", "srtm", "bench/loadgen", "bench/harness/load")

_SOURCES = ("--", ":/", ":(top,exclude)docs")
_DIGITS = 12


@cache
def source_commit() -> str | None:
    """``commit`` of this checkout when the command began: ask first, so that what it writes is no change."""
    return commit()


@cache
def source_fingerprint() -> str | None:
    """``fingerprint`` of this checkout when the command began."""
    return fingerprint()


def commit(root: Path = ROOT) -> str | None:
    """The commit of the sources, with ``-dirty`` where some are not committed; None outside a checkout."""
    head = _git(root, "rev-parse", f"--short={_DIGITS}", "HEAD")
    return None if head is None else head.strip() + ("-dirty" if uncommitted(root) else "")


def uncommitted(root: Path = ROOT) -> list[str]:
    """Sources that differ from the commit, by their paths; none outside a checkout."""
    return (_git(root, "diff", "--name-only", "HEAD", *_SOURCES) or "").splitlines()


def fingerprint(root: Path = ROOT) -> str | None:
    """Of the commit and of what is not committed: runs with the same one may stand together. None outside a
    checkout."""
    head, changes = _git(root, "rev-parse", "HEAD"), _git(root, "diff", "HEAD", *_SOURCES)
    if head is None or changes is None:
        return None
    return hashlib.sha256(f"{head}{changes}".encode()).hexdigest()[:_DIGITS]


def commits_since(made_at: str, paths: Sequence[str], root: Path = ROOT) -> int | None:
    """How many commits after ``made_at`` changed anything under ``paths``; None where git does not know that commit."""
    found = _git(root, "rev-list", "--count", f"{made_at.removesuffix('-dirty')}..HEAD", "--", *paths)
    return None if found is None else int(found)


def _git(root: Path, *arguments: str) -> str | None:
    """Its output; None where it fails. What a hook or ``git rebase --exec`` says of another repository is left out."""
    command = ["git", "-C", str(root), *arguments]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(command, env=env, capture_output=True, text=True, errors="replace", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
