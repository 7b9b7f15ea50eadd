"""What a foreign suite's output means, and when we count as good as nsqd."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.interop.outcome import Outcome, from_go, from_mocha, missed, passes, table

GO = """=== RUN   TestConfigSet
--- PASS: TestConfigSet (0.00s)
=== RUN   TestConsumer
    consumer_test.go:98: wrong count 7
--- FAIL: TestConsumer (0.11s)
FAIL
"""


def test_gos_lines_become_outcomes_and_a_failure_says_why() -> None:
    assert from_go(GO) == [
        Outcome("TestConfigSet", True, 0.0),
        Outcome("TestConsumer", False, 0.11, "consumer_test.go:98: wrong count 7"),
    ]
    assert from_go("panic: no test ran") == []


def test_mochas_report_becomes_outcomes() -> None:
    passed = {"fullTitle": "wire should frame", "duration": 12}
    failed = {"fullTitle": "reader should read", "err": {"message": "timeout\n  at x"}}
    assert from_mocha(json.dumps({"passes": [passed], "failures": [failed]})) == [
        Outcome("wire should frame", True, 0.012),
        Outcome("reader should read", False, 0.0, "timeout"),
    ]


def test_what_passes_against_nsqd_must_pass_against_us() -> None:
    good, bad = Outcome("a", True, 1.0), Outcome("a", False, 1.0, "no")
    other = Outcome("b", True, 1.0)
    assert passes([good], [good])
    assert passes([good], [good, Outcome("b", False, 1.0, "nobody's")])
    assert not passes([bad, other], [good])
    assert [outcome.why for outcome in missed([bad], [good])] == ["no"]


def test_a_suite_that_broke_off_is_no_success() -> None:
    good = Outcome("a", True, 1.0)
    assert not passes([], [])
    assert not passes([], [good])
    assert not passes([good], [Outcome("a", False, 1.0)])
    assert [outcome.why for outcome in missed([], [good])] == ["it did not run"]


def test_the_table_names_every_suite_and_what_it_misses() -> None:
    good, bad = Outcome("a", True, 1.0), Outcome("a", False, 0.5, "no")
    text = table({"x": ([good], [good]), "y": ([bad], [good]), "z": ([], [good])})
    assert "| x | 1 of 1 in 1.0 s | 1 of 1 in 1.0 s | passes |" in text
    assert "| y | 0 of 1 in 0.5 s | 1 of 1 in 1.0 s | FAILS |" in text
    assert "| z | did not run | 1 of 1 in 1.0 s | FAILS |" in text
    assert text.splitlines()[-2:] == ["y: a: no", "z: a: it did not run"]


def test_a_suite_that_is_none_is_refused_by_name() -> None:
    command = [sys.executable, "-m", "tests.interop", "go-nsk"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, "no such suite: go-nsk" in ended.stderr) == (2, True)
