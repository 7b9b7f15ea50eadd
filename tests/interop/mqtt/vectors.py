"""Mosquitto's 1,825 byte vectors, played by a test of the engine that plays nothing where they are not."""

from __future__ import annotations

import os
import re
import subprocess
import time

from bench.harness.machine.checkout import ROOT
from tests.interop.mqtt.sources import VECTORS_VARIABLE
from tests.interop.outcome import Outcome
from tests.interop.processes import directory_of_suite, report

_TEST = "mosquittos_vectors_get_their_answers"
_COMMAND = ("cargo", "test", "--quiet", "--locked", "-p", "srtm-engine", "--lib", _TEST, "--", "--ignored")


def outcome(status: int, said: str, seconds: float) -> Outcome:
    """``said``: what cargo printed. A run without the test is none."""
    played = re.search(r"^test result: (?:ok|FAILED)\. [1-9]\d* passed|; [1-9]\d* failed;", said, re.MULTILINE)
    wrong = re.search(r"^\d+ of \d+:\n.*", said, re.MULTILINE)
    why = wrong[0].replace("\n", " ") if wrong else said.strip().rpartition("\n")[2]
    passed = status == 0 and played is not None
    return Outcome("all vectors", passed, seconds, "" if passed else why)


if __name__ == "__main__":
    began = time.monotonic()
    environment = {**os.environ, VECTORS_VARIABLE: str(directory_of_suite() / "data")}
    ended = subprocess.run(_COMMAND, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    report([outcome(ended.returncode, ended.stdout + ended.stderr, time.monotonic() - began)])
