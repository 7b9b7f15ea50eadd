"""One line in ten seconds tells of all."""

from srtm.concurrency.repeats import PERIOD_S, Repeats


def test_the_first_is_told_at_once_and_the_others_together_after_the_period():
    repeats = Repeats()
    assert [repeats.note(now) for now in (0.0, 0.1, PERIOD_S - 0.1, PERIOD_S, PERIOD_S + 1)] == [1, 0, 0, 3, 0]
    assert repeats.note(2 * PERIOD_S) == 2
    assert repeats.note(10 * PERIOD_S) == 1
