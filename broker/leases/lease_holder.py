"""Holds this broker's shares: takes the distributor's desired state, puts it into the engine, says what is in force.
Synchronous, without network; the caller passes the time.

Its law: a version never goes back. A bucket is full only if the share says so (the topic's
first grant ever) and there was none here; any other bucket starts empty. A new incarnation holds the topics that it
remembers at (0, 0) until it has synced: proof of death may have moved its tokens, so messages wait.

A timed lease counts from when the sync was *sent* whose answer granted or confirmed the share, by the clock that runs
while the host is suspended. The engine ends it (``Engine.set_bucket``), which may wake up before this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from broker import snapshot
from broker.leases.desired_topics import NOTHING, DesiredTopics
from srtm.control import ContractTerms, DesiredTopic, Exchange, Share, SyncAnswer
from srtm.errors import PeerError
from srtm.protocol import is_ephemeral

if TYPE_CHECKING:
    from srtm._native import Engine

MICRO = 1_000_000
_LONGEST_LEASE_S = 86_400.0


class LeaseHolder:
    """``version`` is that of the desired state in force; 0: none yet in this incarnation. ``forget_bucket``: is told of
    a topic that the distributor limits from now on. ``speaks_mqtt``: shared subscriptions may have members here."""

    def __init__(
        self,
        engine: Engine,
        forget_bucket: Callable[[str], None] = lambda _topic: None,
        *,
        speaks_mqtt: bool = True,
    ) -> None:
        self._engine = engine
        self._forget_bucket = forget_bucket
        self._speaks_mqtt = speaks_mqtt
        self._topics = DesiredTopics()  # in force in the engine; until the first sync without tokens
        self.version = 0
        self.remembered = 0  # version of the desired state that an earlier incarnation left
        self._exchanged: dict[str, tuple[int, int, int]] = {}  # by GDRL: {topic: (share version, rate, burst)}, micro
        self._asked_ns = 0  # CLOCK_BOOTTIME: when the latest answered sync was sent

    @property
    def changes(self) -> int:
        """Number of changes of the topics in force so far."""
        return self._topics.changes

    @property
    def changes_followed(self) -> int:
        """Number of changes of ``followed`` and ``followed_seldom`` so far."""
        return self._topics.changes_followed

    @property
    def applied(self) -> dict[str, int]:
        """{topic: version of the share in force}: the acknowledgement. Shares left by an earlier incarnation are not
        named."""
        return dict(self._topics.applied)

    @property
    def held(self) -> dict[str, tuple[int, int]]:
        """{topic: (rate, burst) in force, micro}, of recalled shares."""
        return {name: self.in_force(name) for name in self._topics.recalled}

    @property
    def holds_nothing(self) -> bool:
        """Whether no share here ever lets a message go."""
        return all(self._amounts(topic)[0] == 0 for topic in self._topics.all.values())

    @property
    def shortest_lease_s(self) -> float | None:
        """None: no lease here ends."""
        return min(self._topics.timed.values(), default=None)

    def is_managed(self, topic: str) -> bool:
        return topic in self._topics.all

    @property
    def followed(self) -> list[str]:
        """Topics whose histories are wanted."""
        return list(self._topics.followed)

    @property
    def followed_seldom(self) -> list[str]:
        """Those of ``followed`` whose steady traffic need not be reported."""
        return [name for name, is_seldom in self._topics.followed.items() if is_seldom]

    @property
    def exchanges(self) -> dict[str, Exchange]:
        """{topic: how brokers may exchange its tokens}."""
        return dict(self._topics.exchanges)

    def in_force(self, topic: str) -> tuple[int, int]:
        """Rate and burst of a managed ``topic`` here, micro: as granted, or as exchanged since."""
        return self._amounts(self._topics.all[topic])

    def is_exchanged(self, topic: str, epoch: int) -> bool:
        """Whether this broker may take part in that epoch now; not after it has given up its shares."""
        desired = self._topics.all.get(topic)
        return desired is not None and desired.exchange is not None and desired.exchange.epoch == epoch

    def put_exchanged(self, topic: str, rate_micro: int, burst_micro: int) -> None:
        """Put what brokers exchanged in force, until the next grant. Only if ``is_exchanged``."""
        desired = self._topics.all[topic]
        self._exchanged[topic] = (desired.share.version, rate_micro, burst_micro)
        self._set_bucket(desired, full=False)

    def channels(self, topic: str) -> list[str]:
        return self._topics.all[topic].channels if topic in self._topics.all else []

    def mqtt_filters(self, topic: str) -> list[str] | None:
        """What gives a managed topic MQTT names besides its own. None: it is not managed."""
        return self._topics.all[topic].mqtt_filters if topic in self._topics.all else None

    def hold(self, topics: Sequence[DesiredTopic], version: int) -> None:
        """At the start: hold the topics that the last incarnation left, from desired state ``version``, without
        tokens. Their publishers are not known yet, so none counts as unassigned."""
        self.remembered = version
        for held in map(held_over, topics):
            self._set_bucket(held, full=False)
            self._set_mqtt_names(held)
            self._set_mqtt_groups(held.topic, held.mqtt_groups, [])
            self._set_promise(held)
            if held.terms != ContractTerms():
                self._set_terms(held)
            self._create_channels(held)
            self._topics.put(held)

    def give_up(self) -> None:
        """Drop all tokens until the next answer: they belong to another process."""
        self._exchanged.clear()
        for topic in list(self._topics.all.values()):
            share = msgspec.structs.replace(topic.share, rate=0.0, burst=0.0, full=False)
            given_up = msgspec.structs.replace(topic, share=share, exchange=None)
            self._topics.put(given_up)
            self._set_bucket(given_up, full=False)
        self.version = 0

    def check(self, answer: SyncAnswer) -> None:
        """Check that ``answer`` may be applied. Raises PeerError if it is older than the state in force, a delta to
        another state, or has an invalid lease."""
        if answer.version < self.version:
            raise PeerError(f"desired state {answer.version} is older than {self.version}, which is in force")
        if answer.since and answer.since != self.version:
            raise PeerError(f"differences from desired state {answer.since}, and {self.version} is in force")
        for topic in answer.topics:
            lease_s = topic.share.lease_s
            if lease_s is not None and not 0 < lease_s < _LONGEST_LEASE_S:
                raise PeerError(f"topic {topic.topic!r}: lease_s {lease_s} must be more than 0 and at most a day")

    def apply(self, answer: SyncAnswer, asked_ns: int) -> None:
        """Put ``answer`` in force; then ``applied`` names its shares. A share older than the one in force is skipped.

        Leases count from ``asked_ns`` (CLOCK_BOOTTIME), when the sync was sent. Raises PeerError, as ``check``.
        """
        self.check(answer)
        self._asked_ns = asked_ns
        if not answer.unchanged or self.version == 0:  # unchanged since 0: there is no managed topic
            for name in self._no_longer_managed(answer):
                self._exchanged.pop(name, None)
                self._engine.set_mqtt_names(name, [], "delay")
                self._set_mqtt_groups(name, [], self._groups_of(name))
                self._engine.clear_bucket(name)
                self._engine.set_promise(name, 0)
                self._engine.delete_unused_topic(name)
                self._topics.drop(name)
            for topic in answer.topics:
                if self._is_news(topic):
                    self._apply_topic(topic)
            for name in answer.purged:
                if name not in self._topics.all:
                    self._engine.delete_topic(name)
        self._renew_leases(answer)
        self.version = answer.version

    def _no_longer_managed(self, answer: SyncAnswer) -> list[str]:
        if answer.since:
            return [name for name in answer.removed if name in self._topics.all]
        named = {topic.topic for topic in answer.topics}
        return [name for name in self._topics.all if name not in named]

    def _renew_leases(self, answer: SyncAnswer) -> None:
        """Renew the leases that the distributor counts as in force, too. A topic that a delta does not name is
        unchanged."""
        named = {topic.topic: topic.share.version for topic in answer.topics}
        others_unchanged = answer.unchanged or answer.since > 0
        renewals = [
            (name, topic.share.version, expires_ns)
            for name, topic in ((name, self._topics.all[name]) for name in self._topics.timed)
            if (expires_ns := self._expires_ns(topic.share)) is not None
            and (named[name] == topic.share.version if name in named else others_unchanged)
        ]
        if renewals:
            self._engine.renew_leases(renewals)

    def _expires_ns(self, share: Share) -> int | None:
        if share.lease_s is None or share.rate == 0:
            return None
        return self._asked_ns + round(share.lease_s * 1e9)

    def renew(self, topic: str) -> None:
        """Make a managed topic again that the engine has dropped: its limit, channels and publishers."""
        if topic in self._topics.all:
            desired = self._topics.all[topic]
            self._set_bucket(desired, full=False)
            self._set_promise(desired)
            if desired.terms != ContractTerms():
                self._set_terms(desired)
            self._create_channels(desired)
            if desired.share is not NOTHING:
                self._set_publishers(desired)

    def _is_news(self, topic: DesiredTopic) -> bool:
        known = self._topics.all.get(topic.topic)
        return known is None or (topic != known and topic.share.version >= known.share.version)

    def _apply_topic(self, topic: DesiredTopic) -> None:
        """Put one topic in force, its limit first: it may be new, and no message may pass unlimited. Its publishers
        come after the acknowledgement."""
        share = topic.share
        known = self._topics.all.get(topic.topic)
        if known is None:
            self._forget_bucket(topic.topic)
        if known is not None and share.recall:
            self._exchanged[topic.topic] = (share.version, *self._amounts(known))
        if known is None or _limits(known) != _limits(topic):
            self._set_bucket(topic, full=share.full and known is None and not self._has_bucket(topic.topic))
        if known is None or known.promise_ms != topic.promise_ms:
            self._set_promise(topic)
        if known is None or _mqtt_names(known) != _mqtt_names(topic):
            self._set_mqtt_names(topic)
        self._set_mqtt_groups(topic.topic, topic.mqtt_groups, self._groups_of(topic.topic))
        if (known.terms if known is not None else ContractTerms()) != topic.terms:
            self._set_terms(topic)
        self._create_channels(topic)
        self._set_publishers(topic)
        self._topics.put(topic)

    def _create_channels(self, topic: DesiredTopic) -> None:
        for channel in topic.channels:
            if not is_ephemeral(channel):
                self._engine.create_channel(topic.topic, channel)

    def _set_publishers(self, topic: DesiredTopic) -> None:
        self._engine.set_publishers(topic.topic, topic.publishers, topic.assignment_version)

    def _set_mqtt_names(self, topic: DesiredTopic) -> None:
        self._engine.set_mqtt_names(topic.topic, topic.mqtt_filters, topic.mqtt_v3_excess)
        if topic.mqtt_name:
            self._engine.set_mqtt_name(topic.topic, topic.mqtt_name)

    def _groups_of(self, topic: str) -> list[str]:
        known = self._topics.all.get(topic)
        return [] if known is None else known.mqtt_groups

    def _set_mqtt_groups(self, topic: str, groups: list[str], before: list[str]) -> None:
        if groups != before and self._speaks_mqtt:
            self._engine.set_mqtt_groups(topic, groups)

    def _set_promise(self, topic: DesiredTopic) -> None:
        self._engine.set_promise(topic.topic, round(topic.promise_ms * 1e6))

    def _set_terms(self, topic: DesiredTopic) -> None:
        self._engine.set_terms(topic.topic, msgspec.json.encode(topic.terms))

    def _set_bucket(self, topic: DesiredTopic, *, full: bool) -> None:
        rate_micro, burst_micro = self._amounts(topic)
        taken = self._engine.set_bucket(
            topic.topic,
            rate_micro,
            burst_micro,
            topic.on_excess == "reject",
            topic.max_backlog,
            topic.max_backlog_bytes,
            topic.share.version,
            full,
            self._expires_ns(topic.share),
        )
        if not taken:
            raise PeerError(f"topic {topic.topic!r}: share {topic.share.version} is older than the one in force")

    def _amounts(self, topic: DesiredTopic) -> tuple[int, int]:
        share, exchanged = topic.share, self._exchanged.get(topic.topic)
        if exchanged is not None and exchanged[0] == share.version:
            return exchanged[1:]
        return micro(share.rate), micro(share.burst)

    def _has_bucket(self, name: str) -> bool:
        found = snapshot.find_topic(self._engine, name)
        return found is not None and found.bucket is not None


def held_over(topic: DesiredTopic) -> DesiredTopic:
    """What a later incarnation needs of ``topic``: its limit, without tokens and publishers."""
    terms = msgspec.structs.replace(topic.terms, named={})  # those of publishers
    return msgspec.structs.replace(
        topic, share=NOTHING, publishers=[], assignment_version=0, exchange=None, terms=terms
    )


def _limits(topic: DesiredTopic) -> tuple[object, ...]:
    share = topic.share
    return (share.version, share.rate, share.burst, topic.on_excess, topic.max_backlog, topic.max_backlog_bytes)


def _mqtt_names(topic: DesiredTopic) -> tuple[list[str], str, str]:
    return topic.mqtt_filters, topic.mqtt_name, topic.mqtt_v3_excess


def micro(value: float) -> int:
    """Rates and bursts in the engine's unit of 1e-6."""
    return round(value * MICRO)
