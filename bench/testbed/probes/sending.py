"""A publishers' host: ``python -m bench.testbed.probes.sending``, the load generator in a process inside its namespace.

A ``Plan`` comes as JSON on standard input, its ``RunResult`` goes to standard output.
"""

from __future__ import annotations

import sys
from functools import partial

import msgspec

from bench.harness.load.run import run_plan
from bench.harness.load.workload import Plan
from srtm.cluster import parent_death as lifeline
from srtm.console.running import run_trio
from srtm.errors import SrtmError


def main() -> int:
    lifeline.hold()
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    try:
        result = run_trio(partial(run_plan, plan))
    except SrtmError as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
