"""What brokers tell one another of replicated contracts: what clients took here, once, directly to each. Pure.

A message is sent until it is acknowledged; the next has a higher number. So whoever is told applies each once, whatever
is lost or comes twice (stop-and-wait).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from srtm.control import ContractNews

_MAX_BYTES = 40_000  # of what was taken in a message, as JSON: brokers take bodies of 64 KiB
MOST_COST = 2**31  # of a subject in a message; who took more waits for the next
_MAX_WAITING = 100_000  # subjects that wait for a broker that does not answer; what more took is not told


class Outbox:
    """News for one broker."""

    def __init__(self, sender: str, incarnation: str, numbers: Iterator[int], *, late: bool = False) -> None:
        """``numbers``: grow also from one outbox of a broker to the next: that may have been away for a while.
        ``late``: the first news are from a time in which it could not be told."""
        self._sender = sender
        self._incarnation = incarnation
        self._numbers = numbers
        self._waiting: dict[tuple[str, str], int] = {}
        self._sent: ContractNews | None = None  # not acknowledged
        self._late = late

    def add(self, taken: Iterable[tuple[str, str, int]]) -> None:
        """Namespace, subject, cost."""
        for namespace, subject, cost in taken:
            key = namespace, subject
            if key in self._waiting or len(self._waiting) < _MAX_WAITING:
                self._waiting[key] = self._waiting.get(key, 0) + cost

    def next(self) -> ContractNews | None:
        """The message to send now, perhaps again; None: there is no news."""
        if self._sent is None and self._waiting:
            taken, size = [], 0
            while self._waiting and size < _MAX_BYTES:
                key, cost = self._waiting.popitem()
                taken.append((*key, min(cost, MOST_COST)))
                size += len(msgspec.json.encode(taken[-1])) + 1
                if cost > MOST_COST:
                    self._waiting[key] = cost - MOST_COST
                    break
            self._sent = ContractNews(
                sender=self._sender,
                incarnation=self._incarnation,
                number=next(self._numbers),
                taken=taken,
                late=self._late,
            )
            self._late = bool(self._late and self._waiting)
        return self._sent

    def acknowledged(self) -> None:
        """The message was taken."""
        self._sent = None

    def missed(self) -> None:
        """The message was perhaps not taken. What waits meanwhile is late."""
        self._late = True


class Inbox:
    """Which message of each broker was applied last."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int]] = {}  # {sender: incarnation, number}

    def is_new(self, news: ContractNews) -> bool:
        """Whether to apply a message. It counts as applied then."""
        incarnation, number = self._last.get(news.sender, ("", 0))
        if incarnation == news.incarnation and news.number <= number:
            return False
        self._last[news.sender] = news.incarnation, news.number
        return True
