"""A limiter in this process: contracts by pattern, clear errors, bounded subjects."""

from __future__ import annotations

import pytest

from srtm.contracts.contract import read_contract
from srtm.errors import BadInput, NotFound
from srtm.limiting import limiter as limiter_module
from srtm.limiting.limiter import Limiter
from srtm.limiting.python_core import Limiter as PythonCore

S = 10**9


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> tuple[int, int]:
        return self.now, self.now


def contract(rate: float = 1, burst: float = 2, pattern: str = "*", **others: object):
    policy = {"name": "burst", "rate": rate, "burst": burst}
    return read_contract({"namespace": "api", "subject": pattern, "policies": [policy], **others})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True, params=[limiter_module.Core, PythonCore], ids=["rust", "python"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds for both cores."""
    monkeypatch.setattr(limiter_module, "Core", request.param)


@pytest.fixture
def limiter(clock: Clock) -> Limiter:
    return Limiter([contract()], clocks=clock)


def test_a_burst_passes_and_a_refusal_says_when_to_come_again(limiter: Limiter, clock: Clock) -> None:
    assert [limiter.check("api", "a").allowed for _ in range(3)] == [True, True, False]
    refused = limiter.check("api", "a")
    assert (refused.violated, refused.wait_ns, refused.grant) == (("burst",), S, None)
    assert limiter.check("api", "b").allowed
    clock.now = S
    assert limiter.check("api", "a").allowed


def test_what_was_asked_is_counted(limiter: Limiter) -> None:
    for _ in range(3):
        limiter.check("api", "a")
    (counts,) = limiter.counts(contract())
    assert counts == ("burst", 2, 1, 2)
    assert limiter.subjects() == {"api": 1}
    assert limiter.bytes > 0


def test_a_changed_contract_holds_at_once(limiter: Limiter) -> None:
    limiter.check("api", "a")
    limiter.put(contract(burst=9))
    assert limiter.peek("api", "a").policies[0].remaining == 1
    limiter.remove("api", "*")
    assert limiter.contracts == []
    with pytest.raises(NotFound):
        limiter.remove("api", "*")
    with pytest.raises(NotFound, match="subject 'a' is not known here: a contract of namespace 'api' must be for it"):
        limiter.check("api", "a")


def test_subjects_at_rest_are_forgotten(limiter: Limiter, clock: Clock) -> None:
    limiter.check("api", "a")
    clock.now = 10 * S
    limiter.sweep()
    assert limiter.subjects() == {"api": 0}


@pytest.mark.parametrize("subject", ["", "x" * (64 << 10), "é" * 600, "\ud800"])
def test_subjects_that_cannot_be_are_refused(limiter: Limiter, subject: str) -> None:
    for ask in (limiter.check, limiter.peek, limiter.reset):
        with pytest.raises(BadInput, match="subject"):
            ask("api", subject)


@pytest.mark.parametrize("cost", [-1, 2**32])
def test_costs_that_cannot_be_are_refused(limiter: Limiter, cost: int) -> None:
    with pytest.raises(BadInput, match="cost"):
        limiter.check("api", "a", cost)


@pytest.mark.parametrize("grant", [b"", b"forged", bytes(48)])
def test_forged_grants_are_refused(limiter: Limiter, grant: bytes) -> None:
    with pytest.raises(BadInput, match="grant"):
        limiter.correct(grant, 1)
    with pytest.raises(BadInput, match="grant"):
        limiter.release(grant)


def test_a_ban_is_paid_by_time_and_a_pardon_is_at_once(limiter: Limiter, clock: Clock) -> None:
    limiter.charge("api", "a", 100)
    assert limiter.check("api", "a").wait_ns == 3 * S  # the debt is bounded by the burst
    assert limiter.reset("api", "a")
    assert not limiter.reset("api", "a")
    assert limiter.check("api", "a").allowed


@pytest.mark.slow
def test_a_flood_of_new_subjects_costs_those_who_come_later_never_memory(clock: Clock) -> None:
    limiter = Limiter([contract()], max_subjects=1_000, clocks=clock)
    for number in range(1_000):
        limiter.check("api", f"old {number}")
    before = limiter.bytes
    flood = [limiter.check("api", f"new {number}") for number in range(20_000)]
    assert sum(verdict.allowed for verdict in flood) <= 2 * 1_024
    assert all(verdict.shared for verdict in flood)
    assert limiter.bytes <= before + 2_000_000
    assert limiter.check("api", "old 7").allowed, "those that were there keep what they have"
