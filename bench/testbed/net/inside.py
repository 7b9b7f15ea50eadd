"""A command on a host of a testbed: ``python -m bench.testbed.net.inside NAMESPACE [--group FOLDER]... -- COMMAND...``.

It becomes that command; whoever watches its process id watches the command. With ``srtm.cluster.parent_death`` it ends
with the testbed's owner.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.harness.machine import namespaces as own_network
from bench.testbed.net.names import NAMESPACES
from srtm.cluster import parent_death as lifeline
from srtm.errors import SrtmError, Unavailable


def command_inside(namespace: str, groups: Sequence[Path], command: Sequence[str]) -> list[str]:
    """What to start so that ``command`` runs there."""
    where = [word for group in groups for word in ("--group", str(group))]
    return [sys.executable, "-m", "bench.testbed.net.inside", namespace, *where, "--", *command]


def main(arguments: Sequence[str]) -> int:
    """Does not return where all goes well."""
    words = list(arguments)
    before, command = words[: words.index("--")], words[words.index("--") + 1 :]
    namespace, groups = before[0], before[2::2]
    lifeline.hold()
    try:
        for group in groups:
            _join(Path(group))
        own_network.enter_existing(NAMESPACES / namespace)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
    except SrtmError as error:
        print(error, file=sys.stderr)
    return 1


def _join(group: Path) -> None:
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        raise Unavailable(f"control group {group}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
