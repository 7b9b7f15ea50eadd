"""A command on a host of a testbed: ``python -m bench.testbed.net.inside NAMESPACE -- COMMAND...``.

It becomes that command; whoever watches its process id watches the command. With ``srtm.cluster.parent_death`` it ends
with the testbed's owner.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from bench.harness.machine import namespaces as own_network
from bench.testbed.net.names import NAMESPACES
from srtm.cluster import parent_death as lifeline
from srtm.errors import SrtmError


def command_inside(namespace: str, command: Sequence[str]) -> list[str]:
    """What to start so that ``command`` runs there."""
    return [sys.executable, "-m", "bench.testbed.net.inside", namespace, "--", *command]


def main(arguments: Sequence[str]) -> int:
    """Does not return where all goes well."""
    namespace, _, *command = arguments
    lifeline.hold()
    try:
        own_network.enter_existing(NAMESPACES / namespace)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
    except SrtmError as error:
        print(error, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
