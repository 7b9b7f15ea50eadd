"""A stand-in for ``srtm._native.Engine`` whose publishers want every token that there is, as soon as it looks.

It has the engine's rule for leases: expiry is looked at before anything is let go. Time comes in as two numbers: the
instant of the simulation (in which releases are logged) and what the broker's own clock shows.
"""

from __future__ import annotations

from collections.abc import Callable

from srtm.token_bucket.bucket import TOKEN, UNITS_PER_MICRO
from tests.support.fake_engine import FakeEngine


class GreedyEngine(FakeEngine):
    """One topic with a limit is enough. ``now_ns``: of the simulation; ``boot_ns``: CLOCK_BOOTTIME of this broker."""

    def __init__(self, now_ns: Callable[[], int], boot_ns: Callable[[], int]) -> None:
        super().__init__()
        self.released_ns: list[int] = []
        self._now_ns = now_ns
        self._boot_ns = boot_ns
        self._rate = self._burst = self._fill = 0  # units a nanosecond, units, units there at _at_ns
        self._at_ns = 0
        self._version: int | None = None  # None: no bucket
        self._expires_ns: int | None = None
        self._is_void = False

    @property
    def share_micro(self) -> tuple[int, int]:
        """In force now."""
        self._accrue()
        return (0, 0) if self._is_void else (self._rate, self._burst // UNITS_PER_MICRO)

    def release_all(self) -> None:
        self._accrue()
        tokens, self._fill = divmod(self._fill, TOKEN)
        self.released_ns += [self._at_ns] * tokens

    def set_bucket(  # type: ignore[override]  # what the backlog may hold is of no concern here
        self, topic: str, rate: int, burst: int, *rest: object
    ) -> bool:
        _reject, _messages, _bytes, version, full, expires_ns = rest
        assert isinstance(version, int)
        self._accrue()
        if self._version is not None and version < self._version:
            return False
        units = burst * UNITS_PER_MICRO
        self._fill = min(self._fill, units) if self._version is not None else units if full else 0
        self._rate, self._burst, self._version, self._is_void = rate, units, version, False
        self._expires_ns = expires_ns if isinstance(expires_ns, int) else None
        return super().set_bucket(topic, rate, burst, False, 1, 1, version, bool(full), self._expires_ns)

    def renew_leases(self, renewals: list[tuple[str, int, int]]) -> None:
        self._accrue()
        for _, version, expires_ns in renewals:
            later = self._expires_ns is not None and expires_ns > max(self._expires_ns, self._boot_ns())
            if version == self._version and later:
                self._expires_ns, self._is_void = expires_ns, False

    def _accrue(self) -> None:
        now_ns = self._now_ns()
        if self._expires_ns is not None and self._boot_ns() >= self._expires_ns:
            self._is_void, self._fill = True, 0
        elif not self._is_void:
            self._fill = min(self._burst, self._fill + self._rate * (now_ns - self._at_ns))
        self._at_ns = now_ns
