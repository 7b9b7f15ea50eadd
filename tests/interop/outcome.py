"""What a suite's run gave, test by test, and the table of all of them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import msgspec

_GO_LINE = re.compile(r"^--- (PASS|FAIL): (\S+) \(([0-9.]+)s\)", re.MULTILINE)


class Outcome(msgspec.Struct, frozen=True):
    """Of one test. ``why``: of a failure, one line."""

    name: str
    passed: bool
    seconds: float
    why: str = ""


def from_go(text: str) -> list[Outcome]:
    """From ``go test -v``; what a test said before it failed stands between its lines."""
    outcomes = []
    at = 0
    for found in _GO_LINE.finditer(text):
        passed = found[1] == "PASS"
        said = text[at : found.start()].strip().splitlines()
        outcomes.append(Outcome(found[2], passed, float(found[3]), "" if passed else (said or ["?"])[-1].strip()))
        at = found.end()
    return outcomes


def from_mocha(text: str) -> list[Outcome]:
    """From mocha's JSON reporter."""
    report = json.loads(text)
    failed = {test["fullTitle"]: test for test in report["failures"]}
    outcomes = []
    for test in [*report["passes"], *report["failures"]]:
        why = failed.get(test["fullTitle"], {}).get("err", {}).get("message", "")
        seconds = (test.get("duration") or 0) / 1000
        outcomes.append(Outcome(test["fullTitle"], test["fullTitle"] not in failed, seconds, why.partition("\n")[0]))
    return outcomes


def summary(outcomes: Sequence[Outcome]) -> str:
    passed = sum(outcome.passed for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    return f"{passed} of {len(outcomes)} in {seconds:.1f} s" if outcomes else "did not run"


def missed(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> list[Outcome]:
    """Tests that pass against nsqd and not against us; one that we never came to counts too."""
    known = {outcome.name: outcome for outcome in ours}
    wanted = (outcome.name for outcome in theirs if outcome.passed)
    found = (known.get(name, Outcome(name, False, 0.0, "it did not run")) for name in wanted)
    return [outcome for outcome in found if not outcome.passed]


def table(results: Mapping[str, tuple[Sequence[Outcome], Sequence[Outcome]]]) -> str:
    """``results``: of each suite, against us and against nsqd. In Markdown."""
    lines = ["| suite | against srtm | against nsqd | verdict |", "|---|---|---|---|"]
    for suite, (ours, theirs) in results.items():
        verdict = "passes" if passes(ours, theirs) else "FAILS"
        lines.append(f"| {suite} | {summary(ours)} | {summary(theirs)} | {verdict} |")
    for suite, (ours, theirs) in results.items():
        lines += [f"{suite}: {outcome.name}: {outcome.why}" for outcome in missed(ours, theirs)]
    return "\n".join(lines)


def passes(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> bool:
    """Whatever passes against nsqd passes against us, and something did."""
    return bool(theirs) and any(outcome.passed for outcome in theirs) and not missed(ours, theirs)
