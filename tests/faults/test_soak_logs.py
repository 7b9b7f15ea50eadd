"""``tests.faults.soak_logs``: what a stop excuses, and what it does not."""

import numpy as np

from bench.harness.cluster_runs.trace import Trace
from tests.faults.soak_logs import Logs

SECOND = 10**9
RATE, BURST = 100.0, 10.0


def trace(due_s: list[float], actual_s: list[float]) -> Trace:
    due, actual = (np.array([round(at * SECOND) for at in column], dtype=np.int64) for column in (due_s, actual_s))
    nobody = np.zeros(len(due), dtype=np.int64)
    return Trace(publishers=["p"], publisher=nobody, arrival_ns=due, due_ns=due, released_ns=actual, sent_ns=actual)


def steady(from_s: float, to_s: float, rate: float = RATE) -> list[float]:
    return [from_s + i / rate for i in range(round((to_s - from_s) * rate))]


def stopped_from_20_to_28_s() -> Logs:
    """Broker 1 lets everything go; what came due while it stood goes at once when it goes on."""
    due = steady(1.0, 40.0)
    logs = Logs()
    logs.take(1, "cars", trace(due, [28.0 if 20.0 <= at < 28.0 else at for at in due]))
    logs.went_on(1, 28 * SECOND)
    return logs


def test_what_came_due_while_a_broker_stood_may_go_at_once_when_it_goes_on() -> None:
    logs = stopped_from_20_to_28_s()
    assert logs.violations(RATE, BURST) == []
    assert logs.ordinary("cars")[1] == 0
    assert logs.after_stop("cars", 1, 28 * SECOND)[1] == 8 * SECOND


def test_a_long_stop_excuses_nothing_that_goes_at_another_time() -> None:
    logs = stopped_from_20_to_28_s()
    # 100 messages of another broker, on time by its own books: more than b beside what broker 1 lets go then.
    due = [35.0] * 100
    logs.take(2, "cars", trace(due, due))
    forms = {form for _, form, _ in logs.violations(RATE, BURST)}
    assert forms >= {"due", "actual"}


def test_a_stop_of_one_broker_does_not_excuse_another() -> None:
    logs = stopped_from_20_to_28_s()
    logs.stops = [(2, 28 * SECOND)]
    assert logs.ordinary("cars")[1] == 8 * SECOND


def test_more_than_came_due_meanwhile_is_too_much_after_a_stop_too() -> None:
    logs = stopped_from_20_to_28_s()
    late = steady(27.9, 28.0, rate=3000.0)
    logs.take(1, "cars", trace(late, [28.01] * len(late)))
    forms = {form for _, form, _ in logs.violations(RATE, BURST)}
    assert "actual, b1 after a stop" in forms
    assert "actual" not in forms


def test_what_still_waits_was_not_let_go() -> None:
    logs = Logs()
    logs.take(1, "cars", trace([1.0, 2.0], [1.0, 0.0]))
    assert logs.count("cars") == 1
