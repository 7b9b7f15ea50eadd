"""A layout loop that is led to a search, and one event by event: 40 publishers of 1 msg/s, on two brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from bench.simulation.fleet import Fleet, fits_from
from distributor.fitting.events import (
    Action,
    Begin,
    Layout,
    Measure,
    Place,
    Progress,
    Report,
    Seen,
    Split,
    Task,
)
from distributor.fitting.layout_loop import ALWAYS, LayoutLoop
from distributor.fitting.search import proportional
from distributor.fitting.transitions import Rules
from distributor.model.columns import ALONE
from distributor.placement.allocation import BrokerCapacity, Demand
from distributor.prediction.replay import Latency, Trace
from distributor.prediction.sequential_test import Intervals

MS = 1_000_000  # ns
SECOND = 1_000_000_000
ON_BREACH = Rules()
BROKEN, KEPT = Seen(promise="broken", heard=True), Seen(promise="kept", heard=True)

_Kind = TypeVar("_Kind")


def of_kind(kind: type[_Kind], actions: Iterable[object]) -> list[_Kind]:
    return [action for action in actions if isinstance(action, kind)]


def small_task(**more: Any) -> Task:
    demand = Demand(rates=np.ones(40), groups=np.full(40, ALONE), rate=44.0, burst=40.0)
    return Task(demand=demand, percentile=99, target_ns=MS, **more)


def laid_out(task: Task, homes: dict[str, Sequence[int]], split: Split = proportional) -> Layout:
    """``homes``: {broker: indices of its publishers}."""
    placement = np.full(len(task.demand.rates), -1)
    for at, members in enumerate(homes.values()):
        placement[list(members)] = at
    shares = tuple(split(task.demand, placement, len(homes)))
    return Layout(brokers=tuple(homes), placement=placement, shares_micro=shares)


def two_empty() -> list[BrokerCapacity]:
    return [BrokerCapacity(name="b0", mcap=0.0), BrokerCapacity(name="b1", mcap=0.0)]


def queued(rules: Rules = ON_BREACH) -> LayoutLoop:
    """Its promise has been broken for the grace."""
    loop = LayoutLoop(rules)
    loop.handle(BROKEN, 0)
    loop.handle(BROKEN, round(rules.grace_s * SECOND))
    return loop


def fit_on(
    fleet: Fleet,
    task: Task,
    rules: Rules = ALWAYS,
    in_force: Layout | None = None,
    brokers: Sequence[BrokerCapacity] | None = None,
) -> tuple[LayoutLoop, Report]:
    """A search on ``fleet`` to its end; under on-breach after a promise that was broken for the grace."""
    begin = Begin(task=task, brokers=brokers or fleet.capacities, split=proportional, in_force=in_force)
    loop = LayoutLoop(rules) if rules.always else queued(rules)
    actions = fits_from(loop, begin, fleet.now_ns) if rules.always else loop.handle(begin, fleet.now_ns)
    return loop, fleet.fit(loop, actions)


def progress(
    action: Measure,
    *,
    late: int = 0,
    blocks: int = 200,
    others_kept: bool = True,
    final: bool = False,
    total_ns: int = 2 * MS,
    unsent: int = 0,
) -> Progress:
    """``late``: 1, all of the ``blocks`` messages; 0, none."""
    count = np.ones(blocks, dtype=np.int64)
    return Progress(
        broker=action.broker,
        round=action.round,
        intervals=Intervals(at=np.arange(blocks) * 2, count=count, late=count * late, latency_ns=count * 1_000),
        latency=Latency(count=blocks, processing_ns=total_ns * late, total_ns=total_ns * late),
        others_kept=others_kept,
        unsent=unsent,
        final=final,
    )


def bursts(service_ns: int, times: int = 20, publishers: Sequence[int] = range(40)) -> Trace:
    """All fire together, so often."""
    return Trace(
        publisher=np.tile(np.array(publishers), times),
        arrival_ns=np.repeat(np.arange(times) * SECOND, len(publishers)),
        service_ns=np.full(len(publishers) * times, service_ns, dtype=np.int64),
    )


class Played:
    """A loop whose brokers are played: ``actions`` are the latest, ``now_ns`` the time."""

    def __init__(self, loop: LayoutLoop, begin: Begin) -> None:
        self.loop, self.now_ns = loop, 100 * SECOND
        self.actions: list[Action] = loop.handle(begin, self.now_ns)

    def tell(self, event: Any, after_s: float = 0.0) -> list[Action]:
        self.now_ns += round(after_s * SECOND)
        self.actions = self.loop.handle(event, self.now_ns)
        return self.actions

    @property
    def measures(self) -> list[Measure]:
        return of_kind(Measure, self.actions)

    @property
    def place(self) -> Place:
        return of_kind(Place, self.actions)[0]
