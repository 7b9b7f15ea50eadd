"""A scenario file (TOML, docs/benchmarking.md): what ``srtm bench run`` sends where, and the promise that it judges.

Every refusal names the field as the file has it, the value and the rule. Rules about single numbers that the load
generator has anyway are its own (``bench.harness.load.workload``): what it refuses is told under the file's names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from bench.harness.load.run import check_plan
from bench.harness.load.workload import Plan, Subscriber, joined
from bench.harness.systems.peer_servers import ALL
from bench.scenarios.traffic import Block, read_block
from srtm.errors import BadInput
from srtm.net.address import parse_peer
from srtm.protocol import NAME_RULE, is_name
from srtm.toml_text import read_toml
from srtm.topics.schema import Schema, parsed

_PLACEHOLDER = "127.0.0.1:0"  # until the broker to start has an address
_NO_PROMISE_MS = 0.0  # then the generator's lateness is judged by the latency that it finds alone
_DEFAULT_PERCENTILE = 99.0


class Promise(Schema):
    """``latency_ms`` at ``percentile``, of every topic."""

    percentile: Annotated[float, Field(gt=0, lt=100)] = _DEFAULT_PERCENTILE
    latency_ms: Annotated[float, Field(gt=0, le=3_600_000)]


class _Topic(Schema):
    name: str
    channels: Annotated[list[str], Field(min_length=1)] = Field(default_factory=lambda: ["bench"])
    subscribers: Annotated[int, Field(ge=1, le=10_000)] = 1
    rdy: Annotated[int, Field(ge=1, le=2**31 - 1)] = 2500
    publishers: Annotated[list[Any], Field(min_length=1)]


class _Document(Schema):
    protocol: Literal["nsq", "nats", "mqtt", "redis"] | None = None
    qos: Literal[0, 1, 2] = 0
    address: str | None = None
    start: Literal["srtm", "nsqd", "nats", "mosquitto", "redis"] | None = None
    duration_s: Annotated[float, Field(ge=0.001, le=86_400)] | None = None
    warmup_s: Annotated[float, Field(ge=0, le=86_400)] = 1.0
    drain_s: Annotated[float, Field(ge=0, le=86_400)] = 5.0
    message_size: Annotated[int, Field(ge=32, le=1 << 20)] = 100
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1
    topics: Annotated[list[Any], Field(min_length=1)]
    promise: Any = None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """``name`` is the file's, without its ending. One of ``address`` and ``start`` (a broker of its own) is there."""

    name: str
    address: str | None
    start: str | None
    promise: Promise | None
    settings: dict[str, Any]  # the file's keys, as overridden
    _plan: Plan  # for whatever address

    @property
    def percentile(self) -> float:
        """That the run is judged by."""
        return self._plan.percentile

    @property
    def seed(self) -> int:
        return self._plan.seed

    @property
    def duration_s(self) -> float:
        return self._plan.duration_s

    @property
    def phases(self) -> str:
        """How long it will take, for people."""
        plan = self._plan
        return (
            f"{plan.warmup_s:g} s of warm-up, {plan.duration_s:g} s measured, "
            f"at most {plan.drain_s:g} s for what is still on its way"
        )

    def plan(self, address: str) -> Plan:
        return msgspec.structs.replace(self._plan, targets=[address] * len(self._plan.targets))


def read_scenario(path: Path, *, seed: int | None = None, seconds: float | None = None) -> Scenario:
    """``seed`` and ``seconds`` replace what the file says. Raises BadInput."""
    overrides = {"seed": seed, "duration_s": seconds}
    document = _read(path) | {key: value for key, value in overrides.items() if value is not None}
    return scenario(path.stem, document, path.parent)


def scenario(name: str, document: dict[str, Any], folder: Path) -> Scenario:
    """``folder``: where relative paths begin. Raises BadInput."""
    wanted = parsed(_Document, document)
    _check_where(wanted)
    protocol = _protocol(wanted)
    topics = _topics(wanted.topics, protocol)
    promise = None if wanted.promise is None else parsed(Promise, wanted.promise, "promise")
    blocks = [
        read_block(block, target, f"topics[{target}].publishers[{index}]", f"{topic.name}-{index + 1}-", folder)
        for target, topic in enumerate(topics)
        for index, block in enumerate(topic.publishers)
    ]
    duration_s = _duration_s(wanted, blocks)
    blocks = [block.until(wanted.warmup_s + duration_s) for block in blocks]
    plan = Plan(
        topic=topics[0].name,
        targets=[wanted.address or _PLACEHOLDER] * len(topics),
        topics=[topic.name for topic in topics],
        publishers=joined([block.publishers for block in blocks]),
        subscribers=[
            Subscriber(target=target, channel=channel, rdy=topic.rdy)
            for target, topic in enumerate(topics)
            for channel in topic.channels
            for _ in range(topic.subscribers)
        ],
        duration_s=duration_s,
        warmup_s=wanted.warmup_s,
        drain_s=wanted.drain_s,
        message_size=wanted.message_size,
        seed=wanted.seed,
        slo_ms=_NO_PROMISE_MS if promise is None else promise.latency_ms,
        percentile=_DEFAULT_PERCENTILE if promise is None else promise.percentile,
        protocol=protocol,
        qos=wanted.qos,
    )
    _check(plan, blocks)
    return Scenario(
        name=name, address=wanted.address, start=wanted.start, promise=promise, settings=document, _plan=plan
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_toml("file", str(path), path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("file", str(path), f"must be a file that can be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise BadInput("file", str(path), "must be UTF-8") from error


def _check_where(wanted: _Document) -> None:
    if (wanted.address is None) == (wanted.start is None):
        raise BadInput("address", wanted.address, "must be given, or else start: one of the two")
    if wanted.address is not None:
        parse_peer("address", wanted.address)


def _protocol(wanted: _Document) -> str:
    """As the file says; else of the broker to start; else NSQ."""
    if wanted.start is None:
        return wanted.protocol or "nsq"
    spoken = ALL[wanted.start].protocol
    if wanted.protocol not in (None, spoken):
        raise BadInput("protocol", wanted.protocol, f"must be {spoken!r}, which {wanted.start} speaks, or left out")
    return spoken


def _topics(tables: Sequence[object], protocol: str) -> list[_Topic]:
    topics = [parsed(_Topic, table, f"topics[{index}]") for index, table in enumerate(tables)]
    for index, topic in enumerate(topics):
        if any(topic.name == other.name for other in topics[:index]):
            raise BadInput(f"topics[{index}].name", topic.name, "must not be listed twice")
        for field, names in (("name", [topic.name]), ("channels", topic.channels)):
            _check_names(f"topics[{index}].{field}", names)
        if protocol != "nsq" and topic.subscribers > 1:
            rule = "must be 1: only NSQ shares messages out among the subscribers of a channel"
            raise BadInput(f"topics[{index}].subscribers", topic.subscribers, rule)
    return topics


def _check_names(field: str, names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        if not is_name(name):
            raise BadInput(field, name, NAME_RULE)
        if name in names[:index]:
            raise BadInput(field, name, "must not be listed twice")


def _duration_s(wanted: _Document, blocks: Sequence[Block]) -> float:
    """As the file says; else until the last recording ends, where there is nothing but recordings."""
    if wanted.duration_s is not None:
        return wanted.duration_s
    if any(block.ends_s is None for block in blocks):
        raise BadInput("duration_s", None, "is required, but for a scenario of recordings alone")
    ends_s = max(block.ends_s or 0.0 for block in blocks)
    if ends_s <= wanted.warmup_s:
        raise BadInput("warmup_s", wanted.warmup_s, f"must be shorter than the recordings, which last {ends_s:g} s")
    return ends_s - wanted.warmup_s


_OF_PUBLISHER = re.compile(r"publishers\.(\w+)\[(\d+)\]")
_OF_TOPIC = re.compile(r"topics\[\d+\]")
_KEYS = {"ids": "id_prefix", "group": "group_size", "offset_ns": "noise_ms", "instants_ns": "trace"}


def _check(plan: Plan, blocks: Sequence[Block]) -> None:
    """What the generator refuses, under the file's names."""
    try:
        check_plan(plan)
    except BadInput as error:
        column = _OF_PUBLISHER.fullmatch(error.field)
        if column is None:
            raise BadInput(_OF_TOPIC.sub(r"\g<0>.name", error.field), error.value, error.rule) from None
        places = [block.place for block in blocks for _ in block.publishers.ids]
        key = _KEYS.get(column[1], column[1])
        raise BadInput(f"{places[int(column[2])]}.{key}", error.value, error.rule) from None
