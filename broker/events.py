"""What the engine tells of its own accord, typed. Made by the engine (``drain_events``), read by
``broker.service``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from srtm._native import Engine

_CUT_OFF = {
    "slow_reader": "a client that reads nothing was cut off",
    "silent_client": "a client that said nothing for two heartbeats was cut off",
}


class TopicCreated(msgspec.Struct, frozen=True, tag="topic_created"):
    topic: str


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic_deleted"):
    topic: str


class ChannelCreated(msgspec.Struct, frozen=True, tag="channel_created"):
    topic: str
    channel: str


class ChannelDeleted(msgspec.Struct, frozen=True, tag="channel_deleted"):
    topic: str
    channel: str


class UnassignedPublisherSeen(msgspec.Struct, frozen=True, tag="stranger"):
    """Once per publisher, topic and ``set_publishers`` version."""

    topic: str
    publisher_id: str


class RateChanged(msgspec.Struct, frozen=True, tag="moved"):
    """The rate of arrivals is not what it was; only while histories of the topic are asked for. ``version``: of the
    share in force now, ``waiting``: for tokens now."""

    topic: str
    version: int
    since_ns: int  # CLOCK_MONOTONIC
    span_ns: int
    arrivals: int
    waiting: int


class Unsteady(msgspec.Struct, frozen=True, tag="restless"):
    """A topic that the engine watches is not steady any more: its rate has drifted, or messages waited for some
    bins."""

    topic: str


class Starved(msgspec.Struct, frozen=True, tag="starved"):
    """``waiting`` messages wait under a (0, 0) share."""

    topic: str
    waiting: int


class LeaseExpired(msgspec.Struct, frozen=True, tag="lapsed"):
    """The lease of a share ended; ``waiting`` messages wait for tokens until it is renewed."""

    topic: str
    waiting: int


class AuthAsked(msgspec.Struct, frozen=True, tag="auth_asked"):
    """A connection waits for ``Engine.set_authorization``."""

    connection: int
    secret: bytes  # base64 on the way here
    remote_ip: str
    tls: bool
    common_name: str  # of the client's certificate; "": none


class DiskFailed(msgspec.Struct, frozen=True, tag="disk_failed"):
    """The disk refuses; once until it works again. Also at the end of an engine: what it could not save."""

    reason: str


class DiskWorks(msgspec.Struct, frozen=True, tag="disk_works"):
    """A write succeeded after one that did not."""


class DiskRepaired(msgspec.Struct, frozen=True, tag="disk_repaired"):
    """A file of a queue was not as it was left: ``what`` was done about it."""

    file: str
    what: str


class AcceptFailed(msgspec.Struct, frozen=True, tag="accept_failed"):
    """Connections wait to be accepted: no descriptors or memory are left. Once, until all that waited are in."""

    reason: str


class LimitReached(msgspec.Struct, frozen=True, tag="limit_reached"):
    """Clients met a limit, ``times`` since it was last told (at most once in 10 s); ``client`` was the first."""

    limit: str  # the setting; "slow_reader", "silent_client": they were cut off
    client: str
    times: int

    def in_words(self) -> str:
        """What the log says of it."""
        return _CUT_OFF.get(self.limit, "clients meet a limit")


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The reactor cannot go on: the broker must end."""

    reason: str


Event = (
    TopicCreated
    | TopicDeleted
    | ChannelCreated
    | ChannelDeleted
    | UnassignedPublisherSeen
    | RateChanged
    | Unsteady
    | Starved
    | LeaseExpired
    | AuthAsked
    | DiskFailed
    | DiskWorks
    | DiskRepaired
    | AcceptFailed
    | LimitReached
    | Failed
)

_DECODER = msgspec.json.Decoder(list[Event])


def drain(engine: Engine) -> list[Event]:
    """Events since the last call, oldest first."""
    return _DECODER.decode(engine.drain_events())
