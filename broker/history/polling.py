"""For which topics the engine is asked for bins, and when: a question costs by the topics in it. Pure.

The engine keeps bins for some seconds, so that none is lost to whoever asks seldom. It looks for changes of traffic for
a second after each question, and in those topics that it is told to watch; of these it says by itself too that they
drift, or that messages wait. So nothing is asked of them while it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

import msgspec

PERIOD_NS = 100_000_000  # between questions for topics in motion; also the length of bins
SELDOM_NS = 500_000_000  # for those to which nothing comes: half of the time for which changes are looked for
REST_NS = 5_000_000_000  # where there is nothing to ask: whoever places a topic elsewhere need not wait for its end
LOOK_BINS = 10  # of a topic that is not asked for often, once something is said of it
FAR_BINS = 100  # where it is to be told how rare messages are; the engine keeps 128


class Pace(Enum):
    OFTEN = "often"  # ten times a second
    SELDOM = "seldom"  # twice a second: nothing came
    RESTING = "resting"  # never: the engine watches


class Question(msgspec.Struct, frozen=True):
    """Bins of ``topics`` from number ``since`` on; 0: as long as they are kept."""

    topics: Sequence[str]
    since: int


class Watched(msgspec.Struct, frozen=True):
    """Topics that the engine is to watch from now on, and those that it no longer is to."""

    topics: list[str]
    no_longer: list[str]


_INSTANT = Question((), 1 << 62)  # for the time alone: of no topic, from a bin on that never comes


class Asking:
    """``until``: of the latest answer, the first bin that was not over."""

    def __init__(self) -> None:
        self.until = 0
        self._paces: dict[str, Pace] = {}
        self._topics: dict[Pace, dict[str, None]] = {pace: {} for pace in Pace}  # in order
        self._often_since = 0
        self._seldom_since = 0
        self._seldom_due_ns = 0
        self._looks_far = False
        self._watched: dict[str, None] = {}  # as the engine was told last
        self._watched_are_others = False

    def place(self, topic: str, pace: Pace) -> None:
        if self._paces.get(topic) is not pace:
            self.remove(topic)
            self._paces[topic] = pace
            self._topics[pace][topic] = None
            self._watched_are_others |= pace is Pace.RESTING

    def remove(self, topic: str) -> None:
        pace = self._paces.pop(topic, None)
        if pace is not None:
            del self._topics[pace][topic]
            self._watched_are_others |= pace is Pace.RESTING

    def take_watched(self) -> Watched | None:
        """What has changed since the last call; None: nothing."""
        if not self._watched_are_others:
            return None
        before, self._watched = self._watched, dict(self._topics[Pace.RESTING])
        self._watched_are_others = False
        return Watched(
            [topic for topic in self._watched if topic not in before],
            [topic for topic in before if topic not in self._watched],
        )

    def look_far(self) -> None:
        """Once at the bins of topics that rest, as many as say how rare messages are."""
        self._looks_far = True

    def is_resting(self, topic: str) -> bool:
        return self._paces.get(topic) is Pace.RESTING

    @property
    def period_ns(self) -> int:
        """Until the next questions, as things stand."""
        if self._topics[Pace.OFTEN]:
            return PERIOD_NS
        return SELDOM_NS if self._topics[Pace.SELDOM] or self._looks_far else REST_NS

    def questions(self, now_ns: int) -> Iterator[Question]:
        """Each is to be answered (``until``) before the next: what rested may be found to move. ``now_ns`` is of any
        clock that does not go back."""
        is_seldom = now_ns >= self._seldom_due_ns
        if is_seldom:
            self._seldom_due_ns = now_ns + SELDOM_NS
            yield from self._of_resting()
        topics = list(self._topics[Pace.OFTEN])
        since = self._often_since
        if is_seldom and self._topics[Pace.SELDOM]:
            topics += self._topics[Pace.SELDOM]
            since = min(since, self._seldom_since)
        if topics:
            yield Question(topics, since)
        self._often_since = self.until
        if is_seldom:
            self._seldom_since = self.until

    def _of_resting(self) -> Iterator[Question]:
        looks_far, self._looks_far = self._looks_far, False
        topics = self._topics[Pace.RESTING] if looks_far else {}
        if topics:
            yield _INSTANT  # the latest answer may be old
            yield Question(list(topics), max(self.until - FAR_BINS, 1))

    def of_sleepers(self, topics: Sequence[str]) -> Iterator[Question]:
        """For what is missing of these where they are asked for less than often. Each is to be answered (``until``)
        before the next."""
        slow = [topic for topic in topics if self._paces.get(topic, Pace.OFTEN) is not Pace.OFTEN]
        if slow:
            yield _INSTANT
            yield Question(slow, max(self.until - LOOK_BINS, 1))
