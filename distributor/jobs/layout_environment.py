"""What every search for a layout needs of the distributor that it runs in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self, TypeVar

import trio

from distributor.fitting.events import Scaler
from distributor.jobs.scaling import Scaling
from distributor.measuring.measurements import Measurements
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from srtm.concurrency.backoff import Backoff
from srtm.errors import Unavailable
from srtm.log import Log

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class LayoutEnvironment:
    """``scaler``: which kind ``scaling`` is."""

    registry: Registry
    syncing: SyncService
    measuring: Measurements
    scaler: Scaler
    scaling: Scaling
    log: Log

    @classmethod
    def of(cls, registry: Registry, scaler: Scaler, scaling: Scaling, log: Log) -> Self:
        """Those over ``registry``: nothing asked of its brokers yet."""
        measuring = Measurements(registry.wake)
        return cls(
            registry=registry,
            syncing=SyncService(registry, measuring.requests),
            measuring=measuring,
            scaler=scaler,
            scaling=scaling,
            log=log,
        )


async def insist(call: Callable[[], Awaitable[_T]], log: Log) -> _T:
    """Until the store can be reached."""
    backoff, told = Backoff(first_s=0.2, longest_s=5.0), False
    while True:
        try:
            return await call()
        except Unavailable as error:
            if not told:
                log.warning("a search waits", reason=error)
            told = True
            await trio.sleep(backoff.next_s())
