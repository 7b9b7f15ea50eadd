"""nsqjs' own tests, which start nsqd themselves. Each may take 10 s: mocha's usual 2 s are short on a busy machine, and
nothing here judges speed."""

from __future__ import annotations

import subprocess

from tests.interop.outcome import from_mocha
from tests.interop.processes import directory_of_suite, report


def main() -> None:
    package = directory_of_suite() / "node_modules" / "nsqjs"
    said = directory_of_suite() / "outcome.json"
    said.unlink(missing_ok=True)
    options = ["--reporter=json", f"--reporter-option=output={said}", "--timeout=10000", "--exit"]
    subprocess.run(["../.bin/mocha", "test", *options], cwd=package, capture_output=True, check=False)
    report(from_mocha(said.read_text()))


if __name__ == "__main__":
    main()
