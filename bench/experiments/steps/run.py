"""One step of traffic under one mode: what the brokers' traces say came of it, and whether that counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from bench.harness.cluster_runs.recovery import SECOND_NS, Aftermath
from bench.harness.cluster_runs.trace import Trace
from srtm.token_bucket.replay import NEVER_NS

MODES = ("fitted", "proportional, 2 s", "proportional", "gdrl", "central", "static")
UNSETTLED = "central"  # all of both brokers' traffic never passes: there is nothing to be back at
COUNTED_S = 3.0  # before the step; less of it is no measure of shares that wander with a window
_COUNTED_WINDOWS_S = {"proportional": 10.0}  # instead: what such a mode looks back on
# Of a topic before that: generators begin, and a policy has heard every broker (adaptor.policies.fitted).
SETTLING_S = 3.0
TAIL_S = 5.0  # at the end
PROMISE_MS = 5.0
MOST_LATE = 0.2  # of the p99 before or of the promise, whichever is more, as for every run of the generator
_WANDERING = ("proportional", "proportional, 2 s", "gdrl")  # their shares move without a step
# About three times what undisturbed traffic has in simulation (bench/simulation/shifting_traffic.py): 3.3 and 33 ms,
# wandering 22 ms.
MOST_BEFORE_MS, MOST_BEFORE_WANDERING_MS, MOST_BEFORE_BATCH_MS = 10.0, 60.0, 100.0


@dataclass(frozen=True)
class Step:
    """Parts of the load on the first broker, before and after."""

    before: float
    after: float
    batch: int = 1

    @property
    def name(self) -> str:
        return f"{_percent(self.before)} -> {_percent(self.after)}" + (
            f", batch {self.batch}" if self.batch > 1 else ""
        )


STEPS = {
    "50-10": Step(0.5, 0.1),
    "50-20": Step(0.5, 0.2),
    "90-10": Step(0.9, 0.1),
    "50-10-batch": Step(0.5, 0.1, batch=10),
}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What came of a step. None: not as long as it was watched."""

    drained_s: float | None
    back_s: float | None
    before_p99_ms: float  # what the p99 had to be back at
    worst_p99_ms: float  # of the worse broker, at the end
    messages: int


@dataclass(frozen=True, kw_only=True)
class StepRun(Judgement):
    """One step under one mode."""

    step: str
    mode: str
    number: int
    late_p99_ms: float  # as in ``Sent``
    before_s: float
    watched_s: float
    seed: int
    attempts: int = 1  # up to this one, which counted or was the last
    reasons: list[str] = field(default_factory=list)  # why it does not count; empty: it does
    commit: str | None  # it was made at; None: not from a checkout
    sources: str | None  # their fingerprint

    @property
    def counts(self) -> bool:
        return not self.reasons

    def row(self) -> dict[str, Any]:
        return {"name": f"{self.mode}, {self.step}", **asdict(self)}


@dataclass(frozen=True)
class Sent:
    """A step as it was sent, ns of the monotonic clock."""

    calm_until_ns: int  # nobody of those who come was started before
    at_ns: int  # the first of them has sent, and those who leave are stopped
    ends_ns: int  # of what is watched
    late_p99_ms: float  # of messages behind their intended instants when they were sent, of the worse generator


def counted_s(mode: str) -> float:
    """Of the traffic before the step: what it is compared with."""
    return _COUNTED_WINDOWS_S.get(mode, COUNTED_S)


def judged(traces: Sequence[Trace], sent: Sent, before_s: float) -> Judgement:
    """Beside the ``before_s`` before the step. What still waited is due never."""
    due_ns = [np.where(trace.due_ns < trace.arrival_ns, NEVER_NS, trace.due_ns) for trace in traces]
    arrival_ns = [trace.arrival_ns for trace in traces]
    before_ns = round(before_s * SECOND_NS)
    seen = Aftermath(arrival_ns, due_ns, sent.at_ns, sent.ends_ns, before_ns, sent.calm_until_ns)
    return Judgement(
        drained_s=_finite(seen.drained_s()),
        back_s=_finite(seen.back_s()),
        before_p99_ms=seen.before_p99_ms(),
        worst_p99_ms=seen.worst_p99_ms(sent.ends_ns - round(TAIL_S * SECOND_NS)),
        messages=sum(len(trace) for trace in traces),
    )


def most_before_ms(mode: str, batch: int) -> float:
    """Above it something else than the traffic made messages wait before the step."""
    if mode == UNSETTLED:
        return float("inf")
    if batch > 1:
        return MOST_BEFORE_BATCH_MS
    return MOST_BEFORE_WANDERING_MS if mode in _WANDERING else MOST_BEFORE_MS


def why_not(mode: str, batch: int, before_p99_ms: float, late_p99_ms: float) -> list[str]:
    """Reasons why a run says nothing of its mode."""
    found, most_ms = [], most_before_ms(mode, batch)
    if not before_p99_ms <= most_ms:
        found.append(f"p99 before the step {before_p99_ms:.3g} ms, over {most_ms:g} ms: not settled")
    latest_ms = MOST_LATE * max(PROMISE_MS, min(before_p99_ms, most_ms) if mode != UNSETTLED else 0.0)
    if not late_p99_ms <= latest_ms:
        found.append(f"the generators' p99 lateness {late_p99_ms:.3g} ms, over {latest_ms:.3g} ms")
    return found


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def _percent(part: float) -> str:
    return f"{100 * part:.0f}:{100 - 100 * part:.0f}"
