"""What all requests together may hold: bytes of bodies, and publishers that documents declare in a few bytes.

Brokers' messages have a budget of their own, so that no document keeps a broker from syncing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from fastapi import FastAPI, Request

from distributor.config import DistributorConfig
from srtm.errors import Unavailable
from srtm.topics.publishers import MOST

_RETRY_S = 5.0


class Budget:
    """An amount that is taken in parts and given back; nobody waits for it."""

    def __init__(self, most: int, what: str) -> None:
        self.held = 0
        self._most = most
        self._what = what

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Yield what takes so much more until the block ends. It raises Unavailable."""
        own = 0

        def take(amount: int) -> None:
            nonlocal own
            if self.held + amount > self._most:
                why = f"requests under way hold {self.held:,} {self._what}, and all together may hold {self._most:,}"
                raise Unavailable(why, _RETRY_S)
            self.held += amount
            own += amount

        try:
            yield take
        finally:
            self.held -= own


class Budgets:
    """The budgets of one application."""

    def __init__(self, config: DistributorConfig) -> None:
        self.documents = Budget(2 * config.max_body_bytes, "bytes of documents")
        self.messages = Budget(2 * config.max_body_bytes, "bytes of brokers' messages")
        self.publishers = Budget(2 * MOST, "publishers")


def add_budgets(app: FastAPI, config: DistributorConfig) -> None:
    app.state.budgets = Budgets(config)


def budgets(request: Request) -> Budgets:
    """The budgets of the application that answers ``request``."""
    return cast(Budgets, request.app.state.budgets)
