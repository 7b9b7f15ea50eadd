"""Which topics the engine is asked for, and when: a poll costs by the number of topics in it. Pure.

The engine keeps 128 bins, so rare polls lose none. It detects changes of traffic for a second after each poll, and at
any time in topics that it watches. For watched topics it also reports drift, and messages that wait; so they are not
polled until it reports something.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

import msgspec

PERIOD_NS = 100_000_000  # between polls of active topics; also the length of a bin
SELDOM_NS = 500_000_000  # of topics without messages: half of the time for which the engine detects changes
REST_NS = 5_000_000_000  # without topics to poll
CATCH_UP_BINS = 10  # polled of a rarely polled topic once the engine reports something of it
RARE_BINS = 100  # polled to tell how rare messages are; the engine keeps 128


class Pace(Enum):
    OFTEN = "often"  # ten times a second
    SELDOM = "seldom"  # twice a second: no messages
    WATCHED = "watched"  # never: the engine watches the topic


class Poll(msgspec.Struct, frozen=True):
    """A request for the bins of ``topics`` from number ``since`` on; 0: all bins that are kept."""

    topics: Sequence[str]
    since: int


class WatchChange(msgspec.Struct, frozen=True):
    """Topics that the engine is to watch from now on, and topics that it is not to watch any more."""

    added: list[str]
    removed: list[str]


_TIME_POLL = Poll((), 1 << 62)  # no topic, from a bin that never comes: returns only the number of the open bin


class Polling:
    """``until`` is the open bin of the latest answer; the caller sets it."""

    def __init__(self) -> None:
        self.until = 0
        self._paces: dict[str, Pace] = {}
        self._topics: dict[Pace, dict[str, None]] = {pace: {} for pace in Pace}  # in order
        self._often_since = 0
        self._seldom_since = 0
        self._seldom_due_ns = 0
        self._polls_watched = False
        self._watched: dict[str, None] = {}  # as sent to the engine last
        self._watch_changed = False

    def place(self, topic: str, pace: Pace) -> None:
        if self._paces.get(topic) is not pace:
            self.remove(topic)
            self._paces[topic] = pace
            self._topics[pace][topic] = None
            self._watch_changed |= pace is Pace.WATCHED

    def remove(self, topic: str) -> None:
        pace = self._paces.pop(topic, None)
        if pace is not None:
            del self._topics[pace][topic]
            self._watch_changed |= pace is Pace.WATCHED

    def take_watch_change(self) -> WatchChange | None:
        """The change since the last call; None: there is none."""
        if not self._watch_changed:
            return None
        before, self._watched = self._watched, dict(self._topics[Pace.WATCHED])
        self._watch_changed = False
        return WatchChange(
            [topic for topic in self._watched if topic not in before],
            [topic for topic in before if topic not in self._watched],
        )

    def poll_watched(self) -> None:
        """Poll watched topics once, for as many bins as tell how rare messages are."""
        self._polls_watched = True

    def is_watched(self, topic: str) -> bool:
        return self._paces.get(topic) is Pace.WATCHED

    @property
    def period_ns(self) -> int:
        """Time until the next polls, as things stand."""
        if self._topics[Pace.OFTEN]:
            return PERIOD_NS
        return SELDOM_NS if self._topics[Pace.SELDOM] or self._polls_watched else REST_NS

    def polls(self, now_ns: int) -> Iterator[Poll]:
        """The polls that are due at ``now_ns``, of any clock that does not go back. The caller answers each before it
        takes the next: an answer may change the pace of a topic."""
        is_seldom = now_ns >= self._seldom_due_ns
        if is_seldom:
            self._seldom_due_ns = now_ns + SELDOM_NS
            yield from self._polls_of_watched()
        topics = list(self._topics[Pace.OFTEN])
        since = self._often_since
        if is_seldom and self._topics[Pace.SELDOM]:
            topics += self._topics[Pace.SELDOM]
            since = min(since, self._seldom_since)
        if topics:
            yield Poll(topics, since)
        self._often_since = self.until
        if is_seldom:
            self._seldom_since = self.until

    def _polls_of_watched(self) -> Iterator[Poll]:
        polls_watched, self._polls_watched = self._polls_watched, False
        topics = self._topics[Pace.WATCHED] if polls_watched else {}
        if topics:
            yield _TIME_POLL  # the latest answer may be old
            yield Poll(list(topics), max(self.until - RARE_BINS, 1))

    def catch_up(self, topics: Sequence[str]) -> Iterator[Poll]:
        """Polls for the missing bins of those of ``topics`` that are polled rarely. The caller answers each before it
        takes the next."""
        rare = [topic for topic in topics if self._paces.get(topic, Pace.OFTEN) is not Pace.OFTEN]
        if rare:
            yield _TIME_POLL
            yield Poll(rare, max(self.until - CATCH_UP_BINS, 1))
