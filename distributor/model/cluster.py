"""The values of the cluster state: brokers, topics and their placements. Pure, immutable.

The registry holds one ``Broker`` and one ``Topic`` a name. It replaces them whole, and stores each replacement before
it tells any broker. What is only observed (reports, the time of the last sync) is not here: it need not survive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from distributor.model.columns import NOWHERE, Ints
from distributor.model.leases import MICRO, NOTHING, Holding, Leases
from srtm.token_bucket.dispersion import traffic_of
from srtm.token_bucket.fitted_split import Traffic
from srtm.topics.publishers import Publishers
from srtm.topics.spec import TopicSpec

# {broker: {home: msg/s of publishers that publish at the broker and belong to home}}; home "": in transit to their home
Misplaced = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Broker:
    """One incarnation of a broker, as it describes itself."""

    name: str
    incarnation: str
    srtm_version: str
    tcp_address: str
    http_address: str
    mcap: float  # msg/s; 0: not stated
    accepting: bool
    dead: bool = False  # there is proof that this incarnation ended
    claims: tuple[str, ...] | None = None  # what it alone can hold (``SyncRequest.claims``); None: it says nothing

    @property
    def directory(self) -> str:
        """The data directory whose lock it holds; the incarnation names it."""
        return self.incarnation.partition("-")[2]


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """Which publisher of a topic is assigned to which broker.

    ``at[i]``: the broker of publisher i as an index into ``brokers``, or NOWHERE.
    """

    publishers: Publishers
    brokers: tuple[str, ...]
    at: Ints

    @cached_property
    def assigned(self) -> dict[str, float]:
        """{broker: msg/s of its publishers}."""
        placed = self.at != NOWHERE
        sums = np.bincount(self.at[placed], weights=self.publishers.rates[placed], minlength=len(self.brokers))
        return dict(zip(self.brokers, sums.tolist(), strict=True))

    @cached_property
    def traffic(self) -> dict[str, Traffic]:
        """{broker: traffic of its publishers}."""
        return dict(zip(self.brokers, traffic_of(self.publishers, self.at, len(self.brokers)), strict=True))

    @cached_property
    def ids_of(self) -> dict[str, list[str]]:
        """{broker: ids of its publishers, in the order of the topic}."""
        order = np.argsort(self.at, kind="stable")
        ends = np.searchsorted(self.at[order], np.arange(len(self.brokers) + 1))
        ids = [self.publishers.ids[i] for i in order.tolist()]
        return {name: ids[ends[at] : ends[at + 1]] for at, name in enumerate(self.brokers)}

    @cached_property
    def missing(self) -> float:
        """Msg/s of publishers without a place."""
        return float(self.publishers.rates[self.at == NOWHERE].sum())

    @property
    def state(self) -> Literal["placed", "partial", "waiting"]:
        """ "placed", "partial" (some publishers have no place) or "waiting" (none has)."""
        if len(self.publishers) and not self.brokers:
            return "waiting"
        return "placed" if (self.at != NOWHERE).all() else "partial"

    def broker_of(self, publisher_id: str) -> str | None:
        """None: it has no place, or the topic does not name it."""
        i = self.publishers.positions.get(publisher_id)
        return None if i is None or self.at[i] == NOWHERE else self.brokers[self.at[i]]

    def moved_from(self, old: Placement) -> dict[str, float]:
        """{broker of ``old``: msg/s of the publishers that have left it for another broker}."""
        before = self._moves_from(old)
        moved = before != NOWHERE
        sums = np.bincount(before[moved], weights=self.publishers.rates[moved], minlength=len(old.brokers))
        return {name: rate for name, rate in zip(old.brokers, sums.tolist(), strict=True) if rate > 0}

    def count_moved_from(self, old: Placement) -> int:
        """How many publishers have left a broker of ``old`` for another one."""
        return int((self._moves_from(old) != NOWHERE).sum())

    def _moves_from(self, old: Placement) -> Ints:
        """The broker in ``old`` of each publisher that has left it for another broker, else NOWHERE."""
        before = old.at
        if self.publishers.ids != old.publishers.ids:
            known = old.publishers.positions
            indices = [known.get(name, NOWHERE) for name in self.publishers.ids]
            before = np.append(old.at, NOWHERE)[np.array(indices, dtype=np.int64)]
        index = {name: at for at, name in enumerate(self.brokers)}
        new_index = np.array([*(index.get(name, len(index)) for name in old.brokers), NOWHERE], dtype=np.int64)
        moved = (self.at != NOWHERE) & (new_index[before] != self.at)
        return np.where(moved, before, NOWHERE)

    def moved(self, to: Mapping[str, str]) -> Placement:
        """With publishers on other brokers. ``to``: {publisher: broker}."""
        names = list(dict.fromkeys([*self.brokers, *to.values()]))
        at = self.at.copy()
        for publisher_id, broker in to.items():
            at[self.publishers.positions[publisher_id]] = names.index(broker)
        used = np.bincount(at[at != NOWHERE], minlength=len(names)) > 0
        renumbered = np.append(np.where(used, np.cumsum(used) - 1, NOWHERE), NOWHERE)  # the last is NOWHERE's
        brokers = tuple(name for name, is_used in zip(names, used.tolist(), strict=True) if is_used)
        return Placement(publishers=self.publishers, brokers=brokers, at=renumbered[at])

    def held(self, without: Collection[str] = ()) -> list[str | None]:
        """The broker of each publisher; None for those without a place, or on the brokers in ``without``."""
        names = [None if name in without else name for name in self.brokers]
        return [None if at == NOWHERE else names[at] for at in self.at.tolist()]


@dataclass(frozen=True, kw_only=True, eq=False)
class Topic:
    """A topic: its spec, its placement and its shares. A removed topic is kept for its leases alone."""

    spec: TopicSpec
    version: int  # of the spec
    placement: Placement
    assignment_version: int  # of the placement; also of "no share here"
    leases: Leases  # of a removed topic: what brokers may still have in force
    reasons: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    removed: bool = False
    purged: bool = False  # its queued messages were to go too
    misplaced: Misplaced = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def burst(self) -> float:
        """b, messages; what "auto" came to."""
        return self.leases.envelope.burst / MICRO

    def holding(self, broker: str) -> Holding:
        """What ``broker`` was issued last; nothing, under ``assignment_version``, if it never was."""
        return self.leases.holdings.get(broker) or Holding(self.assignment_version, NOTHING, NOTHING)

    @property
    def extra_brokers(self) -> tuple[str, ...]:
        """Brokers without declared publishers that have a share for undeclared ones."""
        placed = {*self.placement.brokers, *self.misplaced}
        return tuple(name for name in self.leases.target if name not in placed)


@dataclass(frozen=True, kw_only=True)
class FittingRecord:
    """How a topic is being fitted, or how that ended."""

    topic: str
    running: bool  # whoever leads next begins it again
    method: str
    rounds_s: float
    outcome: str  # JSON, as it is shown


@dataclass(frozen=True, kw_only=True)
class Decision:
    """An entry of a topic's decision log."""

    number: int  # counts up per topic
    wall_ns: int
    lines: tuple[str, ...]
