"""What clients are answered: where a publisher connects, where a consumer finds a topic, why something is refused."""

from __future__ import annotations

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
