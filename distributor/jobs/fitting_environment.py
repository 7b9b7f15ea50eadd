"""What every fitting needs of the distributor that it runs in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

import trio

from distributor.fitting.events import Scaler
from distributor.jobs.scaling import Scaling
from distributor.registry.registry import Registry
from distributor.sync.measurements import Measurements
from distributor.sync.service import SyncService
from srtm.log import Log


class Claims:
    """Which fitting has which broker for itself, by name of topic.

    Measurements of two fittings on one broker would each see the moves of the other.
    """

    def __init__(self) -> None:
        self._of: dict[str, str] = {}  # {broker: topic}
        self.released = trio.Event()  # set, and replaced, whenever something is

    def held_by_others(self, topic: str) -> set[str]:
        return {broker for broker, owner in self._of.items() if owner != topic}

    def take(self, topic: str, brokers: Collection[str]) -> set[str]:
        """All of them, or none and those that others have."""
        taken = self.held_by_others(topic) & set(brokers)
        if not taken:
            self._of.update(dict.fromkeys(brokers, topic))
        return taken

    def release(self, topic: str) -> None:
        self._of = {broker: owner for broker, owner in self._of.items() if owner != topic}
        self.released.set()
        self.released = trio.Event()


@dataclass(frozen=True, kw_only=True)
class FittingEnvironment:
    """``scaler``: which kind ``scaling`` is."""

    registry: Registry
    syncing: SyncService
    measuring: Measurements
    claims: Claims
    scaler: Scaler
    scaling: Scaling
    log: Log

    @classmethod
    def of(cls, registry: Registry, scaler: Scaler, scaling: Scaling, log: Log) -> Self:
        """Those over ``registry``: nothing asked of its brokers yet, none of them claimed."""
        measuring = Measurements(registry.wake)
        return cls(
            registry=registry,
            syncing=SyncService(registry, measuring.requests),
            measuring=measuring,
            claims=Claims(),
            scaler=scaler,
            scaling=scaling,
            log=log,
        )
