"""What the brokers of a soak let go, from their traces, and whether that conforms. Pure.

A process that was stopped lets go late what came due meanwhile, by as long as it was stopped; nobody else does. So the
actual form of the law allows J (``srtm.token_bucket.bucket.conforms_actual``) by broker and stop: what a broker let go
in the second after it went on is judged by the lateness found there, together with what all brokers let go at other
times; and this is judged once more alone, by its own lateness, which is that of a busy machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.harness.cluster_runs.trace import Column, Trace
from srtm.token_bucket.bucket import Violation, conforms_actual, conforms_due
from srtm.units import to_micro

CATCHING_UP_NS = 10**9  # what it lets go for so long after a stop may be late because of that


@dataclass(frozen=True)
class _Part:
    """Of one broker: due and actual instants."""

    broker: int
    due_ns: Column
    actual_ns: Column


@dataclass
class Logs:
    """By topic; and when which broker went on."""

    parts: dict[str, list[_Part]] = field(default_factory=lambda: defaultdict(list))
    stops: list[tuple[int, int]] = field(default_factory=list)  # (broker, ns at which it went on)

    def take(self, broker: int, topic: str, trace: Trace) -> None:
        released = trace.released_ns > 0
        self.parts[topic].append(_Part(broker, trace.due_ns[released], trace.released_ns[released]))

    def went_on(self, broker: int, at_ns: int) -> None:
        """A stop of ``broker`` is over."""
        self.stops.append((broker, at_ns))

    def violations(self, topic_rate: float, topic_burst: float) -> list[tuple[str, str, Violation]]:
        """(topic, form, what): against each topic's envelope, msg/s and messages."""
        rate, burst = to_micro(topic_rate, "rate"), to_micro(topic_burst, "burst")
        found: list[tuple[str, str, Violation | None]] = []
        for topic, parts in self.parts.items():
            found.append((topic, "due", conforms_due(_joined([part.due_ns for part in parts]), rate, burst)))
            others, others_late_ns = self.ordinary(topic)
            found.append((topic, "actual", conforms_actual(others, rate, burst, others_late_ns)))
            for broker, at_ns in self.stops:
                here, late_ns = self.after_stop(topic, broker, at_ns)
                together = conforms_actual([*others, *here], rate, burst, max(late_ns, others_late_ns))
                found.append((topic, f"actual, b{broker} after a stop", together))
        return [(topic, form, violation) for topic, form, violation in found if violation is not None]

    def ordinary(self, topic: str) -> tuple[list[int], int]:
        """Actual instants of all that was not let go right after a stop, and the largest lateness of these, ns."""
        kept = [(part, ~self._is_after_stop(part)) for part in self.parts[topic]]
        return _joined([part.actual_ns[keep] for part, keep in kept]), _latest(
            [_late(part, keep) for part, keep in kept]
        )

    def after_stop(self, topic: str, broker: int, at_ns: int) -> tuple[list[int], int]:
        """The same of what ``broker`` let go in the second after it went on at ``at_ns``."""
        parts = [part for part in self.parts[topic] if part.broker == broker]
        kept = [(part, _is_within(part, at_ns)) for part in parts]
        return _joined([part.actual_ns[keep] for part, keep in kept]), _latest(
            [_late(part, keep) for part, keep in kept]
        )

    def count(self, topic: str) -> int:
        return sum(len(part.due_ns) for part in self.parts[topic])

    def _is_after_stop(self, part: _Part) -> np.ndarray:
        found = np.zeros(len(part.actual_ns), dtype=bool)
        for broker, at_ns in self.stops:
            if broker == part.broker:
                found |= _is_within(part, at_ns)
        return found


def _is_within(part: _Part, at_ns: int) -> np.ndarray:
    return (part.actual_ns >= at_ns) & (part.actual_ns < at_ns + CATCHING_UP_NS)


def _late(part: _Part, keep: np.ndarray) -> Column:
    late: Column = part.actual_ns[keep] - part.due_ns[keep]
    return late


def _joined(columns: Sequence[Column]) -> list[int]:
    return [int(at_ns) for column in columns for at_ns in column.tolist()]


def _latest(columns: Sequence[Column]) -> int:
    return max([0, *_joined(columns)])
