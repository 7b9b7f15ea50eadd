"""A submission that is killed at any step is there whole or not at all; once more, it is there once."""

import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(320)]
ROOT = Path(__file__).resolve().parents[2]


STATEMENTS = {
    "create": [
        f"INSERT INTO {table}" for table in ("settings", "topics", "shares", "publishers", "decisions", "fittings")
    ],
    "change": ["INSERT INTO topics", "INSERT INTO shares", "INSERT INTO publishers", "INSERT INTO fittings"],
    "patch": ["INSERT INTO topics", "INSERT INTO shares", "INSERT INTO publishers", "INSERT INTO fittings"],
    "delete": ["INSERT INTO topics", "DELETE FROM publishers", "DELETE FROM fittings"],
}
# One operation is enough to see that PostgreSQL's transactions are as whole as SQLite's.
MARKS = {
    operation: [pytest.mark.postgres] if operation == "create" else [pytest.mark.postgres, pytest.mark.long]
    for operation in STATEMENTS
}
CASES = [("sqlite", operation) for operation in STATEMENTS] + [
    pytest.param("postgresql", operation, marks=MARKS[operation]) for operation in STATEMENTS
]


@pytest.mark.parametrize(("store_url", "operation"), CASES, indirect=["store_url"])
def test_what_is_killed_at_any_step_ends_applied_or_as_before_and_may_be_sent_again(store_url, operation):
    command = [sys.executable, "-m", "tests.support.killed_submission", store_url, operation]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    # All steps up to the commit, and from then on none, are as if nothing had been asked.
    assert [found for found, _ in groupby(step["found"] for step in steps)] == ["as before", "applied"], steps
    assert [step["found"] for step in steps if "the commit" in step["where"]] == ["as before", "applied"]
    assert all(step["again"] for step in steps), steps
    assert steps[-1]["others"] == ["applied"] * (len(steps) - 1)  # no later kill has touched an earlier topic
    killed = {step["where"] for step in steps[:-1]}
    assert {"before the transaction", "after the transaction", "before the answer"} <= killed
    for statement in STATEMENTS[operation]:
        assert {f"before {statement}", f"after {statement}"} <= killed
    assert steps[-1]["where"] == "came through"
