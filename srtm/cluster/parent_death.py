"""A supervised process dies with its supervisor, even where that one was killed and could not say so."""

from __future__ import annotations

import os
import signal

PARENT_VARIABLE = "SRTM_SUPERVISOR_PID"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def hold() -> None:
    """Called first thing in a child: ask the kernel for SIGTERM when the supervisor named in the environment ends.
    Without a supervisor: nothing.

    In the child rather than in a ``preexec_fn``, which must not be used in a process with threads.
    """
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None:
        return
    import ctypes  # only supervised processes pay for it

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):  # it ended before we asked
        raise SystemExit(1)
