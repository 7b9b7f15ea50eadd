"""Other brokers that consume what is published here, for their MQTT subscribers. Each has a channel of each topic that
it wants: the channel keeps, in order and as far as needed on disk, what its broker has not taken yet."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from broker import snapshot
from broker.links.interest import ANY_NAME, is_wanted, new_filters, wanted_of
from srtm.control import LinkAnswer, LinkRequest
from srtm.errors import BadInput
from srtm.protocol import RETAINED_TOPIC, is_link_channel, link_channel

if TYPE_CHECKING:
    from srtm._native import Engine


@dataclass
class _Consumer:
    broker: str
    channel: str
    key: str
    request: LinkRequest | None = None  # its latest
    mark: str = ""  # the latest that is on its way
    incarnation: str = ""  # of its marks
    topics: set[str] = field(default_factory=set)  # that have its channel

    @property
    def filters(self) -> Sequence[str] | None:
        """What it wants; None: all."""
        return [] if self.request is None else wanted_of(self.request)


class ConsumingBrokers:
    """``register`` what a broker asks for; tell it of topics by ``note_topic``, ``forget_topic`` and ``recheck``.

    ``names_of`` gives the filters of a managed topic's MQTT names, besides the topic's own; None: it is not managed.
    ``default_topic`` has all names that no topic owns. ``ready``: messages that may be unanswered on a link.
    ``tls``: NSQ clients are taken inside TLS alone. ``note_started`` is called with each broker that asks for the first
    time since its start, ``note_left`` with each that says that it is not coming back.
    """

    def __init__(
        self,
        engine: Engine,
        names_of: Callable[[str], list[str] | None],
        *,
        tcp_address: str,
        default_topic: str,
        speaks_mqtt: bool,
        ready: int,
        patience_s: float,
        tls: bool = False,
        note_started: Callable[[str], None] = lambda _: None,
        note_left: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._names_of = names_of
        self._tcp_address = tcp_address
        self._default_topic = default_topic
        self._speaks_mqtt = speaks_mqtt
        self._ready = ready
        self._patience_s = patience_s
        self._tls = tls
        self._note_started = note_started
        self._note_left = note_left
        self._topics: set[str] = set()
        self._settled: dict[str, list[str]] = {}  # {topic: the names by which it was settled for all consumers}
        self._consumers: dict[str, _Consumer] = {}  # by broker
        self._has_looked = False
        self._heard_s: dict[str, float] = {}  # {channel: when its broker was heard, or the channel was found here}

    def register(self, broker: str, request: LinkRequest, now_s: float) -> LinkAnswer:
        """Make the channels of what ``broker`` wants, and let it consume them. Raises BadInput."""
        if request.leaves:
            return self._part_with(broker)
        consumer = self._consumers.get(broker)
        if consumer is None:
            channel = link_channel(broker)
            consumer = _Consumer(broker, channel, secrets.token_hex(16), topics=self._topics_with(channel))
        before = consumer.request and msgspec.structs.replace(consumer.request, mark=request.mark)
        if request != before:
            self._give(consumer, request)
        self._heard_s[consumer.channel] = now_s
        incarnation = request.mark.partition(" ")[0]
        if incarnation != consumer.incarnation:
            consumer.incarnation = incarnation
            self._note_started(broker)
        if request.mark != consumer.mark and self._engine.mark_link(consumer.channel, request.mark):
            consumer.mark = request.mark
        return LinkAnswer(
            tcp_address=self._tcp_address,
            channel=consumer.channel,
            key=consumer.key,
            ready=self._ready,
            topics=sorted(consumer.topics),
            tls=self._tls,
            marks=consumer.mark == request.mark != "",
        )

    def _give(self, consumer: _Consumer, request: LinkRequest) -> None:
        """Let ``consumer`` have what it wants from now on, and nothing else. Raises BadInput."""
        wants = request.filters, request.groups, request.kept
        try:
            self._engine.allow_links(consumer.broker, consumer.channel, consumer.key, *wants, request.durable)
        except ValueError as error:
            raise BadInput("filters", list(wants), str(error)) from None
        news = new_filters(consumer.filters, wanted_of(request))
        consumer.request = request
        self._consumers[consumer.broker] = consumer
        if self._speaks_mqtt:
            self._make_own_topics(wants_more=wanted_of(request) != [])
        for topic in self._topics | consumer.topics:
            self._settle(consumer, topic, self._names(topic), news)

    def _part_with(self, broker: str) -> LinkAnswer:
        """``broker`` is not coming back."""
        channel = link_channel(broker)
        for topic in self._topics_with(channel):
            self._engine.delete_channel(topic, channel)
        if self._consumers.pop(broker, None) is not None:
            self._engine.forbid_links(broker)
        self._heard_s.pop(channel, None)
        self._note_left(broker)
        return LinkAnswer(tcp_address=self._tcp_address, channel=channel, key="", ready=self._ready, topics=[])

    def _make_own_topics(self, *, wants_more: bool) -> None:
        """Those that MQTT clients publish to: their first message shall find the link."""
        for topic in (RETAINED_TOPIC, *((self._default_topic,) if wants_more else ())):
            self._engine.create_topic(topic)
            self._topics.add(topic)

    def note_topic(self, topic: str) -> None:
        """``topic`` is new here, and no message of it has gone anywhere yet."""
        self._topics.add(topic)
        self._settle_for_all(topic, self._names(topic))

    def forget_topic(self, topic: str) -> None:
        """``topic`` is gone, with its channels."""
        self._topics.discard(topic)
        self._settled.pop(topic, None)
        for consumer in self._consumers.values():
            consumer.topics.discard(topic)

    def recheck(self) -> None:
        """The names of topics may have changed."""
        for topic in self._topics:
            names = self._names(topic)
            if names != self._settled.get(topic):
                self._settle_for_all(topic, names)

    def drop_lost(self, now_s: float) -> list[str]:
        """Remove the channels of brokers that were not heard for longer than any session there is kept. Returns those
        channels."""
        if self._has_looked and not self._heard_s:
            return []
        self._has_looked = True  # for what an earlier incarnation left
        found = snapshot.take(self._engine)
        here = {(topic.topic_name, channel.channel_name) for topic in found.topics for channel in topic.channels}
        channels = {channel for _, channel in here if is_link_channel(channel)}
        heard_s = {channel: self._heard_s.setdefault(channel, now_s) for channel in sorted(channels)}
        lost = [channel for channel, at_s in heard_s.items() if now_s - at_s > self._patience_s]
        for topic, channel in sorted(here):
            if channel in lost:
                self._engine.delete_channel(topic, channel)
        for broker in [consumer.broker for consumer in self._consumers.values() if consumer.channel in lost]:
            del self._consumers[broker]
            self._engine.forbid_links(broker)
        for channel in lost:
            del self._heard_s[channel]
        return lost

    def _settle_for_all(self, topic: str, names: list[str]) -> None:
        self._settled[topic] = names
        for consumer in self._consumers.values():
            self._settle(consumer, topic, names, consumer.filters)

    def _settle(self, consumer: _Consumer, topic: str, names: list[str], news: Sequence[str] | None) -> None:
        """Make or remove the channel of ``consumer``, as it wants ``topic`` of ``names`` or not. ``news``: filters that
        may want a topic which it did not want before."""
        filters = consumer.filters if topic in consumer.topics else news
        wants = topic == RETAINED_TOPIC or is_wanted(filters, names)
        if wants and topic not in consumer.topics:
            if self._engine.create_channel(topic, consumer.channel):
                consumer.topics.add(topic)
        elif not wants and topic in consumer.topics:
            self._engine.delete_channel(topic, consumer.channel)
            consumer.topics.discard(topic)

    def _names(self, topic: str) -> list[str]:
        if topic == self._default_topic:
            return [ANY_NAME]
        return [topic, *(self._names_of(topic) or ())]

    def _topics_with(self, channel: str) -> set[str]:
        """Topics that have the channel since an earlier incarnation."""
        found = snapshot.take(self._engine)
        return {topic.topic_name for topic in found.topics if channel in {here.channel_name for here in topic.channels}}
