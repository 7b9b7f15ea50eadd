"""What a broker cannot do now, for ``/ping``, ``/stats`` and ``/healthz``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srtm._native import Engine


class Health:
    """Of several failures, ``text`` names the first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._failures: dict[str, str] = {}  # {what cannot be written: why}
        self.text = "OK"  # or "NOK - why"

    def note(self, what: str, failure: str | None) -> None:
        """``what`` cannot be written because of ``failure``; None: it can be again."""
        if failure is None and what not in self._failures:
            return
        self._failures.pop(what, None)
        if failure is not None:
            self._failures[what] = failure
        self.text = next((f"NOK - {reason}" for reason in self._failures.values()), "OK")
        self._engine.set_health(self.text)
