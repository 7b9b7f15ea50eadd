from __future__ import annotations

from bench.console.exit_status import NOT_VALID, exit_status, summary
from bench.harness.results.verdict import Check, Verdict

SEEN = Verdict("a", "", [Check("x", "1", "1", kept=True)])
MISSED = Verdict("b", "", [Check("x", "1", "2", kept=False)])
SPOILT = Verdict("c", "", [], reasons=["the generator was late"])


def test_a_claim_that_is_not_confirmed_is_no_failure_and_a_run_that_does_not_count_is_one() -> None:
    assert exit_status([SEEN, MISSED]) == 0
    assert exit_status([SEEN, SPOILT, MISSED]) == NOT_VALID == 3


def test_what_is_not_confirmed_is_listed_with_what_was_found() -> None:
    assert summary([SEEN, MISSED, SPOILT]).splitlines() == [
        "confirmed: 1 of 3",
        "not confirmed: b: fell short: x 1, must be 2",
        "not confirmed: c: no verdict: the generator was late",
    ]
