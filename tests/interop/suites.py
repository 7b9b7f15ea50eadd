"""The suites: where each comes from, made ready once in a directory of its own, and the module that runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_GO_NSQ = "github.com/nsqio/go-nsq@v1.1.0"
_NO_MODULE = "module interop\n\ngo 1.21\n"


class CannotFetch(Exception):
    """A registry or a tool of it refused; the text is what it said."""


@dataclass(frozen=True)
class Suite:
    """``fetch(directory)`` makes it ready there; ``module`` runs it. ``packages``: for PYTHONPATH, if any."""

    name: str
    module: str
    fetch: Callable[[Path], None]
    packages: str = ""


def fetch_go_nsq(directory: Path) -> None:
    """The module carries its tests; they are compiled here, where the Go module proxy can be reached."""
    (directory / "go.mod").write_text(_NO_MODULE)
    said = json.loads(run_or_fail(["go", "mod", "download", "-json", _GO_NSQ], directory))
    shutil.copytree(said["Dir"], directory / "source", copy_function=shutil.copy)
    for path in (directory / "source", *(directory / "source").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    run_or_fail(["go", "test", "-c", "-o", str(directory / "suite.test"), "."], directory / "source")
    shutil.copytree(directory / "source" / "test", directory / "test")


def fetch_nsqjs(directory: Path) -> None:
    shutil.copy(_HERE / "nsqjs" / "package.json", directory)
    run_or_fail(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], directory)


def fetch_pynsq(directory: Path) -> None:
    requirements = _HERE / "pynsq" / "requirements.txt"
    packages = str(directory / "packages")
    run_or_fail(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", packages, "-r", str(requirements)], directory
    )
    certificates = directory / "go-nsq"
    certificates.mkdir()
    fetch_go_nsq(certificates)
    shutil.copytree(certificates / "test", directory / "certificate")


def _nothing(_directory: Path) -> None:
    """Its programs are built by ``make peers``."""


def run_or_fail(command: list[str], directory: Path) -> str:
    """What it printed. Raises CannotFetch."""
    try:
        ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotFetch(f"missing: {command[0]}") from None
    if ended.returncode:
        raise CannotFetch(f"{' '.join(command)}: {(ended.stderr or ended.stdout).strip()[-500:]}")
    return ended.stdout


SUITES = (
    Suite("go-nsq", "tests.interop.go_nsq", fetch_go_nsq),
    Suite("nsqjs", "tests.interop.nsqjs", fetch_nsqjs),
    Suite("pynsq", "tests.interop.pynsq_live", fetch_pynsq, packages="packages"),
    Suite("nsqlookupd and nsqadmin", "tests.interop.nsqadmin", _nothing),
)


def ready(suite: Suite, root: Path) -> Path:
    """The suite's directory under ``root``, fetched if it is not there whole. Raises CannotFetch."""
    directory = root / suite.module.rpartition(".")[2]
    if not (directory / "ready").exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        suite.fetch(directory)
        (directory / "ready").touch()
    return directory
