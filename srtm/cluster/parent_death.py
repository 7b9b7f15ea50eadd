"""Ends a supervised process together with its supervisor, even if the supervisor was killed."""

from __future__ import annotations

import os
import signal

PARENT_VARIABLE = "SRTM_SUPERVISOR_PID"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def hold() -> None:
    """Ask the kernel for SIGTERM when the supervisor ends; call it first in a process.

    The environment names the supervisor. Without one nothing happens. It runs in the child because a ``preexec_fn``
    must not be used in a process with threads.
    """
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None:
        return
    import ctypes  # here, so that only supervised processes spend time on it

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):  # the supervisor ended before the call above
        raise SystemExit(1)
