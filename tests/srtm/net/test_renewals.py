"""Files are read again at SIGHUP: each on its own, and a bad one leaves the old in force."""

from __future__ import annotations

import os
import signal

import trio

from srtm.errors import BadInput
from srtm.log import Log
from srtm.net.hangup import renew_at_hangup
from srtm.net.renewals import Renewals


def test_a_bad_file_is_logged_and_the_others_are_still_read() -> None:
    lines: list[str] = []
    taken: list[str] = []

    def bad() -> None:
        raise BadInput("tokens", "/f", "must be a file that can be read (gone)")

    renewals = Renewals(Log("distributor", lines.append))
    renewals.add("tokens", bad)
    renewals.add("certificate", lambda: taken.append("certificate"))
    renewals.take_all()
    assert taken == ["certificate"]
    assert "ERROR: not taken: the old one stays in force renewed=tokens" in lines[0]
    assert "INFO: read again and in force renewed=certificate" in lines[1]


async def test_each_hangup_has_them_read_again() -> None:
    taken: trio.MemorySendChannel[None]
    taken, seen = trio.open_memory_channel[None](9)
    renewals = Renewals(Log("x", lambda _line: None))
    renewals.add("tokens", lambda: taken.send_nowait(None))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(renew_at_hangup, renewals)
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGHUP)
                await seen.receive()
            nursery.cancel_scope.cancel()
