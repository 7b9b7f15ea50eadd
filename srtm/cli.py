"""The ``srtm`` command's front door: which part answers, and what a failure looks like to a person.

Nothing heavy is imported before it is needed: a broker must answer within 0.3 s of its start. Exit status: 0 it did
what it was asked, 1 it failed, 2 bad input, 130 Ctrl-C, 143 SIGTERM (services: 0). A failure is one line on standard
error, never a traceback; only a bug of ours shows one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from srtm.cluster import parent_death as lifeline
from srtm.errors import NATIVE, NotBuilt, SrtmError

INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status of ``srtm ARGUMENTS...`` (default: those of this process)."""
    lifeline.hold()
    try:
        status = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()  # here, where a reader that has gone is no news
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone, as in `srtm topic list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter's last flush fails again
        return 1
    except SrtmError as error:
        return report(error)
    except ModuleNotFoundError as error:
        if error.name != NATIVE:
            raise
        return report(NotBuilt())
    except BaseExceptionGroup as group:
        return _report_group(group)


def report(error: SrtmError) -> int:
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
    """Tasks that failed together. Several refusals: all are shown. Anything that is no refusal is a bug: raised."""
    if group.split(KeyboardInterrupt)[0] is not None:
        return INTERRUPTED
    refusals, bugs = group.split(SrtmError)
    if bugs is not None or refusals is None:
        raise group
    return max(report(error) for error in _leaves(refusals))


def _leaves(group: BaseExceptionGroup[SrtmError]) -> list[SrtmError]:
    found: list[SrtmError] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
