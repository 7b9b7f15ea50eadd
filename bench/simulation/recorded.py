"""What real brokers recorded of a layout, and the simulation of the same arrivals. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.harness.cluster_runs.trace import Trace
from bench.simulation.brokers import Delays, Ints, Machine, Share, Tail, serve
from bench.simulation.traffic import SECOND_NS, Fleet
from srtm.errors import InternalError


@dataclass(frozen=True, kw_only=True)
class Layout:
    """``shares``: of each broker, micro-messages; one without publishers has none and is not started."""

    fleet: Fleet
    placement: Ints
    shares: Sequence[Share]
    lab_us: float = 0.0  # the laboratory's service time; 0: none

    @property
    def used(self) -> list[int]:
        """Brokers that have publishers."""
        return [at for at in range(len(self.shares)) if (self.placement == at).any()]


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one broker recorded, from its first message on. ``first``: the first message that counts."""

    share: Share
    batch: int
    publishers: int
    arrival_ns: Ints  # from the first message
    access_ns: Ints
    processing_ns: Ints
    first: int

    @property
    def measured(self) -> Delays:
        return Delays(access_ns=self.access_ns[self.first :], processing_ns=self.processing_ns[self.first :])

    def simulated(self, machine: Machine, rng: np.random.Generator) -> Delays:
        """The same arrivals, through a broker in numbers."""
        found = serve(self.arrival_ns, self.share, machine, batch=self.batch, publishers=self.publishers, rng=rng)
        return Delays(access_ns=found.access_ns[self.first :], processing_ns=found.processing_ns[self.first :])


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """``reasons``: why it does not count; ``late_max_ms``: how late the generator ever was; ``intended_ns``: when the
    measured messages were meant to be sent, in order, where that was kept."""

    parts: list[Part]
    cpu_us: float  # of the brokers' processes, a message
    reasons: list[str]
    late_max_ms: float = 0.0
    intended_ns: Ints | None = None

    @property
    def measured(self) -> Tail:
        return Tail.of([part.measured for part in self.parts])

    def simulated(self, machine: Machine, seed: int) -> Tail:
        return Tail.of(self.replayed(machine, seed))

    def replayed(self, machine: Machine, seed: int) -> list[Delays]:
        """The same arrivals, by broker."""
        rng = np.random.default_rng([seed, 0xA])
        return [part.simulated(machine, rng) for part in self.parts]


def recorded(
    layout: Layout, traces: Sequence[Trace], *, warm_up_s: float, cpu_us: float, reasons: Sequence[str]
) -> Recorded:
    """``traces``: of the used brokers, in order. Raises InternalError for one that is not at its end."""
    begun_ns = min(int(trace.arrival_ns[0]) for trace in traces) + round(warm_up_s * SECOND_NS)
    parts = [_part(layout, at, trace, begun_ns) for at, trace in zip(layout.used, traces, strict=True)]
    return Recorded(parts=parts, cpu_us=cpu_us, reasons=list(reasons))


def _part(layout: Layout, at: int, trace: Trace, begun_ns: int) -> Part:
    if (trace.sent_ns == 0).any():
        raise InternalError("a run is over and a message was not sent")
    return Part(
        share=layout.shares[at],
        batch=layout.fleet.batch,
        publishers=int(np.count_nonzero(layout.placement == at)),
        arrival_ns=trace.arrival_ns - trace.arrival_ns[0],
        access_ns=trace.access_ns,
        processing_ns=np.maximum(trace.sent_ns - trace.due_ns, 0),
        first=int(np.searchsorted(trace.arrival_ns, begun_ns)),
    )
