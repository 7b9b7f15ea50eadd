"""For which topics the engine is asked for bins, and when: a question costs by the topics in it. Pure.

The engine keeps bins for some seconds, so that none is lost to whoever asks seldom. It looks for changes of traffic for
a second after each question, and in those topics that it is told to watch: in these it is not asked for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

import msgspec

PERIOD_NS = 100_000_000  # between questions for topics in motion; also the length of bins
SELDOM_NS = 500_000_000  # for those to which nothing comes: half of the time for which changes are looked for
_REST_NS = 5_000_000_000  # between two looks at bins of topics that rest
LOOK_BINS = 10  # that such a look is at
FAR_BINS = 100  # where it is to be told how rare messages are; the engine keeps 128


class Pace(Enum):
    OFTEN = "often"  # ten times a second
    SELDOM = "seldom"  # twice a second: nothing came
    RESTING = "resting"  # the engine watches for changes; bins only now and then


class Question(msgspec.Struct, frozen=True):
    """Bins of ``topics`` from number ``since`` on; 0: as long as they are kept."""

    topics: Sequence[str]
    since: int


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
        self._rest_due_ns = 0
        self._looks_far = False
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

    def take_watched(self) -> list[str] | None:
        """Topics that the engine is to watch from now on; None: the same as it was told last."""
        is_news, self._watched_are_others = self._watched_are_others, False
        return list(self._topics[Pace.RESTING]) if is_news else None

    def look_far(self) -> None:
        """At more bins of topics that rest, and with the next question for them."""
        self._rest_due_ns, self._looks_far = 0, True

    def is_resting(self, topic: str) -> bool:
        return self._paces.get(topic) is Pace.RESTING

    @property
    def period_ns(self) -> int:
        """Until the next questions."""
        return PERIOD_NS if self._topics[Pace.OFTEN] else SELDOM_NS

    def questions(self, now_ns: int) -> Iterator[Question]:
        """Each is to be answered (``until``) before the next: what rested may be found to move. ``now_ns`` is of any
        clock that does not go back."""
        is_seldom = now_ns >= self._seldom_due_ns
        if is_seldom:
            self._seldom_due_ns = now_ns + SELDOM_NS
            yield from self._of_resting(now_ns)
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

    def _of_resting(self, now_ns: int) -> Iterator[Question]:
        topics = list(self._topics[Pace.RESTING])
        if not topics or now_ns < self._rest_due_ns:
            return
        self._rest_due_ns = now_ns + _REST_NS
        looks_far, self._looks_far = self._looks_far, False
        yield _INSTANT  # the latest answer may be old
        yield Question(topics, max(self.until - FAR_BINS, 1) if looks_far else self._latest)

    def of_sleepers(self, topics: Sequence[str]) -> Iterator[Question]:
        """For what is missing of these where they are asked for less than often. Each is to be answered (``until``)
        before the next."""
        slow = [topic for topic in topics if self._paces.get(topic, Pace.OFTEN) is not Pace.OFTEN]
        if slow:
            yield _INSTANT
            yield Question(slow, self._latest)

    @property
    def _latest(self) -> int:
        return max(self.until - LOOK_BINS, 1)
