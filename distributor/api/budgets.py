"""What all requests together may hold: bytes of bodies, and publishers that documents declare in a few bytes.

Brokers' messages have a budget of their own, so that no document keeps a broker from syncing.
"""

from __future__ import annotations

from typing import cast

import trio
from fastapi import FastAPI, Request

from distributor.config import DistributorConfig
from srtm.topics.publishers import MOST
from srtm.web.bodies import Budget


class Budgets:
    """The budgets of one application."""

    def __init__(self, config: DistributorConfig) -> None:
        self.documents = Budget(2 * config.max_body_bytes, "bytes of documents")
        self.messages = Budget(2 * config.max_body_bytes, "bytes of brokers' messages")
        self.publishers = Budget(2 * MOST, "publishers")
        self.files = trio.CapacityLimiter(1)  # in TOML: the parser takes some 300 times their size


def add_budgets(app: FastAPI, config: DistributorConfig) -> None:
    app.state.budgets = Budgets(config)


def budgets(request: Request) -> Budgets:
    """The budgets of the application that answers ``request``."""
    return cast(Budgets, request.app.state.budgets)
