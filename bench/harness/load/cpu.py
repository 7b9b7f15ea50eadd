"""Processor time of brokers' messages: of whole processes, over the part of a run that was measured."""

from __future__ import annotations

from bench.harness.load.run import RunProgress
from bench.harness.systems.systems import System
from srtm.errors import InternalError


class CpuMeter:
    """Processor time of all ``systems`` between the first and the last look at a run that was measuring."""

    def __init__(self, *systems: System) -> None:
        self._systems = systems
        self._first_s: float | None = None
        self._last_s = 0.0
        self._received = (0, 0)

    def look(self, progress: RunProgress) -> None:
        if progress.phase != "measuring":
            return
        self._last_s = sum(system.cpu_s() for system in self._systems)
        if self._first_s is None:
            self._first_s, self._received = self._last_s, (progress.received, progress.received)
        self._received = (self._received[0], progress.received)

    def us_per_message(self) -> float:
        """Raises InternalError if nothing was seen: the run was too short."""
        messages = self._received[1] - self._received[0]
        if self._first_s is None or messages <= 0:
            raise InternalError("a run too short to see the processor time of a message")
        return 1e6 * (self._last_s - self._first_s) / messages
