"""Entry point of the ``srtm`` command: it chooses the part that runs, and turns failures into one line for people.

Imports are late, because a broker must answer within 0.3 s of its start. Exit status: 0 success, 1 failure, 2 bad
input, 130 Ctrl-C, 143 SIGTERM (services: 0). A failure prints one line on standard error. Only a bug prints a
traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from srtm.cluster import parent_death
from srtm.errors import NATIVE, NotBuilt, NotInstalled, SrtmError

INTERRUPTED = 128 + signal.SIGINT
_OF_MEASUREMENTS = {"hdrh", "matplotlib", "pyroute2"}  # top-level names of what the extra `bench` installs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``srtm ARGUMENTS...`` (default: the arguments of this process) and return its exit status."""
    parent_death.hold()
    try:
        status = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()  # here a closed pipe is caught below; at the interpreter's exit it is not
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output ended first, as in `srtm topic list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's last flush succeeds
        return 1
    except SrtmError as error:
        return report(error)
    except ModuleNotFoundError as error:
        if error.name == NATIVE:
            return report(NotBuilt())
        library = str(error.name).partition(".")[0]
        if library in _OF_MEASUREMENTS:
            return report(NotInstalled(library))
        raise
    except BaseExceptionGroup as group:
        return _report_group(group)


def report(error: SrtmError) -> int:
    """Print an error for people and return its exit status."""
    print(f"srtm: {error}", file=sys.stderr)
    return error.exit_status


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["broker"]:
        from broker.__main__ import main as broker_main

        return broker_main(arguments[1:])
    if arguments[:1] == ["nsqd"]:
        from broker.nsqd_main import main as nsqd_main

        return nsqd_main(arguments[1:])
    from srtm.commands import run

    return run(arguments)


def _report_group(group: BaseExceptionGroup[BaseException]) -> int:
    """Print every error of tasks that failed together. Raises the group if it holds a bug."""
    if group.split(KeyboardInterrupt)[0] is not None:
        return INTERRUPTED
    errors, bugs = group.split(SrtmError)
    if bugs is not None or errors is None:
        raise group
    return max(report(error) for error in _leaves(errors))


def _leaves(group: BaseExceptionGroup[SrtmError]) -> list[SrtmError]:
    found: list[SrtmError] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
