"""Signals, and what clients see of them."""

from __future__ import annotations

import signal

from tests.interop.drop_in.session import Play, Sessions

SESSIONS = Sessions()


async def _ended_by(play: Play, *signals: int) -> None:
    idle = await play.connect("idle")
    await idle.say(b"PUB other\n\0\0\0\1x")
    consumer = await play.subscriber("consumer", "t", ready=1)
    play.transcript.note("status", await play.node.stop(*signals))
    await idle.rest()
    await consumer.rest()


@SESSIONS.add("SIGTERM", alone=True)
async def terminate(play: Play) -> None:
    await _ended_by(play, signal.SIGTERM)


@SESSIONS.add("SIGINT", alone=True)
async def interrupt(play: Play) -> None:
    await _ended_by(play, signal.SIGINT)


@SESSIONS.add("SIGTERM twice", alone=True)
async def terminate_twice(play: Play) -> None:
    await _ended_by(play, signal.SIGTERM, signal.SIGTERM)


@SESSIONS.add("SIGINT, then SIGTERM", alone=True)
async def both(play: Play) -> None:
    await _ended_by(play, signal.SIGINT, signal.SIGTERM)


@SESSIONS.add("SIGTERM under a connection that has said nothing", alone=True)
async def terminate_under_silence(play: Play) -> None:
    silent = await play.connect("silent", b"")
    play.transcript.note("status", await play.node.stop())
    await silent.abort()


@SESSIONS.add("SIGHUP", alone=True)
async def hang_up(play: Play) -> None:
    """nsqd does not look out for it."""
    await _ended_by(play, signal.SIGHUP)
