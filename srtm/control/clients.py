"""What clients are answered: where a publisher connects, where a consumer finds a topic, what came to it, why
something is refused."""

from __future__ import annotations

from typing import Any

from srtm.control.message import Control

FITTING_ENDED = ("fits", "does not fit", "failed", "off")  # of the states that ``GET /v1/topics/NAME/fitting`` answers


class Assignment(Control, frozen=True):
    """Answer of ``GET /v1/topics/NAME/publishers/ID``, read by ``srtm.client``: where this publisher connects."""

    topic: str
    publisher_id: str
    declared: bool
    broker: str
    address: str  # HOST:PORT
    version: int
    reason: str = ""  # the decision log's word on why it is there


class Producer(Control, frozen=True):
    """A broker as nsqlookupd's HTTP answers show it (wire names of nsqlookupd)."""

    remote_address: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str


class Lookup(Control, frozen=True):
    """Answer of ``GET /lookup?topic=``, read by any NSQ consumer and by ``srtm.client``."""

    channels: list[str]
    producers: list[Producer]


class Problem(Control, frozen=True):
    """``application/problem+json`` as every service of ours answers a refusal."""

    title: str
    status: int
    detail: str
    field: str | None = None
    value: object = None
    rule: str | None = None
    leader: str | None = None  # of a distributor that stands by: URL of the one that leads, where it is known


class Trace(Control, frozen=True):
    """Answer of a broker's ``GET /v1/topics/NAME/trace``, read by commands and benches: what arrived last there, a
    million messages at most: columns of equal length, in order of decision. Times are ns of CLOCK_MONOTONIC."""

    publishers: list[str]  # names that ``publisher`` indexes
    publisher: list[int]
    arrival_ns: list[int]
    due_ns: list[int]
    released_ns: list[int]  # 0: still waiting
    sent_ns: list[int]  # 0: not sent yet
    share_version: list[int]


def schema_of(kind: type) -> dict[str, Any]:
    """JSON Schema of what msgspec does not know: the value of a ``Problem``."""
    if kind is object:
        return {"description": "anything: a value that was refused"}
    raise NotImplementedError(kind)
