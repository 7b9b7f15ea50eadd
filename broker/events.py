"""Events of the engine, typed. Made by ``Engine.drain_events``, read by ``broker.service``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from srtm._native import Engine

_LIMITS = {
    "slow_reader": "a client that reads nothing was cut off",
    "silent_client": "a client that said nothing for two heartbeats was cut off",
    "mqtt_max_queued": "a session of MQTT or a shared group is full: what comes for it is dropped, or refused",
    "mqtt_queued_bytes": "a session or shared group of MQTT has its part of memory: what comes is dropped, or refused",
    "mqtt_max_sessions": "clients whose sessions are to be kept are refused: there are as many as may be",
    "max_memory_bytes": "clients with a session to keep or a will are refused: these take an eighth of the memory",
    "shared_groups": "more shared groups of MQTT than other brokers are told: further ones are refused, or get nothing "
    "from there",
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


class UnassignedPublisherSeen(msgspec.Struct, frozen=True, tag="unassigned_publisher"):
    """A publisher sends that is not assigned to this broker. Once per publisher, topic and assignment."""

    topic: str
    publisher_id: str


class RateChanged(msgspec.Struct, frozen=True, tag="rate_changed"):
    """The rate of arrivals changed. Detected only in topics that are polled or watched."""

    topic: str
    version: int  # of the share in force
    since_ns: int  # CLOCK_MONOTONIC
    span_ns: int  # since the change
    arrivals: int  # in that time
    waiting: int  # for tokens, now


class Unsteady(msgspec.Struct, frozen=True, tag="unsteady"):
    """Traffic of a watched topic is no longer steady: its rate drifts, or messages wait. It is watched no longer."""

    topic: str


class Starved(msgspec.Struct, frozen=True, tag="starved"):
    """Messages wait under a share of 0."""

    topic: str
    waiting: int


class LeaseExpired(msgspec.Struct, frozen=True, tag="lapsed"):
    """The lease of a share ended. Messages wait for tokens until it is renewed."""

    topic: str
    waiting: int


class AuthAsked(msgspec.Struct, frozen=True, tag="auth_asked"):
    """A connection waits for ``Engine.set_authorization``."""

    connection: int
    secret: bytes  # base64 on the way here
    remote_ip: str
    tls: bool
    common_name: str  # of the client's certificate; "": none
    username: str = ""  # by MQTT and HTTP, whose password is the secret
    client_id: str = ""  # likewise


class DiskFailed(msgspec.Struct, frozen=True, tag="disk_failed"):
    """The disk refuses to write; once, until it works again. When the engine stops: what it could not save."""

    reason: str


class DiskWorks(msgspec.Struct, frozen=True, tag="disk_works"):
    """A write succeeded after a failure."""


class DiskRepaired(msgspec.Struct, frozen=True, tag="disk_repaired"):
    """A file of a queue was damaged; ``what`` says what was done about it."""

    file: str
    what: str


class AcceptFailed(msgspec.Struct, frozen=True, tag="accept_failed"):
    """No descriptors or memory are left: connections wait to be accepted. Once, until all of them are in."""

    reason: str


class LimitReached(msgspec.Struct, frozen=True, tag="limit_reached"):
    """Clients met a limit, ``times`` since the last event (at most one in 10 s). ``client`` was the first."""

    limit: str  # the setting, or "shared_groups"; "slow_reader" or "silent_client" if clients were cut off
    client: str
    times: int

    def in_words(self) -> str:
        """The text of the log line."""
        return _LIMITS.get(self.limit, "clients meet a limit")


class Denied(msgspec.Struct, frozen=True, tag="denied"):
    """A client was denied something, ``times`` since the last event (at most one a minute for each client and action).

    ``name`` is that of its first message or filter, or of its user. ``client`` is "" for all others if there are more
    than 64.
    """

    action: str  # "connect", "publish", "subscribe", "take over"; "publish to no topic", "subscribe to no topic"
    client: str
    name: str
    times: int


class MqttExcess(msgspec.Struct, frozen=True, tag="mqtt_excess"):
    """Messages of an MQTT publisher were not taken, at most one event a minute for each publisher.

    ``topic`` and ``why`` are of the first of them. ``publisher`` is "" for all others if there are more than 64.
    """

    publisher: str
    topic: str
    why: str
    refused: int  # the client was told so
    closed: int  # its connection was ended
    dropped: int  # nobody was told


class MqttUnkept(msgspec.Struct, frozen=True, tag="mqtt_unkept"):
    """Sessions of MQTT or shared groups had no room for messages of a topic, or groups ended while some waited for
    them, at most one event a minute for each topic.

    ``first`` is a client or a group; ``topic`` is "" for all others if there are more than 64.
    """

    topic: str
    first: str
    dropped: int  # deliveries
    refused: int  # publishes
    ended: int  # messages whose group has ended


class MqttInterestChanged(msgspec.Struct, frozen=True, tag="mqtt_interest_changed"):
    """What MQTT's subscribers want of other brokers has changed. Once, until ``Engine.mqtt_interest`` is called."""


class LinkMarked(msgspec.Struct, frozen=True, tag="link_marked"):
    """The mark that this broker asked for has come over a link: so has all that the other one retained before."""

    number: int
    mark: str


class LinkEnded(msgspec.Struct, frozen=True, tag="link_ended"):
    """A link that ``Engine.open_link`` began under ``number`` is gone."""

    number: int
    reason: str


class SubscribedEarly(msgspec.Struct, frozen=True, tag="subscribed_early"):
    """``times`` subscriptions were answered though another broker did not know of them within 1 s."""

    times: int


class ConnectedEarly(msgspec.Struct, frozen=True, tag="connected_early"):
    """``times`` clients were let in though another broker, which is away or did not answer within 1 s, may have their
    sessions."""

    times: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine cannot go on: the broker must end."""

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
    | Denied
    | MqttExcess
    | MqttUnkept
    | MqttInterestChanged
    | LinkMarked
    | LinkEnded
    | SubscribedEarly
    | ConnectedEarly
    | Failed
)

_DECODER = msgspec.json.Decoder(list[Event])


def drain(engine: Engine) -> list[Event]:
    """Events since the last call, oldest first."""
    return _DECODER.decode(engine.drain_events())
