"""Links between brokers, over which MQTT's subscribers of one get what is published at another."""

from __future__ import annotations

from srtm.control.message import Control


class LinkRequest(Control, frozen=True):
    """What the MQTT subscribers of broker ``sender`` want of another one. Made by ``broker.links.remote_broker``, read
    by ``broker.links.consuming_brokers``."""

    sender: str
    filters: list[str] | None = []  # MQTT topic filters; None: all messages
    groups: list[str] = []  # `$share/GROUP/FILTER` of which a member is connected there
    kept: list[str] = []  # others, which are kept there until a member comes
    durable: bool = True  # a session there outlives its connection: keep on disk what is acknowledged
    leaves: bool = False  # it wants nothing any more, and is not coming back: its channels go
    mark: str = ""  # to be sent over the link of what is retained, once all of this is in force


class LinkAnswer(Control, frozen=True):
    """Where that is to be consumed: the channel is there, and takes what is wanted from now on."""

    tcp_address: str  # HOST:PORT, NSQ
    channel: str
    key: str  # to show in IDENTIFY
    ready: int  # messages that may be unanswered on one link
    topics: list[str]
    tls: bool = False  # NSQ clients are taken inside TLS alone
    marks: bool = False  # the mark is on its way; no: nothing is retained there
