"""Limits that this process decides. They never wait, so they are for event loops and for threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Self, cast

from srtm.contracts.contract import Contract
from srtm.contracts.contract_file import read_contract_file
from srtm.contracts.subject_plans import Plans
from srtm.limiting.answers import Answer, answer_of
from srtm.limiting.headers import FAMILIES, Family
from srtm.limiting.limiter import Limiter

_SWEEP_S = 0.25  # as the limit service does


class LocalLimits:
    """Decides in this process. Every process of a program has limits of its own.

    ``families``: the headers of answers.
    """

    def __init__(
        self,
        contracts: Iterable[Contract] | Limiter,
        *,
        plans: Plans | None = None,
        families: Collection[Family] = FAMILIES,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limiter = contracts if isinstance(contracts, Limiter) else Limiter(contracts)
        self._plans = plans or Plans()
        self._families = families
        self._clock_s = clock_s
        self._sweep_at = 0.0

    @classmethod
    def of_file(cls, path: str | Path, *, plans: Plans | None = None, families: Collection[Family] = FAMILIES) -> Self:
        """Decide by a contract file. Raises BadInput."""
        return cls(read_contract_file(Path(path)), plans=plans, families=families)

    def check(self, namespace: str, subject: str, cost: int = 1) -> Answer:
        """As ``Limits.check``."""
        now = self._clock_s()
        if now >= self._sweep_at:  # subjects come by checks alone, so this bounds memory
            self._sweep_at = now + _SWEEP_S
            self.limiter.sweep()
        subject = self._plans.named(namespace, subject)
        return answer_of(self.limiter.check(namespace, subject, cost), self._families)

    def correct(self, grant: str | bytes, cost: int) -> None:
        """As ``Limits.correct``."""
        self.limiter.correct(cast(bytes, grant), cost)

    def release(self, grant: str | bytes) -> None:
        """As ``Limits.release``."""
        self.limiter.release(cast(bytes, grant))
