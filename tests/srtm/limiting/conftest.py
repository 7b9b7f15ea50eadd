"""Limits of a program: two requests at once and one a second in ``api``, one open request in ``jobs``."""

from __future__ import annotations

import pytest

from srtm.contracts.contract import read_contracts
from srtm.limiting.limiter import Limiter
from srtm.limiting.local import LocalLimits
from tests.support.limit_clock import Clock

CONTRACTS = [
    {"namespace": "api", "subject": "*", "policies": [{"name": "burst", "rate": 1, "burst": 2}]},
    {"namespace": "jobs", "subject": "*", "policies": [{"name": "open", "kind": "concurrency", "quota": 1}]},
    {
        "namespace": "paced",
        "subject": "*",
        "policies": [{"name": "smooth", "kind": "pace", "rate": 1, "max_wait": "1s"}],
    },
]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> LocalLimits:
    return LocalLimits(Limiter(read_contracts(CONTRACTS), clocks=clock), clock_s=lambda: clock.now / 1e9)
