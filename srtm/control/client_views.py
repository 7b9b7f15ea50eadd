"""Answers to clients: which broker a publisher connects to, where a consumer finds a topic, what arrived, why a request
is refused."""

from __future__ import annotations

from typing import Any

from srtm.control.message import Control

FITTING_ENDED = ("fits", "does not fit", "failed", "off")  # of the states that ``GET /v1/topics/NAME/fitting`` answers


class Assignment(Control, frozen=True):
    """The broker that a publisher connects to: ``GET /v1/topics/NAME/publishers/ID``, read by ``srtm.client``."""

    topic: str
    publisher_id: str
    declared: bool
    broker: str
    address: str  # HOST:PORT
    version: int
    reason: str = ""  # from the decision log
    mqtt_address: str = ""  # HOST:PORT of the same broker; "": it speaks no MQTT in clear


class Producer(Control, frozen=True):
    """A broker in nsqlookupd's answers, with nsqlookupd's names."""

    remote_address: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str


class Lookup(Control, frozen=True):
    """The brokers and channels of a topic: ``GET /lookup?topic=``, read by NSQ consumers and ``srtm.client``."""

    channels: list[str]
    producers: list[Producer]


class Problem(Control, frozen=True):
    """A refusal of any service: ``application/problem+json``."""

    title: str
    status: int
    detail: str
    field: str | None = None
    value: object = None
    rule: str | None = None
    leader: str | None = None  # from a standby: URL of the distributor that leads, if it is known
    request_id: str | None = None  # by which the logs of the service name this request


class Trace(Control, frozen=True):
    """The latest messages of a topic on one broker: ``GET /v1/topics/NAME/trace``, read by commands and benches.

    Columns of equal length, in order of decision, of at most a million messages. Times are ns of CLOCK_MONOTONIC.
    """

    publishers: list[str]  # names that ``publisher`` indexes
    publisher: list[int]
    arrival_ns: list[int]
    due_ns: list[int]
    released_ns: list[int]  # 0: still waiting
    sent_ns: list[int]  # 0: not sent yet
    share_version: list[int]


def schema_of(kind: type) -> dict[str, Any]:
    """JSON Schema of a type that msgspec does not know: the value of a ``Problem``."""
    if kind is object:
        return {"description": "anything: a value that was refused"}
    raise NotImplementedError(kind)
