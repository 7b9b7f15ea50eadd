"""``python -m tests.interop [SUITE]...``: fetch, run against us and against nsqd, print the table. Exit status 1 if
anything that passes against nsqd does not pass against us.

Each run has a network namespace of its own, where the suites' fixed ports are free and nothing leaves the host. Where
that is not allowed the ports of this host are used, if they are free.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.harness.machine.checkout import ROOT
from bench.harness.systems.systems import PEERS
from tests.interop.outcome import Outcome, passes, table
from tests.interop.suites import SUITES, CannotFetch, Suite, ready

_OURS = Path(__file__).parent / "bin"
_PORTS = (4150, 4151, 4152, 4160, 4161, 4171)
_LONGEST_S = 300.0
_LOOPBACK_UP = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
_NAMESPACES = (["unshare", "--net"], ["unshare", "--map-root-user", "--net"])


def namespace() -> list[str] | None:
    """What to put before a command so that it has its own loopback; None: not allowed here."""
    for words in _NAMESPACES:
        try:
            tried = subprocess.run([*words, *_LOOPBACK_UP, "true"], capture_output=True, check=False)
        except FileNotFoundError:
            continue
        if tried.returncode == 0:
            return [*words, *_LOOPBACK_UP]
    return None


def ports_in_use() -> list[int]:
    taken = []
    for port in _PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                taken.append(port)
    return taken


def run(suite: Suite, directory: Path, first_on_path: Sequence[Path], prefix: Sequence[str]) -> list[Outcome]:
    """One suite against the ``nsqd`` that comes first in ``first_on_path``. Empty: it broke off."""
    path = os.pathsep.join([*map(str, first_on_path), os.environ["PATH"]])
    packages = [str(directory / suite.packages)] if suite.packages else []
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([*packages, str(ROOT)]),
        "SRTM_INTEROP_DIRECTORY": str(directory),
    }
    command = [*prefix, sys.executable, "-m", suite.module]
    try:
        ended = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, timeout=_LONGEST_S, check=False
        )
        outcomes = msgspec.json.decode(ended.stdout.strip().rpartition("\n")[2] or "[]", type=list[Outcome])
    except (subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        print(f"{suite.name}: {error}", file=sys.stderr)
        return []
    if not outcomes:
        print(f"{suite.name}: {ended.stderr.strip()[-500:]}", file=sys.stderr)
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.interop", description="Foreign clients against our broker.")
    parser.add_argument("suite", nargs="*", help=f"of: {', '.join(suite.name for suite in SUITES)} (default: all)")
    parser.add_argument("--directory", type=Path, default=ROOT / ".interop", help="where suites are kept")
    given = parser.parse_args(arguments)
    chosen = [suite for suite in SUITES if not given.suite or suite.name in given.suite]
    unknown = set(given.suite) - {suite.name for suite in SUITES}
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    prefix = namespace()
    if prefix is None:
        taken = ports_in_use()
        if taken:
            print(f"network namespaces are not allowed here, and ports are in use: {taken}", file=sys.stderr)
            return 1
    try:
        return _compare(chosen, given.directory, prefix or [])
    except CannotFetch as error:
        print(f"cannot fetch: {error}", file=sys.stderr)
        return 1


def _compare(chosen: Sequence[Suite], root: Path, prefix: Sequence[str]) -> int:
    results = {}
    for suite in chosen:
        directory = ready(suite, root)
        theirs = run(suite, directory, [PEERS], prefix)
        ours = run(suite, directory, [_OURS, PEERS], prefix)
        results[suite.name] = (ours, theirs)
    print(table(results))
    return 0 if all(passes(*both) for both in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
