"""What the distributor knows, as immutable values, and what follows from them. Pure.

``registry`` holds one ``Broker`` a name and one ``Topic`` a name, replaces them whole, and stores each replacement
before anybody is told of it. What is only observed (reports, when a broker was heard last) is not here: it need not
survive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from distributor.model.leases import MICRO, NOTHING, Holding, Leases
from distributor.placement.quotas import NOWHERE, Ints
from srtm.token_bucket.dispersion import traffic_of
from srtm.token_bucket.fitted_split import Traffic
from srtm.topics.publishers import Publishers
from srtm.topics.spec import TopicSpec


@dataclass(frozen=True, kw_only=True)
class Broker:
    """One incarnation of a broker, as it presented itself."""

    name: str
    incarnation: str
    srtm_version: str
    tcp_address: str
    http_address: str
    mcap: float  # msg/s; 0: not stated
    accepting: bool
    dead: bool = False  # there is proof that this incarnation ended

    @property
    def directory(self) -> str:
        """The data directory that it holds the lock of, as named in the incarnation."""
        return self.incarnation.partition("-")[2]


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """Where a topic's publishers are. ``at[i]`` is the broker of publisher i as an index into ``brokers``, or
    NOWHERE. ``refined``: (r_l, b_l) of each broker, micro, where a fitting has found a better split for just this
    placement than any formula (``refining``)."""

    publishers: Publishers
    brokers: tuple[str, ...]
    at: Ints
    refined: tuple[tuple[int, int], ...] = ()

    @cached_property
    def assigned(self) -> dict[str, float]:
        """{broker: msg/s of its publishers}."""
        there = self.at != NOWHERE
        sums = np.bincount(self.at[there], weights=self.publishers.rates[there], minlength=len(self.brokers))
        return dict(zip(self.brokers, sums.tolist(), strict=True))

    @cached_property
    def traffic(self) -> dict[str, Traffic]:
        """{broker: what its publishers send}."""
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
        """Msg/s of publishers that have no place."""
        return float(self.publishers.rates[self.at == NOWHERE].sum())

    @property
    def state(self) -> Literal["placed", "partial", "waiting"]:
        if len(self.publishers) and not self.brokers:
            return "waiting"
        return "placed" if (self.at != NOWHERE).all() else "partial"

    def broker_of(self, publisher_id: str) -> str | None:
        i = self.publishers.positions.get(publisher_id)
        return None if i is None or self.at[i] == NOWHERE else self.brokers[self.at[i]]

    def moved_from(self, old: Placement) -> dict[str, float]:
        """{broker of ``old``: msg/s of its publishers that had a place there, and have another one now}."""
        before = old.at
        if self.publishers.ids != old.publishers.ids:
            known = old.publishers.positions
            was = [known.get(name, NOWHERE) for name in self.publishers.ids]
            before = np.append(old.at, NOWHERE)[np.array(was, dtype=np.int64)]
        index = {name: at for at, name in enumerate(self.brokers)}
        now = np.array([*(index.get(name, len(index)) for name in old.brokers), NOWHERE], dtype=np.int64)
        moved = (before != NOWHERE) & (self.at != NOWHERE) & (now[before] != self.at)
        sums = np.bincount(before[moved], weights=self.publishers.rates[moved], minlength=len(old.brokers))
        return {name: rate for name, rate in zip(old.brokers, sums.tolist(), strict=True) if rate > 0}

    def moved(self, to: Mapping[str, str]) -> Placement:
        """With the publishers in ``to`` on other brokers: {publisher: broker}."""
        names = list(dict.fromkeys([*self.brokers, *to.values()]))
        at = self.at.copy()
        for publisher_id, broker in to.items():
            at[self.publishers.positions[publisher_id]] = names.index(broker)
        used = np.bincount(at[at != NOWHERE], minlength=len(names)) > 0
        renumbered = np.append(np.where(used, np.cumsum(used) - 1, NOWHERE), NOWHERE)  # the last is NOWHERE's
        brokers = tuple(name for name, is_used in zip(names, used.tolist(), strict=True) if is_used)
        return Placement(publishers=self.publishers, brokers=brokers, at=renumbered[at])

    def held(self, without: Collection[str] = ()) -> list[str | None]:
        """Each publisher's broker; None for those on the brokers in ``without``."""
        names = [None if name in without else name for name in self.brokers]
        return [None if at == NOWHERE else names[at] for at in self.at.tolist()]


@dataclass(frozen=True, kw_only=True, eq=False)
class Topic:
    """A topic as submitted, where it is, and who holds which share of it. ``removed`` ones are kept for their
    ``leases`` alone."""

    spec: TopicSpec
    version: int  # of the spec
    placement: Placement
    assignment_version: int  # of the placement; also that of "no share here"
    leases: Leases  # of a removed topic: what brokers may still have in force
    reasons: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    removed: bool = False
    purged: bool = False  # its queued messages were to go too
    # {broker: {where they belong ("": they are on the way there): msg/s of publishers that publish here all the same}}
    astray: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def burst(self) -> float:
        """b, messages; what "auto" came to."""
        return self.leases.envelope.burst / MICRO

    def holding(self, broker: str) -> Holding:
        """What ``broker`` was issued last; nothing, as of the placement, if it never was."""
        return self.leases.holdings.get(broker) or Holding(self.assignment_version, NOTHING, NOTHING)

    @property
    def extra(self) -> tuple[str, ...]:
        """Brokers that have a share for publishers that the topic does not name."""
        placed = {*self.placement.brokers, *self.astray}
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
    """An entry of the decision log."""

    number: int  # counts up per topic
    wall_ns: int
    lines: tuple[str, ...]
