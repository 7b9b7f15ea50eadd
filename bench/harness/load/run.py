"""One run of the load generator under trio: the plan goes down, progress comes up, a typed result at the end.

The generator is Rust on its own threads; a worker thread waits for it. Cancelling ends the run at once.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any

import msgspec
import numpy as np
import trio
from numpy.typing import NDArray

from bench.harness.load.workload import Plan
from bench.harness.machine.affinity import generator_apart
from bench.harness.machine.host import Disturbance
from srtm._native import LoadGen
from srtm.errors import BadInput, InternalError, Unavailable

PROGRESS_MS = 200  # as often as a person can read


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is. Counts are of measured messages."""

    phase: str  # idle | connecting | warmup | measuring | draining | done | failed
    elapsed_s: float  # since the first intended instant, warm-up included; 0 while connecting
    offered: int
    sent: int
    refused: int
    received: int
    lateness_p99_ms: float
    p99_ms: float


class TargetResult(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's part of a run."""

    target: str  # HOST:PORT, as in the plan and in its order
    topic: str
    offered: int
    sent: int
    acknowledged: int
    refused: int
    received: int
    lost: int
    duplicates: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    histogram: str


class Histograms(msgspec.Struct, frozen=True, kw_only=True):
    """HDR V2 (deflate, base64), ns."""

    latency: str  # intended instant to receipt
    lateness: str  # intended instant to the generator's attempt to send: its own fault
    ack: str  # intended instant to the broker's OK, as the kernel stamped its arrival


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that were meant to be sent in one part of the measured time."""

    start_s: float  # since the measured part began
    length_s: float
    count: int
    max_ms: float
    histogram: str  # as in ``Histograms``


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run, its measured part. ``received``, ``lost`` and ``duplicates`` count copies: one a channel.

    Latencies are 0.0 where nothing was received; such a run is not valid.
    """

    valid: bool
    reasons: list[str]  # why the run says nothing about the brokers; losses and refusals are findings, not reasons
    stopped: bool
    rate: float  # msg/s that the plan asks for
    brokers: int  # addresses that have publishers
    offered: int  # messages that the plan called for
    sent: int  # wholly handed to the kernel
    acknowledged: int
    refused: int  # answered with an error
    received: int
    lost: int  # sent, not refused, not received
    duplicates: int
    foreign: int  # received, but not of this run, or not as sent, or refused before
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    lateness_p99_ms: float
    lateness_max_ms: float
    ack_p50_ms: float
    ack_p99_ms: float
    errors: dict[str, int]  # {code: count}; CONNECTION: broken connections
    error_texts: list[str]  # the first few of each code
    publisher_reconnects: int
    subscriber_reconnects: int
    sender_cpu_s: float
    receiver_cpu_s: float
    targets: list[TargetResult]  # in the order of the plan's
    histograms: Histograms
    measured_from_unix_ns: int  # when the measured part began, wall clock
    timeline: list[Interval]
    each: str = ""  # of ``Plan.keep_each``: base64 of little-endian i64 pairs, intended instant and latency, ns
    steal_s: float = 0.0  # CPU time that the hypervisor gave to others in the measured part, all cores
    steal_share: float = 0.0  # of all cores' time
    throttled_s: float = 0.0  # CPU time that the quota took in the measured part
    throttled_periods: int = 0  # of the quota, those in which it was used up

    def row(self, name: str) -> dict[str, Any]:
        """A flat object of ``runs``; ``errors`` is their number."""
        row = {field: getattr(self, field) for field in self.__struct_fields__ if field not in _NOT_FLAT}
        return {"name": name, **row, "errors": sum(self.errors.values())}


_NOT_FLAT = {"errors", "error_texts", "reasons", "targets", "histograms", "timeline", "each"}


def deliveries(result: RunResult) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(intended instants, on ``time.monotonic_ns``'s clock; latencies), ns, of a run that kept each; in order of
    receipt."""
    pairs = np.frombuffer(base64.b64decode(result.each), dtype="<i8").reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


Listener = Callable[[Plan, RunResult, str], None]
LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)  # hears of each run that has a result


async def run_plan(
    plan: Plan,
    show: Callable[[RunProgress], None] | None = None,
    *,
    name: str = "",
    realtime: bool = False,
    apart: bool = False,
) -> RunResult:
    """Run ``plan`` to its end; ``show`` is called a few times a second. ``name``: what the listener is told, the topic
    if not given; ``realtime``: the generator goes before all ordinary work of the machine; ``apart``: it stays off an
    attacker's processor (``bench.harness.machine.affinity``).

    Raises BadInput for a plan that breaks a rule or a priority that is refused, Unavailable where a broker cannot be
    reached at the start or the system has too few files or threads. Cancelled: the run ends and has no result.
    """
    generator = generator_of(plan)
    meanwhile = Meanwhile(plan.warmup_s)
    try:
        with _realtime() if realtime else nullcontext(), generator_apart() if apart else nullcontext():
            generator.start()
        while not await trio.to_thread.run_sync(partial(generator.wait, PROGRESS_MS), abandon_on_cancel=True):
            now = msgspec.json.decode(generator.progress(), type=RunProgress)
            meanwhile.note(now)
            if show is not None:
                show(now)
        result = msgspec.json.decode(generator.result(), type=RunResult)
    except OSError as error:
        raise Unavailable(str(error)) from error
    except RuntimeError as error:
        raise InternalError(str(error)) from error
    finally:
        generator.stop()
    taken = meanwhile.taken()
    result = msgspec.structs.replace(
        result,
        steal_s=taken.steal_s,
        steal_share=taken.steal_s / taken.processors_s if taken.processors_s else 0.0,
        throttled_s=taken.throttled_s,
        throttled_periods=taken.throttled_periods,
    )
    if (listener := LISTENER.get()) is not None:
        listener(plan, result, name or plan.topic)
    return result


@contextmanager
def _realtime() -> Iterator[None]:
    """Threads that are started inside have a real-time priority (SCHED_FIFO), one more than this one, that of a
    broker's reactor under ``--realtime``: the lowest, unless all of it was started with one (``chrt``). Raises
    BadInput."""
    before, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    above = min(parameters.sched_priority + 1, os.sched_get_priority_max(os.SCHED_FIFO))
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(above))
    except PermissionError:
        raise BadInput("realtime", "true", "needs the capability CAP_SYS_NICE") from None
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, parameters)


class Meanwhile:
    """What others took of the processors in the measured part: connecting thousands of publishers may well use up a
    quota. As exact as progress is looked at often, and rather too long than too short."""

    def __init__(self, warmup_s: float) -> None:
        self._warmup_s = warmup_s
        self._before = Disturbance.now()
        self._after: Disturbance | None = None

    def note(self, now: RunProgress) -> None:
        if now.elapsed_s == 0 or now.elapsed_s < self._warmup_s:  # 0: nothing was to be sent yet
            self._before = Disturbance.now()
        elif now.phase in ("draining", "done") and self._after is None:
            self._after = Disturbance.now()

    def taken(self) -> Disturbance:
        return (self._after or Disturbance.now()).since(self._before)


def check_plan(plan: Plan) -> None:
    """Raises BadInput for a plan that breaks a rule, as ``run_plan`` would."""
    generator_of(plan)


def generator_of(plan: Plan) -> LoadGen:
    """Not started yet. Raises BadInput for a plan that breaks a rule."""
    try:
        return LoadGen(msgspec.json.encode(plan))
    except ValueError as error:
        raise bad_field(error) from error


def bad_field(error: ValueError) -> BadInput:
    """What the generator says of a plan: ``field: value: rule``."""
    field, _, rest = str(error).partition(": ")
    value, _, rule = rest.rpartition(": ")
    return BadInput(field, value, rule)
