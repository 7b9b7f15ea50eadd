"""SIGHUP: a service reads its files again."""

from __future__ import annotations

import signal

import trio

from srtm.net.renewals import Renewals


async def renew_at_hangup(renewals: Renewals, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Have ``renewals`` taken at each SIGHUP, until cancelled. Call it in the main thread."""
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            renewals.take_all()
