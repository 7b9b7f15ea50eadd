"""The capacity of a broker: the rate that it carries within a promise, measured or stated. Pure.

Capacity depends on the promise and on the traffic class (section 6.3 of the main paper), so each figure is stored with
both. For another promise or class the nearest figure that is at least as hard counts; it can only be too low.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from srtm.errors import BadInput
from srtm.topics.publishers import MOST, Process, Publishers
from srtm.topics.schema import Schema, parsed
from srtm.topics.spec import LEAST_LATENCY_MS, LONGEST_LATENCY_MS, PERCENTILES, LatencyMs, Slo
from srtm.units import LARGEST

Source = Literal["bench", "operator"]
LimitedBy = Literal["broker", "generator", "other topics", "the highest rate asked for"]
_LONGEST_TEXT = 500
_PERCENTILE_RULE = f"must be one of {', '.join(f'{known:g}' for known in PERCENTILES)}"
_SLO = re.compile(r"p([0-9]+(?:\.[0-9]+)?):([0-9]+(?:\.[0-9]+)?)ms", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Class:
    """The class of traffic that a capacity holds for."""

    process: Process = "poisson"
    batch: int = 1  # messages sent at once
    publishers: int = 100  # number of senders


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine that a capacity was measured on."""

    cores: int
    kernel: str
    cpu: str  # model


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """A capacity: ``mcap`` is the largest rate of all topics together, msg/s, that keeps ``slo`` for ``traffic``."""

    mcap: float
    slo: Slo
    traffic: Class
    measured: str = ""  # ISO 8601, UTC; "": an operator stated it without a time
    source: Source = "operator"
    machine: Machine | None = None  # None: not known
    beside: float = 0.0  # rate of other topics during the measurement, msg/s; mcap includes it
    limited_by: LimitedBy = "broker"
    lab_service_time_ns: int = 0  # simulated service time of the broker
    disturbed: tuple[str, ...] = ()  # CPU time that others took from the broker during the measurement

    @property
    def key(self) -> tuple[Slo, Class]:
        """What identifies a capacity: promise and traffic class. A broker has one capacity for each."""
        return self.slo, self.traffic

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``parse_capacity`` turns into this value."""
        plain = asdict(self)
        return {**plain.pop("traffic"), **plain, "disturbed": list(self.disturbed)}


def parse_slo(text: str) -> Slo:
    """Parse a promise such as ``p99:1ms``. Raises BadInput."""
    parts = _SLO.fullmatch(text)
    if parts is None:
        raise BadInput("slo", text, "must be a percentile and a latency, like p99:1ms")
    slo = Slo(percentile=float(parts[1]), latency_ms=float(parts[2]))
    if slo.percentile not in PERCENTILES:
        raise BadInput("slo", text, f"the percentile {_PERCENTILE_RULE}")
    if not LEAST_LATENCY_MS <= slo.latency_ms <= LONGEST_LATENCY_MS:
        raise BadInput("slo", text, f"the latency must be from {LEAST_LATENCY_MS:g} to {LONGEST_LATENCY_MS:,} ms")
    return slo


def class_of(publishers: Publishers) -> Class:
    """Return the traffic class of a topic's publishers: Poisson if any of them is, and the largest batch."""
    return Class(
        process="periodic" if publishers.all_periodic else "poisson",
        batch=publishers.largest_batch,
        publishers=max(1, len(publishers)),
    )


def capacity_for(measured: Iterable[Capacity], slo: Slo, traffic: Class) -> Capacity | None:
    """Return the nearest capacity that was measured for at least as hard a promise and class, else the smallest.

    None: nothing was measured.
    """
    known = list(measured)
    harder = [capacity for capacity in known if _as_hard(capacity, slo, traffic)]
    if harder:
        return min(harder, key=lambda capacity: (_distance(capacity, slo, traffic), capacity.mcap))
    return min(known, key=lambda capacity: capacity.mcap, default=None)


def effective_mcap(stated: float, measured: Sequence[Capacity], asked: Iterable[tuple[Slo, Class]]) -> float:
    """Return the capacity of a broker for its topics, msg/s; 0: nothing is known.

    ``asked``: promise and class of each topic that the broker has or shall get. The hardest topic decides; without
    topics, the smallest figure. ``stated``: the operator's upper limit, msg/s; 0: none.
    """
    if not measured:
        return stated
    found = [capacity_for(measured, slo, traffic) for slo, traffic in asked] or list(measured)
    figures = [capacity.mcap for capacity in found if capacity is not None] + ([stated] if stated else [])
    return min(figures, default=0.0)


def _as_hard(capacity: Capacity, slo: Slo, traffic: Class) -> bool:
    stricter = capacity.slo.percentile >= slo.percentile and capacity.slo.latency_ms <= slo.latency_ms
    same_process = capacity.traffic.process in ("poisson", traffic.process)
    return stricter and same_process and capacity.traffic.batch >= traffic.batch


def _distance(capacity: Capacity, slo: Slo, traffic: Class) -> float:
    """Return how far a capacity is from a promise and class: the sum of logarithms of ratios, 0 if they are equal."""
    late = (100 - slo.percentile) / (100 - capacity.slo.percentile)
    ratios = (
        slo.latency_ms / capacity.slo.latency_ms,
        late,
        capacity.traffic.batch / traffic.batch,
        capacity.traffic.publishers / traffic.publishers,
        1.0 if capacity.traffic.process == traffic.process else 2.0,
    )
    return sum(abs(math.log(ratio)) for ratio in ratios)


def _percentile(value: float) -> float:
    if value not in PERCENTILES:
        raise ValueError(_PERCENTILE_RULE)
    return value


_Text = Annotated[str, Field(max_length=_LONGEST_TEXT)]


class SloTable(Schema):
    """The promise of a capacity."""

    percentile: Annotated[float, AfterValidator(_percentile)]
    latency_ms: LatencyMs


class MachineTable(Schema):
    """The machine that a capacity was measured on."""

    cores: Annotated[int, Field(ge=1, le=2**31)]
    kernel: _Text
    cpu: _Text


class CapacityTable(Schema):
    """The document of ``PUT .../capacity``. ``parse_capacity`` turns it into a ``Capacity``."""

    mcap: Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
    slo: SloTable
    process: Process = "poisson"
    batch: Annotated[int, Field(ge=1, le=2**31)] = 1
    publishers: Annotated[int, Field(ge=1, le=MOST)] = 100
    measured: Annotated[str, Field(max_length=40)] = ""
    source: Source = "operator"
    machine: MachineTable | None = None
    beside: Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)] = 0.0
    limited_by: LimitedBy = "broker"
    lab_service_time_ns: Annotated[int, Field(ge=0, le=10**10)] = 0
    disturbed: Annotated[list[_Text], Field(max_length=20)] = Field(default_factory=list)


def parse_capacity(document: object) -> Capacity:
    """Turn a decoded JSON document into a ``Capacity``. Raises BadInput."""
    made = parsed(CapacityTable, document)
    machine = made.machine
    return Capacity(
        mcap=made.mcap,
        slo=Slo(percentile=made.slo.percentile, latency_ms=made.slo.latency_ms),
        traffic=Class(process=made.process, batch=made.batch, publishers=made.publishers),
        measured=made.measured,
        source=made.source,
        machine=None if machine is None else Machine(cores=machine.cores, kernel=machine.kernel, cpu=machine.cpu),
        beside=made.beside,
        limited_by=made.limited_by,
        lab_service_time_ns=made.lab_service_time_ns,
        disturbed=tuple(made.disturbed),
    )
