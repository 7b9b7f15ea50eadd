"""Which publishes this broker takes, and what ``/ping`` says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.runtime.health import Health

if TYPE_CHECKING:
    from srtm._native import Engine


class Acceptance:
    """The engine begins by refusing all; whoever knows more says so here."""

    def __init__(self, engine: Engine, health: Health) -> None:
        self._engine = engine
        self._health = health

    def take_all(self) -> None:
        """All limits are in place."""
        self._health.note_refusal(None)
        self._engine.set_accepting(True, "")

    def take_limited(self, reason: str) -> None:
        """Take what comes for topics with a limit, and refuse the rest for ``reason``."""
        self._health.note_refusal(reason)
        self._engine.accept_limited(reason)

    def refuse(self, reason: str) -> None:
        """Refuse everything for ``reason``."""
        self._health.note_refusal(reason)
        self._engine.set_accepting(False, reason)
