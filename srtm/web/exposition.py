"""What the ``/metrics`` of all services share: the build, the process, and which series are shown of many.

Imports prometheus-client (50 ms): a broker imports this at its first scrape.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from srtm.version import __version__


def service_metrics(service: str) -> Iterator[Metric]:
    """``srtm_build_info`` of a service, and the usual ``process_*`` of its process."""
    build = {"version": __version__, "service": service, "python": platform.python_version()}
    yield InfoMetricFamily("srtm_build", "Version of the service that answers", value=build)
    yield from ProcessCollector(registry=None).collect()


def left_out(counts: dict[str, int]) -> Metric:
    """How many of each kind have no series of their own, because a setting bounds them: {kind: number}."""
    gauge = GaugeMetricFamily(
        "srtm_metrics_left_out",
        "What has no series of its own: see --metrics-topics, --metrics-contracts",
        labels=["kind"],
    )
    for kind, count in counts.items():
        gauge.add_metric([kind], count)
    return gauge


def family_text(family: Metric) -> bytes:
    """One metric as text."""
    scrape = CollectorRegistry(auto_describe=False)
    scrape.register(_OneFamily(family))
    return generate_latest(scrape)


class _OneFamily(Collector):
    """Collects one metric that is there already."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family
