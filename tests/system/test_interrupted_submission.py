"""A submission that is killed at any step is there whole or not at all; once more, it is there once."""

import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


def test_a_submission_killed_at_any_step_ends_applied_or_absent_and_may_be_sent_again(store_url):
    command = [sys.executable, "-m", "tests.support.killed_submission", store_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    # All steps up to the commit, and from then on none, are as if nothing had been asked.
    assert [found for found, _ in groupby(step["found"] for step in steps)] == ["absent", "applied"], steps
    assert [step["found"] for step in steps if "the commit" in step["where"]] == ["absent", "applied"]
    assert all(step["again"] and step["others"] for step in steps), steps
    killed = {step["where"] for step in steps[:-1]}
    assert {"before the transaction", "after the transaction", "before the answer"} <= killed
    for table in ("settings", "topics", "shares", "publishers", "decisions"):
        assert {f"before INSERT INTO {table}", f"after INSERT INTO {table}"} <= killed
    assert steps[-1]["where"] == "came through"
