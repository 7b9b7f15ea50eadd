"""The specification of a topic, as its operator writes it.

Only the ``parse_`` functions make a ``TopicSpec``, so it is always valid. Every refusal is one ``BadInput`` that names
field, value and rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator

from srtm.errors import BadInput
from srtm.protocol import TOPIC_RULE, is_topic
from srtm.topics.adaptation import Adaptation, Mode
from srtm.topics.contract_names import ContractNames, ContractsTable, contract_names
from srtm.topics.lease import KEEP, lease_ms
from srtm.topics.mqtt_names import MqttNames, MqttTable, mqtt_names
from srtm.topics.options import AdaptationTable, checked, read_options, table_of
from srtm.topics.publisher_blocks import read_blocks, read_change
from srtm.topics.publishers import Publishers, PublisherSpec, join
from srtm.topics.schema import Schema, parsed
from srtm.units import LARGEST, from_micro, to_micro

__all__ = [
    "PublisherSpec",
    "Publishers",
    "Slo",
    "TopicSpec",
    "parse_change",
    "parse_options",
    "parse_topic_json",
]

PERCENTILES = (50, 90, 95, 99, 99.9)
LEAST_LATENCY_MS = 1e-6  # 1 ns, the unit in which brokers count
LONGEST_LATENCY_MS = 86_400_000  # a day
LONGEST_BURST_S = 60.0  # a minute of r: that on which a promise is judged

Burst = float | Literal["auto", "paper"]
Split = Literal["fitted", "proportional"]
Strategy = Literal["srtm", "maxmin", "conc", "lb"]


@dataclass(frozen=True, kw_only=True)
class Slo:
    """The promise: ``percentile`` per cent of the messages arrive within ``latency_ms``, end to end."""

    percentile: float  # one of PERCENTILES
    latency_ms: float

    @property
    def latency_ns(self) -> int:
        """The latency in ns."""
        return round(self.latency_ms * 1e6)


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """A valid topic. ``rate`` and ``burst`` are multiples of 1e-6."""

    name: str
    rate: float  # r, msg/s; at least the publishers' load
    burst: Burst  # b, messages, at least 1; or a rule: "auto" (``srtm.token_bucket.kept_minutes``) or "paper"
    slo: Slo
    publishers: Publishers
    max_burst_s: float = 1.0  # the most that "auto" may take, in seconds of r
    on_excess: Literal["delay", "reject"] = "delay"
    mode: Mode = "fitted"
    adaptation: Adaptation = field(default_factory=Adaptation)
    lease: str = KEEP  # or a length, "15s"
    placement: Strategy = "srtm"
    split: Split = "fitted"
    seed: int = 1  # of the random order in which lb, conc and maxmin place publishers
    mqtt: MqttNames = field(default_factory=MqttNames)
    contracts: ContractNames = field(default_factory=ContractNames)

    @property
    def lease_ms(self) -> int | None:
        """How long a share lasts if it is not renewed, ms; None: for ever."""
        return lease_ms(self.lease)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is valid but probably a mistake."""
        if isinstance(self.burst, str) or self.publishers.largest_batch <= self.burst:
            return ()
        return (f"{self.publishers.describe_largest_batch()}: with a burst of {self.burst:g} some of them always wait",)

    def to_json(self) -> dict[str, object]:
        """Return the document that ``parse_topic_json`` turns into this spec."""
        return {
            "name": self.name,
            "rate": self.rate,
            "burst": self.burst,
            "max_burst_s": self.max_burst_s,
            "on_excess": self.on_excess,
            "mode": self.mode,
            "adaptation": table_of(self.adaptation),
            "lease": self.lease,
            "placement": self.placement,
            "split": self.split,
            "seed": self.seed,
            "mqtt": self.mqtt.to_json(),
            "contracts": self.contracts.to_json(),
            "slo": {"percentile": self.slo.percentile, "latency_ms": self.slo.latency_ms},
            "publishers": [self.publishers.to_json()] if len(self.publishers) else [],
        }


def _topic_name(value: str) -> str:
    if not is_topic(value):
        raise ValueError(TOPIC_RULE)
    return value


def _lease(value: str) -> str:
    lease_ms(value)
    return value


def _percentile(value: float) -> float:
    if value not in PERCENTILES:
        raise ValueError(f"must be one of {', '.join(f'{known:g}' for known in PERCENTILES)}")
    return value


def _burst(value: object) -> Burst:
    if value == "auto" or value == "paper":
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= LARGEST:  # false for NaN too
        raise ValueError(f'must be a number of messages from 1 to {LARGEST:,.0f}, "auto" or "paper"')
    return float(value)


_BurstShape = (
    Annotated[float, Field(ge=1, le=LARGEST)] | Literal["auto", "paper"]
)  # the type of ``_burst`` for JSON Schema
LatencyMs = Annotated[float, Field(ge=LEAST_LATENCY_MS, le=LONGEST_LATENCY_MS, allow_inf_nan=False)]


class SloTable(Schema):
    """The promise of a topic."""

    percentile: Annotated[float, AfterValidator(_percentile)]
    latency_ms: LatencyMs


class TopicTable(Schema):
    """A topic's document; its publishers are checked separately. ``parse_topic_json`` turns it into a ``TopicSpec``."""

    name: Annotated[str, AfterValidator(_topic_name)]
    rate: Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
    burst: Annotated[Burst, PlainValidator(_burst, json_schema_input_type=_BurstShape)]
    max_burst_s: Annotated[float, Field(gt=0, le=LONGEST_BURST_S, allow_inf_nan=False)] = 1.0
    on_excess: Literal["delay", "reject"] = "delay"
    mode: Mode = "fitted"
    adaptation: AdaptationTable = Field(default_factory=AdaptationTable)
    lease: Annotated[str, AfterValidator(_lease)] = KEEP
    placement: Strategy = "srtm"
    split: Split = "fitted"
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 1
    mqtt: MqttTable = Field(default_factory=MqttTable)
    contracts: ContractsTable = Field(default_factory=ContractsTable)
    slo: SloTable
    publishers: list[Any] = Field(default_factory=list)


def parse_topic_json(document: object) -> TopicSpec:
    """Read the spec of a decoded JSON document. Raises BadInput."""
    topic = parsed(TopicTable, document)
    rate = from_micro(to_micro(topic.rate, "rate"))
    burst: Burst = topic.burst if isinstance(topic.burst, str) else from_micro(to_micro(topic.burst, "burst"))
    choices = {
        key: getattr(topic, key) for key in ("max_burst_s", "on_excess", "mode", "lease", "placement", "split", "seed")
    }
    publishers = join(read_blocks(topic.publishers))
    slo = Slo(percentile=topic.slo.percentile, latency_ms=topic.slo.latency_ms)
    choices["adaptation"] = checked(topic.adaptation, Adaptation())
    choices["mqtt"] = mqtt_names(topic.mqtt, topic.name)
    choices["contracts"] = contract_names(topic.contracts)
    return _checked(TopicSpec(name=topic.name, rate=rate, burst=burst, slo=slo, publishers=publishers, **choices))


def parse_change(spec: TopicSpec, body: object) -> TopicSpec:
    """Return ``spec`` after the change ``{"add": [...], "remove": [id, ...]}`` of its publishers.

    Raises BadInput, NotFound (an unknown id to remove).
    """
    add, remove = read_change(body)
    return _checked(replace(spec, publishers=spec.publishers.changed(add, remove)))


def parse_options(spec: TopicSpec, body: object) -> TopicSpec:
    """Return ``spec`` changed by ``{"mode", "split", "adaptation": {...}}``; missing keys stay. Raises BadInput."""
    options, table = read_options(body)
    return _checked(replace(spec, **options, adaptation=checked(table, spec.adaptation)))


def _checked(spec: TopicSpec) -> TopicSpec:
    load = spec.publishers.load
    if load > spec.rate * (1 + 1e-9):  # the sum of floats is not exact
        raise BadInput("rate", spec.rate, f"must be at least the publishers' rates, which sum to {load:.10g} msg/s")
    if spec.mode == "gdrl" and spec.lease_ms is not None:
        rule = 'must be "keep" under mode "gdrl": brokers that need no distributor cannot renew a lease'
        raise BadInput("lease", spec.lease, rule)
    if spec.on_excess == "reject" and not isinstance(spec.burst, str) and spec.publishers.largest_batch > spec.burst:
        largest = spec.publishers.describe_largest_batch()
        raise BadInput("burst", spec.burst, f"must be at least the largest batch: {largest}, always rejected otherwise")
    return spec
