"""Closed loops: how much a broker carries. A ``FloodPlan`` goes down to ``srtm._native.Flood``, a typed result comes
up.

No latencies: a loop that waits for answers sends less where the broker is slow, and so would report too little.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import trio

from bench.harness.load.run import bad_field
from srtm._native import Flood
from srtm.errors import InternalError, Unavailable

POLL_MS = 100
LIMIT_S = 120.0
BATCH = 200  # nsqd's own benchmark: MPUB of 200 messages of 200 bytes, one outstanding a connection
MESSAGE_SIZE = 200
RDY = 2500


class Publish(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="publish"):
    """``messages`` in MPUBs of ``batch``, one outstanding on each connection."""

    topic: str
    messages: int
    connections: int = 2  # as many as there are cores here, which nsqd's benchmark takes
    batch: int = BATCH
    message_size: int = MESSAGE_SIZE


class Read(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="read"):
    """One consumer takes the ``messages`` that a ``Publish`` left. ``buffered``: the broker may collect output as it
    does by default."""

    topic: str
    channel: str
    messages: int
    rdy: int = RDY
    buffered: bool = True


class FanOut(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="fan_out"):
    """One publisher, a consumer on each of ``channels``; at most ``window`` messages and a batch are on their way."""

    topic: str
    channels: int
    duration_s: float
    batch: int = BATCH
    window: int = 2 * BATCH
    message_size: int = MESSAGE_SIZE
    rdy: int = RDY
    warmup_s: float = 0.5


class Ping(msgspec.Struct, frozen=True, tag_field="what", tag="ping"):
    """``GET /ping``."""


class Pub(msgspec.Struct, frozen=True, tag_field="what", tag="pub"):
    """``POST /pub``."""


class Mpub(msgspec.Struct, frozen=True, tag_field="what", tag="mpub"):
    """``POST /mpub`` of ``batch`` messages, a line each."""

    batch: int


class Http(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="http"):
    """Requests on keep-alive connections, one outstanding on each."""

    asks: Ping | Pub | Mpub
    topic: str
    connections: int
    duration_s: float
    message_size: int = 100
    warmup_s: float = 0.5


class Connect(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="connect"):
    """Connections that greet and stay. ``yielding``: the thread that makes them lets every other go first
    (SCHED_IDLE; of a process in real time, the lowest priority there)."""

    connections: int
    at_once: int = 256
    yielding: bool = False


class FloodPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Made by benches, read by ``srtm._native.Flood`` (as JSON)."""

    target: str  # HOST:PORT; HTTP's for Http
    task: Publish | Read | FanOut | Http | Connect
    limit_s: float = LIMIT_S


class FloodResult(msgspec.Struct, frozen=True, kw_only=True):
    """``count`` (messages acknowledged, received or delivered; requests; connections) took ``elapsed_s``."""

    count: int
    elapsed_s: float
    cpu_s: float  # of the flooding thread: near elapsed_s, the flood was the limit and not the broker
    started_ns: int  # monotonic clock
    ended_ns: int
    intact: bool  # what came is what was sent, each once

    @property
    def per_s(self) -> float:
        return self.count / self.elapsed_s

    @property
    def busy(self) -> float:
        """Share of the time for which the flooding thread had a processor."""
        return self.cpu_s / self.elapsed_s


async def run_flood(plan: FloodPlan) -> FloodResult:
    """Run ``plan`` to its end. Raises BadInput for a plan that breaks a rule, Unavailable where the broker cannot be
    reached, breaks off or does not let it end within its limit."""
    async with held_flood(plan) as result:
        return result


@asynccontextmanager
async def held_flood(plan: FloodPlan) -> AsyncIterator[FloodResult]:
    """As ``run_flood``; connections that stay do so until the block ends."""
    flood = _flood(plan)
    try:
        yield await _result(flood)
    finally:
        flood.stop()


async def _result(flood: Flood) -> FloodResult:
    try:
        flood.start()
        while not await trio.to_thread.run_sync(partial(flood.wait, POLL_MS), abandon_on_cancel=True):
            pass
        return msgspec.json.decode(flood.result(), type=FloodResult)
    except OSError as error:
        raise Unavailable(str(error)) from error
    except RuntimeError as error:
        raise InternalError(str(error)) from error


def _flood(plan: FloodPlan) -> Flood:
    try:
        return Flood(msgspec.json.encode(plan))
    except ValueError as error:
        raise bad_field(error) from error
