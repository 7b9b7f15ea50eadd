"""What runs while a distributor leads: its HTTP application, and the jobs beside the registry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp

from distributor.api.app import make_app
from distributor.fitting.task import FittingOptions
from distributor.jobs.fitting_environment import FittingEnvironment
from distributor.jobs.fitting_manager import FittingManager
from distributor.jobs.penalty_gauge import PenaltyGauge
from distributor.jobs.promise_watch import PromiseWatch
from distributor.jobs.relief import ReliefJob
from distributor.jobs.scaling import scaling_of
from distributor.registry.registry import Registry
from srtm.log import Log

Task = Callable[[], Awaitable[None]]


def leader_app(registry: Registry, url: str) -> tuple[ASGIApp, Sequence[Task]]:
    """The application, and the tasks to run beside the registry. ``url``: of this distributor."""
    config, log = registry.config, Log("distributor")
    around = FittingEnvironment.of(registry, config.scaler, scaling_of(config, url, registry.state, log), log)
    fittings = FittingManager(around, FittingOptions(method=config.fitting))
    relieving = ReliefJob(registry, around.syncing, fittings.is_fitting)
    gauge = PenaltyGauge(registry, around.syncing, around.measuring)
    watch = PromiseWatch(registry, around.syncing)
    return make_app(registry, around.syncing, fittings=fittings), (fittings.run, relieving.run, gauge.run, watch.run)
