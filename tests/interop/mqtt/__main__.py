"""``python -m tests.interop.mqtt [NAME]...``: make ready, ask, print the table. Exit status 1 if anything fails, or if
something could not be asked, which is named."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.harness.machine.checkout import ROOT
from tests.interop.mqtt.place import judged_broker
from tests.interop.mqtt.sources import JUDGES, Judge
from tests.interop.outcome import Outcome, summary
from tests.interop.processes import NotReady
from tests.interop.suites import CannotFetch


def ask(judge: Judge, directory: Path, place: Mapping[str, str]) -> list[Outcome]:
    """What it says of the broker. Empty: it broke off."""
    environment = {**os.environ, **place, **judge.environment(directory)}
    try:
        ended = subprocess.run(
            judge.command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=judge.longest_s,
            check=False,
        )
        outcomes = msgspec.json.decode(ended.stdout.strip().rpartition("\n")[2] or "[]", type=list[Outcome])
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        print(f"{judge.name}: {error}", file=sys.stderr)
        return []
    if not outcomes:
        print(f"{judge.name}: {ended.stderr.strip()[-500:]}", file=sys.stderr)
    return outcomes


def passes(judge: Judge, outcomes: Sequence[Outcome]) -> bool:
    """It asked all that it should, and all is well."""
    return len(outcomes) == judge.count and all(outcome.passed for outcome in outcomes)


def table(results: Sequence[tuple[Judge, Sequence[Outcome] | str]]) -> str:
    """In Markdown. ``results``: of each judge its outcomes, or why it could not be asked."""
    lines = ["| who asks | passes | verdict |", "|---|---|---|"]
    notes = []
    for judge, found in results:
        if isinstance(found, str):
            lines.append(f"| {judge.name} | - | NOT ASKED |")
            notes.append(f"{judge.name}: {found}")
            continue
        verdict = "passes" if passes(judge, found) else f"FAILS, {judge.count} should pass"
        lines.append(f"| {judge.name} | {summary(found)} | {verdict} |")
        notes += [f"{judge.name}: {outcome.name}: {outcome.why}" for outcome in found if not outcome.passed]
    return "\n".join([*lines, *notes])


def main(arguments: Sequence[str] | None = None) -> int:
    names = [judge.name for judge in JUDGES]
    parser = argparse.ArgumentParser("python -m tests.interop.mqtt", description="Foreign MQTT clients and suites.")
    parser.add_argument("name", nargs="*", help=f"of: {', '.join(names)} (default: all)")
    parser.add_argument("--directory", type=Path, default=ROOT / ".interop" / "mqtt", help="where they are kept")
    given = parser.parse_args(arguments)
    unknown = set(given.name) - set(names)
    if unknown:
        parser.error(f"nobody of that name: {', '.join(sorted(unknown))}")
    results: list[tuple[Judge, Sequence[Outcome] | str]] = []
    try:
        with tempfile.TemporaryDirectory() as folder, judged_broker(Path(folder)) as place:
            for judge in JUDGES:
                if given.name and judge.name not in given.name:
                    continue
                try:
                    results.append((judge, ask(judge, judge.ready(given.directory), place)))
                except CannotFetch as error:
                    results.append((judge, str(error)))
    except (CannotFetch, NotReady) as error:
        print(f"the broker to be judged cannot be started: {error}", file=sys.stderr)
        return 1
    print(table(results))
    return 0 if all(not isinstance(found, str) and passes(judge, found) for judge, found in results) else 1


if __name__ == "__main__":
    sys.exit(main())
