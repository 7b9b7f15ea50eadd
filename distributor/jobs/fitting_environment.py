"""What every fitting needs of the distributor that it runs in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from distributor.fitting.events import Scaler
from distributor.jobs.claims import Claims
from distributor.jobs.scaling import Scaling
from distributor.registry.registry import Registry
from distributor.sync.measurements import Measurements
from distributor.sync.service import SyncService
from srtm.log import Log


@dataclass(frozen=True, kw_only=True)
class Surroundings:
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
        measuring = Measurements(registry.stir)
        return cls(
            registry=registry,
            syncing=SyncService(registry, measuring.requests),
            measuring=measuring,
            claims=Claims(),
            scaler=scaler,
            scaling=scaling,
            log=log,
        )
