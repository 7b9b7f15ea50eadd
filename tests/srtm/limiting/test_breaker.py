"""Who does not answer is not waited for."""

from __future__ import annotations

from srtm.limiting.breaker import CircuitBreaker

S = 10**9


def test_after_three_misses_in_a_row_there_is_one_probe_a_second() -> None:
    breaker = CircuitBreaker()
    for now in (0, 1, 2):
        assert breaker.admits(now)
        breaker.note(False, now)
    assert not breaker.admits(3)
    assert breaker.admits(S + 2)
    assert not breaker.admits(S + 3), "the probe is under way"
    assert not breaker.admits(2 * S + 1)
    assert breaker.admits(2 * S + 2)


def test_an_answer_closes_it() -> None:
    breaker = CircuitBreaker()
    for _ in range(3):
        breaker.note(False, 0)
    breaker.note(True, S)
    assert all(breaker.admits(S) for _ in range(9))
    breaker.note(False, S)
    assert breaker.admits(S), "misses count in a row"
