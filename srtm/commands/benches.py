"""What the command line takes from ``bench``: ``srtm demo``, ``srtm bench``, and the measurement of a capacity.

``bench`` is imported inside the functions: its libraries take long to import, and other commands do without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from srtm.client.distributor import DistributorClient
from srtm.console.usage import command_of
from srtm.errors import Unavailable
from srtm.text import figure

if TYPE_CHECKING:
    from srtm.topics.capacity import Capacity, Class
    from srtm.topics.spec import Slo

FORWARDED = {"allow_extra_args": True, "ignore_unknown_options": True}
_FIRST_RATE = 1_000.0  # msg/s


def bench(context: typer.Context) -> int:
    """Run measurements; see srtm bench --help."""
    from bench.commands.main import app

    return _forward(app, "srtm bench", context.args)


def demo(context: typer.Context) -> int:
    """Run the demo, which takes two minutes. 207 sensors on three brokers: spread evenly, and placed by SRTM."""
    from bench.demo.run import app

    return _forward(app, "srtm demo", context.args)


async def measure_capacity(
    client: DistributorClient,
    broker: str,
    slo: Slo,
    traffic: Class,
    *,
    seconds: float,
    highest_rate: float,
    seed: int,
    report: Callable[[str], object],
) -> tuple[Capacity, list[dict[str, Any]]]:
    """Measure the largest rate at which ``broker`` keeps ``slo``, and return it with the steps taken.

    Each step lasts ``seconds``; no step exceeds ``highest_rate`` (msg/s). ``report`` receives one line a step.
    Raises NotFound, Conflict (the broker cannot be measured now), Unavailable (no rate kept the promise).
    """
    from bench.harness.cluster_runs import capacity

    options = capacity.CapacityOptions(
        slo=slo,
        traffic=traffic,
        seconds=seconds,
        first=min(_FIRST_RATE, highest_rate),
        most=highest_rate,
        seed=seed,
    )

    def report_step(step: capacity.Step) -> None:
        report(f"{step.rate:>12,.0f} msg/s: {step.verdict}: {step.why}")

    found = await capacity.measure_capacity(client, broker, options, report_step)
    if found.capacity is None:
        last = found.steps[-1]
        disturbed = "".join(f"; meanwhile {disturbance}" for disturbance in found.disturbed)
        raise Unavailable(
            f"no capacity found for {broker}: {figure(last.rate, 6)} msg/s: {last.verdict} ({last.why}){disturbed}"
        )
    return found.capacity, [asdict(step) for step in found.steps]


def _forward(app: typer.Typer, name: str, arguments: list[str]) -> int:
    status = command_of(app).main(arguments, prog_name=name, standalone_mode=False)
    return status if isinstance(status, int) else 0
