"""What a broker cannot do now, for ``/ping``, ``/stats`` and ``/healthz``.

A broker that works but refuses publishes says so by ``/ping`` alone: who would start it again would win nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srtm._native import Engine


class Health:
    """Of several failures, ``text`` names the first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._failures: dict[str, str] = {}  # {what cannot be written: why}
        self._refusal: str | None = None  # why publishes are refused
        self.text = "OK"  # or "NOK - why"

    def note(self, what: str, failure: str | None) -> bool:
        """``what`` cannot be written because of ``failure``; None: it can be again. Returns whether that is new."""
        if failure is None and what not in self._failures:
            return False
        is_new = self._failures.pop(what, None) != failure
        if failure is not None:
            self._failures[what] = failure
        self.text = next((f"NOK - {reason}" for reason in self._failures.values()), "OK")
        self._tell()
        return is_new

    def note_refusal(self, reason: str | None) -> None:
        """Publishes are refused for ``reason``; None: they are taken."""
        self._refusal = reason
        self._tell()

    def _tell(self) -> None:
        self._engine.set_health(f"NOK - {self._refusal}" if self._refusal and not self._failures else self.text)
