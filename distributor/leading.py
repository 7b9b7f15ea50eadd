"""What runs while a distributor leads: HTTP over the book, the fittings, the relief and the gauge of penalties
beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp

from distributor.api import make_app
from distributor.fitting_setup import FittingOptions
from distributor.fittings import Fittings
from distributor.penalties import PenaltyGauge
from distributor.registry import Registry
from distributor.relieving import Relieving
from distributor.scaler import scaling_of
from distributor.surroundings import Surroundings
from srtm.log import Log

Task = Callable[[], Awaitable[None]]


def leading(registry: Registry, url: str) -> tuple[ASGIApp, Sequence[Task]]:
    """``url``: where this distributor is asked. The tasks are to be run beside the registry."""
    config, log = registry.config, Log("distributor")
    around = Surroundings.of(registry, config.scaler, scaling_of(config, url, registry, log), log)
    fittings = Fittings(around, FittingOptions(method=config.fitting))
    relieving = Relieving(registry, around.syncing, fittings.is_fitting)
    gauge = PenaltyGauge(registry, around.syncing, around.measuring)
    return make_app(registry, around.syncing, fittings=fittings), (fittings.run, relieving.run, gauge.run)
