"""Programs started by name from PATH inside a suite's network namespace, and stopped with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.interop.outcome import Outcome

READY_S = 10.0
_STOP_S = 10.0


class NotReady(Exception):
    """A program ended or stayed silent; the text is what it said."""


@contextmanager
def running(*command: str, ping: str, directory: Path, hard: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """``command`` in ``directory``, from when ``ping`` answers. ``hard``: ended by SIGKILL, as pynsq's suite does."""
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            try:
                wait_for(ping, lambda: process.poll() is None)
            except NotReady as error:
                log.seek(0)
                said = log.read().decode(errors="replace")[-500:]
                raise NotReady(f"{command[0]}: no answer at {error}; it said: {said}") from None
            yield process
        finally:
            if hard:
                process.kill()
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(url: str, alive: Callable[[], bool]) -> None:
    """Raises NotReady."""
    deadline = time.monotonic() + READY_S
    while alive() and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.01)  # another process's port cannot signal us that it is open
    raise NotReady(url)


def run_each(tests: Sequence[Callable[[], None]]) -> list[Outcome]:
    """Each test by itself; whatever it raises is its failure."""
    outcomes = []
    for test in tests:
        started = time.monotonic()
        why = ""
        try:
            test()
        except Exception as error:  # noqa: BLE001 - the outcome of a test, whatever it is
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
        outcomes.append(Outcome(test.__name__, not why, time.monotonic() - started, why))
    return outcomes


def report(outcomes: Sequence[Outcome]) -> None:
    """For ``tests.interop.__main__``: the last line of our output."""
    sys.stdout.write(msgspec.json.encode(outcomes).decode() + "\n")
    sys.stdout.flush()


def directory_of_suite() -> Path:
    return Path(os.environ["SRTM_INTEROP_DIRECTORY"])
