"""How commands that repeat the paper's experiments end: what they found is no failure, whatever it is; a run that does
not count found nothing (docs/benchmarking.md)."""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness.results.verdict import Verdict

NOT_VALID = 3  # of a run that says nothing, whatever it measured


def exit_status(verdicts: Sequence[Verdict]) -> int:
    return 0 if all(verdict.valid for verdict in verdicts) else NOT_VALID


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many claims are confirmed, then each that is not."""
    lines = [f"confirmed: {sum(verdict.reached for verdict in verdicts)} of {len(verdicts)}"]
    return "\n".join([*lines, *(f"not confirmed: {verdict.line}" for verdict in verdicts if not verdict.reached)])
