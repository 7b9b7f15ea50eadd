"""Publishers that send to a broker that they are not assigned to: when they are told where to move, and to whom."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from distributor.model.cluster import Topic
from distributor.registry.registry import Registry
from distributor.sync.sessions import Sessions
from srtm.control import Move, UnassignedPublisher

_MOVE_REPEATS = 2  # one answer may cross with the broker's next request, which hangs up on it
_SUBSCRIBER_WAIT_S = 1.0  # for subscribers to connect to a broker that is new to the topic


class PublisherMoves:
    """The moves of all brokers' publishers."""

    def __init__(self, registry: Registry, sessions: Sessions) -> None:
        self._registry, self._sessions = registry, sessions

    def add_unassigned(self, name: str, publishers: Sequence[UnassignedPublisher]) -> None:
        """Publishers that send to broker ``name`` without being assigned to it, and have to be told."""
        session = self._sessions.begun(name)
        session.unassigned.update(dict.fromkeys(publishers, 0))
        for publisher in publishers:
            self._registry.pins.ask_again(publisher.topic, publisher.publisher_id, name)
            if (topic := self._registry.topics.get(publisher.topic)) is not None:
                session.misplaced.add(topic, publisher.publisher_id)

    def note_stayed(self, name: str, publishers: Sequence[UnassignedPublisher]) -> None:
        """Publishers that have not moved although they were told twice: they are pinned."""
        for publisher in publishers:
            topic = self._registry.managed_topic(publisher.topic)
            if topic is not None and publisher.publisher_id in topic.spec.publishers.positions:
                self._registry.pins.pin(topic.name, publisher.publisher_id, name)

    def due(self, name: str) -> list[Move]:
        """Moves of unassigned publishers on ``name`` whose own broker is ready for them.

        Publishers to which a move was sent often enough leave the list, and so do those that may stay.
        """
        moves = []
        unassigned = self._sessions.begun(name).unassigned
        for publisher in list(unassigned):
            target = self._assigned_broker(publisher)
            if target is None or target == name:
                del unassigned[publisher]
            elif (move := self._move(publisher, target)) is not None:
                moves.append(move)
                unassigned[publisher] += 1
                if unassigned[publisher] == _MOVE_REPEATS:
                    del unassigned[publisher]
        return moves

    def _assigned_broker(self, publisher: UnassignedPublisher) -> str | None:
        topic = self._registry.topics.get(publisher.topic)
        return topic.placement.broker_of(publisher.publisher_id) if topic is not None else None

    def _move(self, publisher: UnassignedPublisher, target: str) -> Move | None:
        """None: ``target`` is not ready yet."""
        topic = self._registry.topics[publisher.topic]
        if not self._is_ready(topic, target):
            return None
        return Move(
            topic=publisher.topic,
            publisher_id=publisher.publisher_id,
            address=self._registry.brokers[target].tcp_address,
            version=topic.assignment_version,
            mqtt_address=self._sessions.of(target).mqtt_address,
            mqtt_ports=self._sessions.of(target).mqtt_ports,
        )

    def _is_ready(self, topic: Topic, target: str) -> bool:
        """Whether ``target`` has what publishers of ``topic`` need: its share is in force and as large as it can be for
        now (then it has the channels too), and every consumed channel has a consumer there. Consumers that do not come
        within ``_SUBSCRIBER_WAIT_S`` are not waited for."""
        live, ready_since_s = self._registry.live(), self._sessions.begun(target).ready_since_s
        if not (topic.holding(target).share.is_usable and target in live):
            ready_since_s.pop(topic.name, None)
            return False
        if not all(held.is_acknowledged for name, held in topic.leases.holdings.items() if name in live):
            return False
        since_s = ready_since_s.setdefault(topic.name, trio.current_time())
        if trio.current_time() - since_s >= _SUBSCRIBER_WAIT_S:
            return True
        reports = self._sessions.known(topic.name)
        here = reports.get(target)
        return {channel for report in reports.values() for channel in report.consumed} <= set(
            here.consumed if here else ()
        )
