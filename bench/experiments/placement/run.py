"""A run of ``srtm bench placement``: what was asked, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from bench.harness.cluster_runs.placed_run import penalty_of
from bench.harness.cluster_runs.trace import Trace, percentile_ms
from bench.harness.load.run import RunResult
from srtm.client.distributor import Json

PERCENTILE, PROMISE_MS = 99, 5.0
PUBLISHERS = 1_000
MCAP = 10_000.0  # msg/s
RESERVED = (7_500.0, 7_500.0, 7_000.0, 7_000.0, 6_500.0, 500.0)  # msg/s on each broker, largest first: each its own
SERVICE_US = 30.0  # of the laboratory: 33,000 msg/s a broker


@dataclass(frozen=True)
class Scale:
    """``publishers``, and all that is in proportion to them. ``why``: how their number came about, for people."""

    publishers: int
    why: str = ""

    @property
    def times(self) -> float:
        return self.publishers / PUBLISHERS

    @property
    def mcap(self) -> float:
        return MCAP * self.times

    @property
    def reserved(self) -> list[float]:
        return [rate * self.times for rate in RESERVED]

    @property
    def service_us(self) -> float:
        return SERVICE_US / self.times


@dataclass(frozen=True)
class Workload:
    process: str
    batch: int

    @property
    def name(self) -> str:
        return f"{self.process}-{self.batch}"


@dataclass(frozen=True)
class Side:
    """One way to place, and to split."""

    name: str
    placement: str
    split: str = "proportional"


_ALL = [Workload(process, batch) for process in ("poisson", "periodic") for batch in (1, 10)]
WORKLOADS = {one.name: one for one in _ALL}
SIDES = (*(Side(name, name) for name in ("lb", "conc", "maxmin", "srtm")), Side("srtm, fitted", "srtm", "fitted"))


@dataclass(frozen=True, kw_only=True)
class PlacementRun:
    """One workload placed one way. Delays are of the worst broker at the percentile, where they say nothing else."""

    workload: str
    side: str
    brokers: int
    assigned: list[float]  # msg/s of each
    burst: float  # b of the topic
    sent: int
    received: int
    lost: int
    duplicates: int
    p50_ms: float  # end to end, all messages
    p99_ms: float
    p999_ms: float
    worst_p99_ms: float  # end to end
    access_p99_ms: float
    processing_p99_ms: float
    predicted_access_p99_ms: float | None  # by the explanation of the submission, which knows the process only
    replayed_access_p99_ms: float  # of the instants at which it was meant to be sent, by the rule of the bucket
    penalty_sum_ms: float  # Proposition 1: never negative
    penalty_mean_ms: float  # a message
    penalty_p99_ms: float
    one_bucket_p99_ms: float
    lateness_p99_ms: float
    histogram: str
    reasons: list[str] = field(default_factory=list)  # why it does not count

    @property
    def kept(self) -> bool:
        return self.worst_p99_ms <= PROMISE_MS

    def row(self) -> dict[str, Any]:
        return {"name": f"{self.workload}, {self.side}", **asdict(self), "kept": self.kept, "valid": not self.reasons}


def shortcomings(runs: Sequence[PlacementRun]) -> list[str]:
    """What must not be: a run that does not count, a message lost, SRTM with a larger penalty than lb."""
    found = [f"{run.workload}, {run.side}: {reason}" for run in runs for reason in run.reasons]
    found += [f"{run.workload}, {run.side}: {run.lost} messages were lost" for run in runs if run.lost]
    by_name = {(run.workload, run.side): run for run in runs}
    for workload in dict.fromkeys(run.workload for run in runs):
        lb, srtm = by_name[workload, "lb"], by_name[workload, "srtm"]
        if srtm.penalty_mean_ms > lb.penalty_mean_ms:
            found.append(f"{workload}: SRTM's DRL penalty is not below that of lb")
    return found


def run_of(
    workload: Workload,
    side: Side,
    view: Json,
    result: RunResult,
    measured: dict[str, Trace],
    predicted_ms: float | None,
    replayed_ms: float,
) -> PlacementRun:
    """``measured``: traces of the measured part, by broker."""
    cost = penalty_of(view, measured)
    return PlacementRun(
        workload=workload.name,
        side=side.name,
        brokers=len(measured),
        assigned=[place["rate_assigned"] for place in view["brokers"]],
        burst=view["burst"],
        sent=result.sent,
        received=result.received,
        lost=result.lost,
        duplicates=result.duplicates,
        p50_ms=result.p50_ms,
        p99_ms=result.p99_ms,
        p999_ms=result.p999_ms,
        worst_p99_ms=max(target.p99_ms for target in result.targets),
        access_p99_ms=max(percentile_ms(trace.access_ns, PERCENTILE) for trace in measured.values()),
        processing_p99_ms=max(_processing_ms(trace) for trace in measured.values()),
        predicted_access_p99_ms=predicted_ms,
        replayed_access_p99_ms=replayed_ms,
        penalty_sum_ms=cost.sum_ns / 1e6,
        penalty_mean_ms=cost.mean_ns / 1e6,
        penalty_p99_ms=cost.p99_ns / 1e6,
        one_bucket_p99_ms=cost.one.p99_ns / 1e6,
        lateness_p99_ms=result.lateness_p99_ms,
        histogram=result.histograms.latency,
        reasons=list(result.reasons),
    )


def _processing_ms(trace: Trace) -> float:
    sent = trace.sent_ns > 0
    return percentile_ms(np.maximum(trace.sent_ns[sent] - trace.due_ns[sent], 0), PERCENTILE)
