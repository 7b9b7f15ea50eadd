"""Children of the tests start with the signals of a terminal, whatever the parent of the tests ignores.

A shell starts ``make test &`` with SIGINT ignored, and ``nohup`` starts it with SIGHUP ignored. A child inherits what
is ignored: it would not see the Ctrl-C that a test sends.
"""

from __future__ import annotations

import signal


def let_children_be_interrupted() -> None:
    """This process goes on to ignore what it ignored, by a handler. A program that it starts has the default instead,
    for a handler does not outlive ``exec``."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)


def _ignore(_number: int, _frame: object) -> None:
    """Stands for SIG_IGN here."""
