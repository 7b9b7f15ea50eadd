"""Limiters in a Python program, asked in one thread, one check after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from srtm.contracts.contract import read_contract
from srtm.limiting.limiter import Limiter

SUBJECTS = 10_000
Check = Callable[[str], bool]
RATE, BURST = 10, 20  # tokens a second, tokens


def ours(*policies: dict[str, object]) -> Check:
    """Our limiter under a contract of these policies."""
    contract = read_contract({"namespace": "api", "subject": "*", "policies": list(policies)})
    limiter = Limiter([contract])
    return lambda subject: limiter.check("api", subject).allowed


def library(strategy: str) -> Check:
    """A strategy of the library ``limits``, in its memory: ``BURST`` in two seconds."""
    from limits import RateLimitItemPerSecond, storage, strategies

    item = RateLimitItemPerSecond(BURST, 2)
    limiter = strategies.STRATEGIES[strategy](storage.MemoryStorage())
    return lambda subject: limiter.hit(item, subject)


def per_second(check: Check, checks: int, seed: int = 1) -> float:
    """Checks of subjects in random order that one thread makes in a second."""
    random = Random(seed)
    names = [f"user:{random.randrange(SUBJECTS):024}" for _ in range(checks)]
    begun = time.perf_counter()
    for name in names:
        check(name)
    return checks / (time.perf_counter() - begun)
