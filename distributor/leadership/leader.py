"""What runs while a distributor leads: its HTTP application, and the jobs beside the registry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp

from distributor.api.app import make_app
from distributor.config import DistributorConfig
from distributor.fitting.task import FittingOptions
from distributor.fitting.transitions import Rules
from distributor.jobs.layout_environment import LayoutEnvironment
from distributor.jobs.layout_jobs import LayoutJobs
from distributor.jobs.penalty_gauge import PenaltyGauge
from distributor.jobs.promise_watch import PromiseWatch
from distributor.jobs.scaling import scaling_of
from distributor.jobs.split_loop import split_loop
from distributor.page.observer import Observer
from distributor.registry.registry import Registry
from srtm.log import Log

Task = Callable[[], Awaitable[None]]


def leader_app(registry: Registry, url: str) -> tuple[ASGIApp, Sequence[Task]]:
    """The application, and the tasks to run beside the registry. ``url``: of this distributor."""
    config, log = registry.config, Log("distributor")
    around = LayoutEnvironment.of(registry, config.scaler, scaling_of(config, url, registry.state, log), log)
    layouts = LayoutJobs(around, FittingOptions(method=config.fitting), rules_of(config))
    gauge = PenaltyGauge(registry, around.syncing, around.measuring)
    watch = PromiseWatch(registry, around.syncing)
    splitting = split_loop(registry, around.syncing.histories, around.syncing.split_owner, log)
    observer = Observer(registry, around.syncing)
    tasks = (layouts.run, gauge.run, watch.run, splitting.run, observer.run)
    return make_app(registry, around.syncing, layouts=layouts, observer=observer), tasks


def rules_of(config: DistributorConfig) -> Rules:
    """The settings of layout loops."""
    return Rules(
        may_move=config.relief,
        grace_s=config.fitting_grace_s,
        moves=config.fitting_moves,
        cool_down_s=config.fitting_cool_down_s,
    )
