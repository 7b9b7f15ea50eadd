"""Answers of the owners of ``exact`` subjects, for which checks wait."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from limiting.replication.refill import Verdict


class OwnerAnswers:
    """By the tag of the group that asked, and its ticket."""

    def __init__(self) -> None:
        self._asked: dict[tuple[bytes, int], trio.Event] = {}
        self._came: dict[tuple[bytes, int], Verdict] = {}

    async def wait(self, tag: bytes, ticket: int) -> Verdict | None:
        """Wait for an answer. None: the owner could not decide."""
        key = tag, ticket
        event = self._asked[key] = trio.Event()
        try:
            await event.wait()
            said = self._came[key]
            return None if not said.allowed and said.wait_ns == 0 else said
        finally:
            del self._asked[key]
            self._came.pop(key, None)

    def hand_over(self, tag: bytes, answers: Mapping[int, Verdict]) -> None:
        """Give answers, by ticket, to the checks that wait. Those that come too late are dropped."""
        for ticket, said in answers.items():
            event = self._asked.get((tag, ticket))
            if event is not None:
                self._came[tag, ticket] = said
                event.set()
