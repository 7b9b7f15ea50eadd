"""What the rounds of a fitting have shown so far, and what follows from it for the next. Pure.

A layout that was lost although what arrived, served as it was, would have been in time, gets one more chance: something
else made it late, which need not last (a machine that stood still, say). What the machine added is believed where a
layout is lost for it twice: one stop in a short round says little of how much there will be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from distributor.fitting.events import Layout, Missing, Split, Task
from distributor.fitting.layout_model import CLEAR, Candidate, Model, Recording, Refuted, key
from distributor.fitting.search import Outcome, by_rates, missing_by_rate, search
from distributor.placement.allocation import BrokerCapacity
from distributor.prediction.replay import Latency


class Evidence:
    def __init__(self) -> None:
        self._recordings: list[Recording] = []
        self._refuted: list[Refuted] = []
        self._doubted: dict[
            object, Recording
        ] = {}  # layouts (``key``) with one more chance: as recorded the first time

    def chances(self, layout: Layout) -> int:
        """That ``layout`` has had and lost."""
        return int(key(layout) in self._doubted)

    def is_doubtful(self, task: Task, layout: Layout, made: Recording) -> bool:
        """Whether that ``layout`` was lost says little of it: ``made`` would have been in time."""
        model = Model(task, [made.without_excess], [])
        return not self.chances(layout) and model.keeps(model.judged(layout), CLEAR)

    def doubt(self, layout: Layout, made: Recording) -> None:
        """It is measured once more."""
        self._doubted[key(layout)] = made

    def refute(self, layout: Layout, latency: Mapping[str, Latency], made: Recording | None) -> None:
        """``layout`` is lost. ``made``: what arrived meanwhile, if anything did."""
        if made is not None:
            before = self._doubted.get(key(layout))
            self._recordings += [made.without_excess] if before is None else [before, made]
        self._refuted.append(Refuted(layout=layout, latency=latency, recorded=made))

    def model(self, task: Task) -> Model | None:
        """None: nothing was recorded."""
        return Model(task, self._recordings, self._refuted) if self._recordings else None

    def next(
        self, task: Task, brokers: Sequence[BrokerCapacity], split: Split, may_be: Callable[[Layout], bool]
    ) -> Outcome | Layout:
        """The layout to try; else why there is none, with the best one that ``may_be``."""
        if self._recordings:
            outcome = search(task, brokers, self._recordings, self._refuted, split)
            return outcome if outcome.found is None else outcome.found.layout
        layout = by_rates(task, brokers, split, self._refuted)
        if layout is not None:
            return layout
        missing = Missing(brokers=1) if self._refuted else missing_by_rate(task, brokers)
        return Outcome(found=None, best=self.best_measured(may_be), missing=missing)

    def best_measured(self, may_be: Callable[[Layout], bool]) -> Candidate | None:
        """Of the layouts that were lost and ``may_be``."""
        measured = [Candidate(layout=one.layout, latency=one.latency) for one in self._refuted if may_be(one.layout)]
        return min(measured, key=lambda one: one.worst_ns, default=None)


def rate_on(task: Task, layout: Layout, broker: str) -> float:
    """Msg/s of the topic that ``broker`` has under ``layout``."""
    if broker not in layout.brokers:
        return 0.0
    return float(task.demand.rates[layout.placement == layout.brokers.index(broker)].sum())


def kept_by(
    task: Task, layout: Layout, gave_up: Collection[str], aborted: Collection[str], model: Model | None
) -> dict[str, float]:
    """{broker: msg/s that it keeps}, of those in ``gave_up``. Where another topic needed it (``aborted``): what it kept
    then. Else what the model says that it can process within the target, and at least what it has under ``layout``;
    one of which neither is known, or that could keep all of the topic, is not full."""
    full = {}
    for name in gave_up:
        kept = rate_on(task, layout, name)
        if name in aborted:
            full[name] = task.full[name]
            continue
        kept = kept if model is None else max(kept, model.keepable(name))
        if 0 < kept < float(task.demand.rates.sum()):
            full[name] = kept
    return full
