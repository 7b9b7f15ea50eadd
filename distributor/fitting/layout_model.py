"""What a topic's recorded rounds say of layouts that were not tried. Pure.

Every prediction is a replay (``prediction.replay``), for each broker by the service times that were measured on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distributor.fitting.events import Layout, Task
from distributor.placement.retention import fair_order, most_kept
from distributor.prediction.replay import (
    Delays,
    Latency,
    Trace,
    delays,
    enough_burst_micro,
    joined,
    latency,
    processing_ns,
)
from srtm.units import MICRO

# Of the target: what is predicted closer to it could hardly be told from it by a measurement.
CLEAR = 0.96
_DRAINS = 0.9  # of a broker's time: what has queued up must drain, too
_LEAST_LEFT = 0.01  # of a server: other topics may take all of it


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One round, all publishers: service times in ``trace`` are those of a typical broker."""

    trace: Trace
    service_ns: Mapping[str, float]  # {broker: mean over the messages}, of those that took part

    @property
    def typical_ns(self) -> float:
        return sum(self.service_ns.values()) / len(self.service_ns)


def recording(traces: Mapping[str, Trace]) -> Recording | None:
    """``traces``: {broker: what arrived there}, on one clock. None if nothing arrived anywhere."""
    heard = {name: trace for name, trace in traces.items() if len(trace)}
    if not heard:
        return None
    means = {name: float(trace.service_ns.mean()) for name, trace in heard.items()}
    typical = sum(means.values()) / len(means)
    alike = joined([trace.slower(typical / means[name] if means[name] else 1.0) for name, trace in heard.items()])
    return Recording(trace=alike, service_ns=means)


@dataclass(frozen=True, kw_only=True)
class Refuted:
    """A layout that was measured and found above the target."""

    layout: Layout
    latency: Mapping[str, Latency]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    layout: Layout
    latency: Mapping[str, Latency]  # predicted; of a refuted layout: measured

    @property
    def worst_ns(self) -> int:
        """A topic is judged per broker, and the worst decides."""
        return max((one.total_ns for one in self.latency.values()), default=0)


def key(layout: Layout) -> tuple[object, ...]:
    """Equal for layouts that are the same to their brokers, whichever members of a group are where."""
    return layout.brokers, layout.shares_micro, np.bincount(layout.placement + 1).tobytes()


class Model:
    """``recordings``: at least one."""

    def __init__(self, task: Task, recordings: Sequence[Recording], refuted: Sequence[Refuted]) -> None:
        self._task = task
        self._recordings = recordings
        self._service_ns = {name: took for one in recordings for name, took in one.service_ns.items()}
        self._refuted = {key(one.layout): one for one in refuted}
        self._kept: dict[float, float] = {}  # {mean service time, ns; -1 where unknown: msg/s}

    def is_refuted(self, layout: Layout) -> bool:
        return key(layout) in self._refuted

    def knows(self, brokers: Iterable[str]) -> bool:
        """Whether service times were measured on all of them."""
        return self._service_ns.keys() >= set(brokers)

    def judged(self, layout: Layout) -> Candidate:
        """As measured, if it was measured; else as predicted."""
        measured = self._refuted.get(key(layout))
        if measured is not None:
            return Candidate(layout=layout, latency=measured.latency)
        return self.predicted(layout)

    def predicted(self, layout: Layout) -> Candidate:
        """By a replay of what was recorded."""
        found: dict[str, list[Delays]] = {name: [] for name in layout.brokers}
        for one in self._recordings:
            parts = one.trace.by_broker(layout.placement, len(layout.brokers))
            for name, part, share in zip(layout.brokers, parts, layout.shares_micro, strict=True):
                found[name].append(delays(part.slower(self._times_slower(name, one)), share))
        percentile = self._task.percentile
        return Candidate(layout=layout, latency={name: latency(parts, percentile) for name, parts in found.items()})

    def keeps(self, candidate: Candidate, part: float = 1.0) -> bool:
        return candidate.worst_ns <= part * self._task.target_ns

    def serves(self, candidate: Candidate) -> bool:
        """Whether it clearly keeps the promise, with time for queues to drain."""
        return self.keeps(candidate, CLEAR) and self.utilization(candidate.layout) <= _DRAINS

    def utilization(self, layout: Layout) -> float:
        """Of the busiest broker: the part of the time that what arrived would take of it."""
        busy_ns, span_ns = np.zeros(len(layout.brokers)), 0
        for one in self._recordings:
            span_ns += int(one.trace.arrival_ns[-1] - one.trace.arrival_ns[0])
            for at, part in enumerate(one.trace.by_broker(layout.placement, len(layout.brokers))):
                busy_ns[at] += float(part.service_ns.sum()) * self._times_slower(layout.brokers[at], one)
        return float(busy_ns.max() / max(span_ns, 1))

    def keepable(self, name: str) -> float:
        """Msg/s of the topic that ``name`` can process within the target, in proportion from every group: the number
        that the paper searches for by halving on the wire. Access delay is not its part: that need not fall with the
        number kept."""
        service_ns = self._service_ns.get(name, -1.0)
        if service_ns not in self._kept:
            self._kept[service_ns] = self._keepable(name)
        return self._kept[service_ns]

    def _keepable(self, name: str) -> float:
        rates, groups = self._task.demand.rates, self._task.demand.groups
        order = fair_order(np.arange(len(rates)), groups)
        traces = [one.trace.slower(self._times_slower(name, one)) for one in self._recordings]

        def keeps(count: int) -> bool:
            chosen = np.zeros(len(rates), dtype=np.bool_)
            chosen[order[:count]] = True
            parts = [trace.of(chosen) for trace in traces]
            took_ns = np.concatenate([processing_ns(part) for part in parts])
            late = int(np.count_nonzero(took_ns > CLEAR * self._task.target_ns))
            return late <= (1 - self._task.percentile / 100) * len(took_ns)

        return float(rates[order[: most_kept(len(order), keeps)]].sum())

    def enough_burst(self) -> float:
        """b, messages; 0 if the topic's own is enough for one bucket."""
        rate_micro, traces = round(self._task.demand.rate * MICRO), [one.trace for one in self._recordings]
        enough = enough_burst_micro(traces, rate_micro, self._task.percentile, self._task.target_ns) / MICRO
        return enough if enough > self._task.demand.burst else 0.0

    def _times_slower(self, name: str, one: Recording) -> float:
        """Than what is in the recording. A broker of which nothing is known is taken for a typical one.

        Other topics take their part of a server: of rho, ours sees one that takes 1 / (1 - rho) times as long.
        """
        typical, others = one.typical_ns, self._task.others
        if not typical:
            return 1.0
        if not others:
            return self._service_ns.get(name, typical) / typical
        alone = [took / (1 + others.get(at, 0.0) * took / 1e9) for at, took in one.service_ns.items()]
        own = self._service_ns.get(name)
        busy = others.get(name, 0.0) / 1e9  # a nanosecond
        own = sum(alone) / len(alone) if own is None else own / (1 + busy * own)
        return own / max(1 - busy * own, _LEAST_LEFT) / typical
