"""What a broker says of MQTT: its sessions, retained messages, and what was lost. Read by ``srtm mqtt``."""

from __future__ import annotations

from srtm.control.message import Control


class MqttSession(Control, frozen=True):
    """What one client has at a broker, also while it is away."""

    client_id: str
    connected: bool
    address: str  # of its connection; "": none
    version: str  # "3.1", "3.1.1", "5.0"; "": no connection
    subscriptions: int
    queued: int  # messages that wait for it
    in_flight: int  # deliveries that it has not acknowledged
    unreleased: int  # its publishes of QoS 2 whose PUBREL is awaited
    dropped: int  # deliveries, for want of room
    has_will: bool
    expiry_s: int | None = None  # how long it stays without a connection; None: for ever
    ends_in_s: int | None = None  # None: it is connected, or stays for ever
    filters: list[str] = []  # only where one session was asked for


class MqttSessions(Control, frozen=True):
    """Sessions of a broker. ``total``: how many there are, which may be more."""

    sessions: list[MqttSession]
    total: int


class MqttRetained(Control, frozen=True):
    """A retained message."""

    name: str
    qos: int
    bytes: int  # of the payload
    expires_in_s: int | None = None  # None: never


class MqttLosses(Control, frozen=True):
    """What MQTT's clients of one topic lost at a broker since its start, for excess or want of room."""

    refused: list[int] = []  # publishes, by QoS; their clients were told, or their connections ended; empty: none
    dropped: list[int] = []  # the same, without a word
    # {"mqtt", of sessions, or $share/GROUP/FILTER: deliveries dropped since as many messages waited as may}
    full: dict[str, int] = {}
