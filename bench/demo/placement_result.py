"""What one placement of the demo's topic came to: figures made of the assignments, the generator's result and the
brokers' traces; and what makes the demo fail. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from bench.data.sensors import publisher_id, read_detectors
from bench.harness.cluster_runs.placed_run import penalty_of
from bench.harness.cluster_runs.trace import Trace
from bench.harness.load.run import RunResult
from bench.harness.results.intervals import percentile_ms
from bench.harness.results.plot import Promise
from srtm.client.distributor import Json


@dataclass(frozen=True)
class BrokerPart:
    """One broker's part of the topic: its publishers, its sub-bucket, and what its messages waited for."""

    broker: str
    publishers: int = 0
    together: int = 0  # members of the largest part of one correlation group: they fire at one instant
    rate: float = 0.0  # r_l, msg/s
    burst: float = 0.0  # b_l, messages
    access_p99_ms: float = 0.0
    p99_ms: float = 0.0  # end to end


@dataclass(frozen=True)
class Side:
    """One placement, measured. Latencies are end to end unless they say access."""

    placement: str
    parts: list[BrokerPart]  # every broker of the cluster, also one that has nothing
    places: list[str]  # broker of each detector, in the order of the file
    sent: int
    received: int
    lost: int
    duplicates: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    lateness_p99_ms: float
    access_p99_ms: float  # of all messages together; the verdict is by the worst broker
    one_bucket_p99_ms: float  # access delay had the same arrivals met one (r, b)
    penalty_ms: float  # DRL penalty, mean a message
    histogram: str
    reasons: list[str]  # why the run does not count

    @property
    def brokers(self) -> int:
        return sum(part.publishers > 0 for part in self.parts)

    @property
    def access_worst_p99_ms(self) -> float:
        return max(part.access_p99_ms for part in self.parts)

    @property
    def worst_p99_ms(self) -> float:
        """The promise is judged by broker, and the worst decides."""
        return max(part.p99_ms for part in self.parts)

    def kept(self, promise: Promise) -> bool:
        return self.worst_p99_ms <= promise.latency_ms

    def row(self, promise: Promise) -> dict[str, object]:
        """A flat object of ``runs``."""
        plain = {key: value for key, value in asdict(self).items() if key not in ("parts", "places", "reasons")}
        judged = {"access_worst_p99_ms": self.access_worst_p99_ms, "worst_p99_ms": self.worst_p99_ms}
        state = {"kept": self.kept(promise), "valid": not self.reasons, "reasons": self.reasons}
        return {"name": self.placement, "brokers": self.brokers, **plain, **judged, **state}

    def part_rows(self) -> list[dict[str, object]]:
        return [{"name": self.placement, **asdict(part)} for part in self.parts]


def together(assignments: Json) -> Counter[str]:
    """{broker: members of the largest part of one correlation group there}: what arrives at one instant."""
    parts = Counter(zip(assignments["brokers"], assignments["groups"], strict=True))
    largest: Counter[str] = Counter()
    for (broker, _), members in parts.items():
        largest[broker] = max(largest[broker], members)
    return largest


def side_of(
    placement: str, view: Json, assignments: Json, result: RunResult, measured: dict[str, Trace], brokers: Sequence[str]
) -> Side:
    """``measured``: traces of the measured part, by broker; ``brokers``: all of the cluster, in the order of the plan's
    targets.
    """
    places = {place["broker"]: place for place in view["brokers"]}
    heads: Counter[str] = Counter(assignments["brokers"])
    groups = together(assignments)
    parts = [
        BrokerPart(
            broker=broker,
            publishers=heads[broker],
            together=groups[broker],
            rate=places[broker]["rate"],
            burst=places[broker]["burst"],
            access_p99_ms=percentile_ms(measured[broker].access_ns, 99),
            p99_ms=target.p99_ms,
        )
        if broker in measured
        else BrokerPart(broker)
        for broker, target in zip(brokers, result.targets, strict=True)
    ]
    cost = penalty_of(view, measured)
    return Side(
        placement=placement,
        parts=parts,
        places=places_of_detectors(assignments),
        sent=result.sent,
        received=result.received,
        lost=result.lost,
        duplicates=result.duplicates,
        p50_ms=result.p50_ms,
        p95_ms=result.p95_ms,
        p99_ms=result.p99_ms,
        p999_ms=result.p999_ms,
        lateness_p99_ms=result.lateness_p99_ms,
        access_p99_ms=percentile_ms(np.concatenate([trace.access_ns for trace in measured.values()]), 99),
        one_bucket_p99_ms=cost.one.p99_ns / 1e6,
        penalty_ms=cost.mean_ns / 1e6,
        histogram=result.histograms.latency,
        reasons=result.reasons,
    )


def places_of_detectors(assignments: Json) -> list[str]:
    """Broker of each detector, in the order of the detectors' file."""
    broker = dict(zip(assignments["ids"], assignments["brokers"], strict=True))
    return [broker[publisher_id(detector)] for detector in read_detectors()]


def shortcomings(lb: Side, srtm: Side) -> list[str]:
    """Why the demo failed; empty: every message arrived, the runs count, and SRTM waits no longer than lb."""
    found = [f"{side.placement} does not count: {reason}" for side in (lb, srtm) for reason in side.reasons]
    found += [f"{side.placement}: {side.lost} messages were lost" for side in (lb, srtm) if side.lost]
    if srtm.access_worst_p99_ms > lb.access_worst_p99_ms:
        found.append(
            f"SRTM's p99 access delay is above that of lb: {srtm.access_worst_p99_ms:.2f} ms, "
            f"{lb.access_worst_p99_ms:.2f} ms (try another --seed: a short run is a small sample)"
        )
    return found
