"""What runs while a distributor leads: HTTP over the book, the fittings, the relief and the gauge of penalties
beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp

from distributor.api import make_app
from distributor.claims import Claims
from distributor.fitting_run import Surroundings
from distributor.fitting_setup import FittingOptions
from distributor.fittings import Fittings
from distributor.measuring import Measuring
from distributor.penalties import PenaltyGauge
from distributor.registry import Registry
from distributor.relieving import Relieving
from distributor.scaler import scaling_of
from distributor.syncing import Syncing
from srtm.log import Log

Task = Callable[[], Awaitable[None]]


def leading(registry: Registry, url: str) -> tuple[ASGIApp, Sequence[Task]]:
    """``url``: where this distributor is asked. The tasks are to be run beside the registry."""
    config, log = registry.config, Log("distributor")
    measuring = Measuring(registry.stir)
    syncing = Syncing(registry, measuring.requests)

    around = Surroundings(
        registry=registry,
        syncing=syncing,
        measuring=measuring,
        claims=Claims(),
        scaler=config.scaler,
        scaling=scaling_of(config, url, registry, log),
        log=log,
    )
    fittings = Fittings(around, FittingOptions(method=config.fitting))
    relieving = Relieving(registry, syncing, fittings.is_fitting)
    gauge = PenaltyGauge(registry, syncing, measuring)
    return make_app(registry, syncing, fittings=fittings), (fittings.run, relieving.run, gauge.run)
