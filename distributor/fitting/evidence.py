"""What a search knows: its brokers, what was recorded, which layouts were measured. And what it says to try next. Pure.

``layout_search`` acts on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from distributor.fitting.candidates import better_layout
from distributor.fitting.events import Begin, Layout, Missing, Outcome
from distributor.fitting.layout_model import CLEAR, Model, Recording, Refuted
from distributor.fitting.moves import moved
from distributor.fitting.search import layout_for, missing_by_rate, search
from distributor.fitting.transitions import Rules
from distributor.placement.allocation import BrokerCapacity
from distributor.prediction.replay import Latency

_MOST_LAYOUTS = 4  # that are tried: a model that is wrong so often is no help


@dataclass(frozen=True, kw_only=True)
class NoneLeft:
    """No layout of the brokers there are is to be tried. ``missing``: what it would take."""

    missing: Missing | None


@dataclass(frozen=True, kw_only=True)
class Over:
    """The search has an outcome."""

    outcome: Outcome
    reason: str = ""
    missing: Missing | None = None


class Evidence:
    """``task``: with what is known to be too much for a broker; ``brokers``: those that take publishers; ``full``:
    {broker: msg/s that it keeps}, of those that broke another topic's promise; ``tried``: how many layouts were."""

    def __init__(self, rules: Rules, begin: Begin) -> None:
        self.task, self.brokers = begin.task, {broker.name: broker for broker in begin.brokers}
        self.full: dict[str, float] = {}
        self.tried = 0
        self._rules, self._split = rules, begin.split
        self._recordings: list[Recording] = []
        self._refuted: list[Refuted] = []
        self._gave_up: set[str] = set()  # brokers that processed too slowly for the target

    # What was measured

    def learn(self, layout: Layout, latency: Mapping[str, Latency], made: Recording, above: set[str]) -> None:
        """``layout`` was measured and is above the target, at the brokers ``above``. ``made``: what arrived."""
        self._recordings.append(made)
        self._gave_up |= above & self._too_slow(layout)
        self._refuted.append(Refuted(layout=layout, latency=latency))

    def _too_slow(self, layout: Layout) -> set[str]:
        """Brokers whose processing of what arrives breaks the promise, whatever waited for tokens or from before."""
        processed = Model(self.task, self._recordings[-1:], []).predicted(layout).latency
        return {name for name, one in processed.items() if one.processing_ns > CLEAR * self.task.target_ns}

    # What to do next

    def next_layout(self, in_force: Layout) -> Layout | NoneLeft | Over:
        """``in_force``: the layout that others must be better than."""
        brokers = list(self.brokers.values())
        if self.tried >= _MOST_LAYOUTS:
            return NoneLeft(missing=None)
        if not self._recordings:
            return self._by_rates(brokers)
        return self._better_than(in_force, brokers)

    def _by_rates(self, brokers: Sequence[BrokerCapacity]) -> Layout | NoneLeft | Over:
        """While nothing was recorded: section 4.2, steps 1 and 2."""
        layout = layout_for(self.task, brokers, self._split)
        if layout is not None and not self._rules.always:  # whoever has no place gets one there
            return Over(outcome=Outcome.BROKERS_CAME)
        if layout is not None:
            return layout
        return NoneLeft(missing=missing_by_rate(self.task, brokers))

    def _better_than(self, in_force: Layout, brokers: Sequence[BrokerCapacity]) -> Layout | NoneLeft | Over:
        model = self._model
        if burst := model.enough_burst():
            return Over(outcome=Outcome.ONE_BUCKET, missing=Missing(burst=burst))
        if model.serves(model.predicted(in_force)):
            why = "what arrives now would be in time under the layout in force"
            return Over(outcome=Outcome.NO_BETTER, reason=why)
        fewest = search(self.task, brokers, self._recordings, self._refuted, self._split)
        best = better_layout(self.task, in_force, brokers, model, fewest.found, self._split, self._rules.margin)
        if best is None:
            return NoneLeft(missing=fewest.missing)
        if self._rules.may_move:
            return best.layout
        what = f"{moved(in_force, best.layout):,} publishers would move, to {', '.join(best.layout.brokers)}"
        return Over(outcome=Outcome.NO_MOVES, reason=what)

    # Brokers

    def may_be(self, layout: Layout) -> bool:
        """Whether its brokers are there, and none gets more than is known to be too much."""
        full = self.task.full
        return self.brokers.keys() >= set(layout.brokers) and all(
            self.rate_on(layout, name) <= full.get(name, math.inf) for name in layout.brokers
        )

    def give_way(self, broker: str, rate: float) -> None:
        """Another topic's promise broke at ``broker``: it keeps ``rate`` msg/s of this one, and no more."""
        self.full[broker] = rate
        self.task = replace(self.task, full={**self.task.full, broker: rate})

    def overfull(self, layout: Layout) -> list[str]:
        """Brokers where another topic's promise broke, and that have more by ``layout`` than they keep."""
        return [name for name, kept in self.full.items() if self.rate_on(layout, name) > kept]

    def rate_on(self, layout: Layout, broker: str) -> float:
        """Msg/s of the topic."""
        if broker not in layout.brokers:
            return 0.0
        return float(self.task.demand.rates[layout.placement == layout.brokers.index(broker)].sum())

    def all_full(self, in_force: Layout) -> dict[str, float]:
        """``full``, and of those that were too slow what the model says that they can process."""
        full = dict(self.full)
        for name in self._gave_up - full.keys():
            kept = max(self.rate_on(in_force, name), self._model.keepable(name))
            if 0 < kept < float(self.task.demand.rates.sum()):
                full[name] = kept
        return full

    @property
    def _model(self) -> Model:
        return Model(self.task, self._recordings, self._refuted)
