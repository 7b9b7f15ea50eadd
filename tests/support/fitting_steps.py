"""A fitting that is carried on event by event: 40 publishers of 1 msg/s, on two brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from distributor.fitting.events import Action, Measure, Place, Placed, Progress, Task
from distributor.fitting.state_machine import BREACH_NS, Fitting
from distributor.model.columns import ALONE, NOWHERE
from distributor.placement.allocation import BrokerCapacity, Demand
from distributor.prediction.replay import Latency, Trace
from distributor.prediction.sequential_test import Intervals

MS = 1_000_000  # ns
SECOND = 1_000_000_000

# With other topics on them.
BUSY = [BrokerCapacity(name="b0", mcap=85.0, allocated=60.0), BrokerCapacity(name="b1", mcap=92.0, allocated=70.0)]

_Kind = TypeVar("_Kind")


def small_task(**more: Any) -> Task:
    demand = Demand(rates=np.ones(40), groups=np.full(40, ALONE), rate=44.0, burst=40.0)
    return Task(demand=demand, percentile=99, target_ns=MS, **more)


def progress(
    action: Measure,
    *,
    late: int = 0,
    blocks: int = 20,
    late_at: Iterable[int] = (),
    others_kept: bool = True,
    final: bool = False,
    worst_ns: int = 0,
    unsent: int = 0,
) -> Progress:
    count = np.ones(blocks, dtype=np.int64)
    is_late = count * late
    is_late[list(late_at)] = 1
    return Progress(
        broker=action.broker,
        round=action.round,
        intervals=Intervals(at=np.arange(blocks) * 2, count=count, late=is_late, latency_ns=count * 1_000),
        latency=Latency(count=blocks, processing_ns=2 * MS * late, total_ns=2 * MS * late),
        others_kept=others_kept,
        others_worst_ns=worst_ns,
        unsent=unsent,
        final=final,
    )


def of_kind(kind: type[_Kind], actions: Iterable[object]) -> list[_Kind]:
    return [action for action in actions if isinstance(action, kind)]


def placed_share(place: Place) -> float:
    return float((place.layout.placement != NOWHERE).mean())


class Climb:
    """A fitting on busy brokers that is carried through the ramp: ``measures`` are those of the step it is at."""

    def __init__(self, task: Task | None = None, brokers: Sequence[BrokerCapacity] = BUSY) -> None:
        self.fitting = Fitting(task or small_task(), brokers)
        self.now_ns = 0
        self.place = of_kind(Place, self.fitting.start(0))[0]
        self.measures = self.confirm(self.place)

    def confirm(self, place: Place) -> list[Measure]:
        return of_kind(Measure, self.fitting.handle(Placed(round=place.round), self.now_ns))

    def step(self) -> None:
        self.now_ns += BREACH_NS
        for measure in self.measures:
            actions = self.fitting.handle(progress(measure), self.now_ns)
        self.place = of_kind(Place, actions)[0]
        self.measures = self.confirm(self.place)

    def tell(self, at: int, **what: Any) -> list[Action]:
        return self.fitting.handle(progress(self.measures[at], **what), self.now_ns)


def at_full(**more: Any) -> Climb:
    """On one empty broker, measuring."""
    climb = Climb(small_task(**more), [BrokerCapacity(name="b0", mcap=0.0), BrokerCapacity(name="b1", mcap=0.0)])
    climb.now_ns = SECOND
    return climb


def bursts(times: int = 20, service_ns: int = 30_000) -> Trace:
    """All 40 fire together, so often: as it is, one broker needs 1.2 ms for them, two 0.6."""
    return Trace(
        publisher=np.tile(np.arange(40), times),
        arrival_ns=np.repeat(np.arange(times) * SECOND, 40),
        service_ns=np.full(40 * times, service_ns, dtype=np.int64),
    )
