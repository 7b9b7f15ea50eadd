"""Kills, stops, cuts, copies, clock steps and changes of topics, all at once, for a minute; ``make soak``: ten."""

from __future__ import annotations

import subprocess
import sys

import pytest

from srtm.errors import Unavailable
from tests.faults.chaos import check_means


def what_is_missing() -> str:
    try:
        check_means()
    except Unavailable as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(what_is_missing() != "", reason=what_is_missing())
@pytest.mark.parametrize("seed", [1, pytest.param(13, marks=pytest.mark.long)])
def test_no_topic_exceeds_its_envelope_whatever_is_done_to_the_cluster(seed: int) -> None:
    command = [sys.executable, "-m", "tests.faults.chaos", "--seconds", "60", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "passed" in done.stdout
